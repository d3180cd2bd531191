"""A stream: its messages, the parts of it that lie in blobs, and its row in a checkpoint."""
