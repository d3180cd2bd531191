"""Which group owns a bucket. For the server and for Spark executors: the standard library only."""

from zlib import crc32


def group_of(bucket: str, groups: int) -> int:
    """The number of the group that owns a bucket. It is part of the store format, so it never changes."""
    return crc32(bucket.encode()) % groups
