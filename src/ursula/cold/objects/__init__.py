"""Objects: the stores that keep them, as local files or in S3, their keys and their checksums."""
