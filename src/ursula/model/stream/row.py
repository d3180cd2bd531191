"""The row of a stream: everything but its messages, as bytes.

A checkpoint has one for each stream, a parked stream is nothing but its row, and a tombstone has the row of
the deleted stream. Layout: a msgpack array, first the version, then the fields of `StreamRow` in their order.
Fields are only ever added at the end, with a default.
"""

from array import array
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ..commands import ForkPoint
from ..outcomes import Snapshot
from .messages import Messages
from .stream import ProducerState, Stream

ROW_VERSION = 1


class RowUnreadable(Exception):
    """A row that this version cannot read."""


class StreamRow(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """The fields. The parent is given by name and incarnation; the caller has to look it up."""

    version: int
    incarnation: str
    content_type: str
    created_at: int
    last_write_at: int
    tail: int
    next_record: int
    refs: Sequence[int] = ()
    ttl_seconds: int | None = None
    expires_at: int | None = None
    deadline: int | None = None
    closed: bool = False
    closed_by: tuple[str, int, int] | None = None
    stream_seq: str | None = None
    producers: list[tuple[str, int, int, int, int]] | None = None
    earliest: int = 0
    first_record: int = 0
    trimmed: tuple[int, int, int] | None = None
    snapshot: tuple[int, str, str, int, str] | None = None
    attributes: bytes | None = None
    hidden: bool = False
    fork: ForkPoint | None = None
    fork_offset: int = 0
    fork_record: int = 0
    parent: tuple[str, str] | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StreamRow)


def encode_stream(stream: Stream) -> bytes:
    """The row of a stream as it is now."""
    producers = snapshot = None
    if stream.producers is not None:
        producers = [
            (name, known.epoch, known.seq, known.next_offset, known.next_record)
            for name, known in stream.producers.items()
        ]
    if stream.snapshot is not None:
        shown = stream.snapshot
        snapshot = (shown.offset, shown.blob, shown.content_type, shown.size, shown.digest)
    row: tuple[Any, ...] = (
        ROW_VERSION,
        stream.incarnation,
        stream.content_type,
        stream.created_at,
        stream.last_write_at,
        stream.tail,
        stream.next_record,
        () if stream.refs is None else tuple(stream.refs),
    )
    optional: tuple[Any, ...] = (
        stream.ttl_seconds,
        stream.expires_at,
        stream.deadline,
        stream.closed,
        stream.closed_by,
        stream.stream_seq,
        producers,
        stream.earliest,
        stream.first_record,
        stream.trimmed,
        snapshot,
        stream.attributes,
        stream.hidden,
        stream.fork,
        stream.fork_offset,
        stream.fork_record,
        None if stream.parent is None else (stream.parent.name, stream.parent.incarnation),
    )
    # Defaults at the end of a row are not written, and most streams have only defaults there.
    if optional != _OPTIONAL_DEFAULTS:
        row += optional[: _count_written(optional)]
    return _encoder.encode(row)


def _count_written(optional: tuple[Any, ...]) -> int:
    """How many of the optional fields must be written: all except the defaults at the end."""
    count = len(optional)
    while optional[count - 1] == _OPTIONAL_DEFAULTS[count - 1]:
        count -= 1
    return count


def read_row(row: bytes) -> StreamRow:
    """The fields of a row."""
    try:
        fields = _decoder.decode(row)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RowUnreadable(f"the row of a stream cannot be read: {error}") from None
    if fields.version != ROW_VERSION:
        raise RowUnreadable(f"the row of a stream has version {fields.version}, and this server reads 1")
    return fields


def decode_stream(name: str, row: bytes) -> Stream:
    """The stream of a row, without its parent."""
    fields = read_row(row)
    stream = Stream(name, fields.incarnation, fields.content_type, fields.created_at)
    stream.last_write_at = fields.last_write_at
    stream.tail = fields.tail
    stream.messages = Messages(fields.tail)
    stream.record_base = fields.next_record
    if fields.refs:
        stream.refs = array("Q", fields.refs)
        stream.last_ref_position = fields.refs[-2]
    stream.ttl_seconds, stream.expires_at = fields.ttl_seconds, fields.expires_at
    stream.deadline = fields.deadline
    stream.closed, stream.closed_by = fields.closed, fields.closed_by
    stream.stream_seq = fields.stream_seq
    if fields.producers is not None:
        stream.producers = {known[0]: ProducerState(*known[1:]) for known in fields.producers}
    stream.earliest, stream.first_record = fields.earliest, fields.first_record
    stream.trimmed = fields.trimmed
    if fields.snapshot is not None:
        stream.snapshot = Snapshot(*fields.snapshot)
    stream.attributes = fields.attributes
    stream.hidden = fields.hidden
    stream.fork, stream.fork_offset, stream.fork_record = fields.fork, fields.fork_offset, fields.fork_record
    return stream


_OPTIONAL_DEFAULTS = StreamRow.__struct_defaults__[1:]
"""The defaults of the fields after `refs`. `refs` itself is always written: only an empty stream has none."""
