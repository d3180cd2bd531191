"""Objects: the store that has them, as local files or in S3, and how they get their names and checksums."""
