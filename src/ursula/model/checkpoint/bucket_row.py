"""The row of a bucket in a checkpoint: a msgpack array of version, position and time of creation.

It is a separate module because Spark reads such rows from a store without a server.
"""

from typing import NamedTuple

import msgspec

from ..stream.row import RowUnreadable

BUCKET_ROW_VERSION = 1

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, int, int]).decode


class BucketRow(NamedTuple):
    """Where in the log a bucket was created, and when."""

    position: int
    created_at: int


def encode_bucket_row(position: int, created_at: int) -> bytes:
    """The bytes of a row."""
    return _encode((BUCKET_ROW_VERSION, position, created_at))


def decode_bucket_row(row: bytes) -> BucketRow:
    """Decode a row; raises RowUnreadable if another version wrote it or it is damaged."""
    try:
        version, position, created_at = _decode(row)
    except msgspec.MsgspecError as error:
        raise RowUnreadable(f"a state row cannot be read: {error}") from None
    if version != BUCKET_ROW_VERSION:
        raise RowUnreadable(
            f"the row of a bucket has version {version}, and this server reads version {BUCKET_ROW_VERSION}"
        )
    return BucketRow(position, created_at)
