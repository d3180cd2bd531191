"""A stream: its messages in memory, its slices of blobs, and its row in a checkpoint."""
