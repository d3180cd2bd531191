"""How rows are written to a bucket, each exactly once."""
