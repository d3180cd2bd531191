"""The fixed limits on what clients may send and ask for, each named with its unit.

Settings that an operator may change are in `config`.
"""

PRODUCER_ID_BYTES_MAX = 256
STREAM_SEQ_BYTES_MAX = 256
PRODUCER_NUMBER_MAX = 2**53 - 1
JSON_BODY_BYTES_MAX = 4 * 1024 * 1024
JSON_MESSAGES_MAX = 65_536
RECORD_MAX = 2**53 - 1

BUCKETED_PATH_BYTES_MAX = 122
FLAT_PATH_BYTES_MAX = 1024

ATTRIBUTES_BYTES_MAX = 16 * 1024
SNAPSHOT_BYTES_MAX = 128 * 1024 * 1024
BATCH_FRAMES_MAX = 512
BATCH_BODY_BYTES_MAX = 32 * 1024 * 1024
LIST_PAGE_MAX = 1000

BODY_BYTES_HELD_MAX = 1024 * 1024
"""Larger bodies are stored as blobs before they are logged, and the log names the blob."""

READ_BYTES_DEFAULT = 1024 * 1024
READ_BYTES_MAX = 16 * 1024 * 1024

TTL_SECONDS_MAX = 10**12
"""Longer TTLs are refused, so that a deadline in microseconds always fits 64 bits."""
