"""Reading a JSON stream by the ordinals of its messages."""

from ..decide.refusals import refused, trimmed_off
from ..outcomes import RecordPage, Refused
from ..stream.messages import Payload
from ..stream.stream import Stream
from .not_in_memory import NotInMemory, all_in_memory


def read_records(
    stream: Stream,
    record: int | None,
    tail_records: int | None,
    records_max: int,
    bytes_max: int,
    offset: int | None = None,
) -> RecordPage | Refused | NotInMemory:
    """About `bytes_max` bytes of whole messages, from an ordinal or an offset on, or the last ones."""
    if not stream.is_json:
        return refused("invalid_parameter", "only a JSON stream has records", stream)
    first, following = stream.first_record, stream.next_record
    if offset is not None:
        if offset < stream.earliest:
            return trimmed_off(stream)
        if offset > stream.tail:
            return refused("offset_beyond_tail", f"the stream ends at {stream.tail}", stream)
        if offset < stream.tail and not stream.holds(offset):
            return NotInMemory(stream, offset)
        if not stream.is_boundary(offset):
            return refused("invalid_offset", "no message begins at this offset", stream)
        record = stream.record_at(offset)
    elif record is None:
        record = max(first, following - (tail_records or 0))
    if record < first:
        refusal = refused("record_trimmed", f"the first record is {first}", stream)
        refusal.earliest = stream.earliest
        return refusal
    if record > following:
        return refused("record_beyond_next", f"the next record is {following}", stream)
    if record < following and not stream.holds_record(record):
        return NotInMemory(stream, None, record)
    offset = stream.offset_of(record)
    if record < following and not stream.holds(offset):
        return NotInMemory(stream, None, record)
    limit = stream.offset_of(min(following, record + records_max))
    chunks: list[Payload] = []
    next_offset = offset
    if offset < limit:
        next_offset = stream.read(offset, min(bytes_max, limit - offset), True, chunks)
        if not all_in_memory(stream, chunks):
            return NotInMemory(stream, offset)
    return RecordPage(
        incarnation=stream.incarnation,
        content_type=stream.content_type,
        media_type=stream.media_type,
        chunks=chunks,  # type: ignore[arg-type]
        offset=offset,
        next_offset=next_offset,
        tail=stream.tail,
        closed=stream.closed,
        record=record,
        first_record=first,
        next_record=following,
    )
