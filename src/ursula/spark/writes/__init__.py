"""Writing rows to a bucket, each exactly once."""
