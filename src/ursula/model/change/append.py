"""Carrying out a decided append: changes messages, producer, `Stream-Seq`, deadline and journal together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..bucket import Bucket
from ..commands import Append, Create, Producer
from ..decide.append import message_count
from ..journal import NO_RECORD, EventKind, Journal
from ..outcomes import Appended
from ..store_view.dirty_rows import RowKind
from ..stream.blob_slice import slices_of
from ..stream.messages import Payload
from ..stream.stream import ProducerState, Stream
from ..text.media_type import JSON

if TYPE_CHECKING:
    from ..state import State

APPEND = int(EventKind.APPEND)


def change_append(state: "State", command: Append, stream: Stream, index: int) -> Appended:
    """Add messages to a stream, close it, or both."""
    bucket = state.buckets[command.bucket]
    if bucket.journal.position != state.position:
        state.enter(bucket)
    if stream.dirty_at <= state.cut:
        state.dirty_rows.note((RowKind.STREAM, command.bucket, stream.name))
    stream.dirty_at = state.position
    if command.body is not None:
        state.stored.bodies.append((state.position, command.body.blob))
    if stream.last_ref_position <= state.cut and (command.messages or command.body is not None):
        state.refer(stream)
    write(bucket, stream, command, index, state.at, command.counts)
    producer = command.producer
    if command.close:
        close(bucket, stream, command, index)
    outcome = Appended(stream.incarnation, stream.tail, stream.tail, stream.closed)
    if producer is not None:
        outcome.epoch, outcome.seq = producer.epoch, producer.seq
    if stream.media_type == JSON:
        outcome.record_next = stream.next_record
        outcome.record_start = outcome.record_next - message_count(command)
    return outcome


def close(bucket: Bucket, stream: Stream, command: Append | Create, index: int) -> None:
    """Close a stream, together with its last append or with its creation."""
    stream.closed = True
    producer = command.producer
    if producer is not None and stream.producers is not None:  # a PUT without a body has no producer
        stream.closed_by = (producer.id, producer.epoch, producer.seq)
    bucket.journal.add(index, EventKind.CLOSE, stream, stream.tail)


def write(
    bucket: Bucket,
    stream: Stream,
    command: Append | Create,
    index: int,
    at: int,
    counts: tuple[int, ...] = (),
) -> None:
    """Write the messages of an append or a creation."""
    messages: Sequence[Payload] = command.messages
    producer = command.producer
    if command.body is not None:
        messages = slices_of(command.body)
        stream.messages.has_slices = True
    if messages:
        offset = stream.tail
        record, step = (stream.next_record, 1) if stream.media_type == JSON else (NO_RECORD, 0)
        stream.tail = stream.messages.add_batch(messages, counts) if counts else stream.messages.add(messages)
        stream.last_write_at = at
        journal = bucket.journal
        if counts and step:
            _add_frames(journal, index, stream, offset, record, messages, producer, counts)
            messages = ()
        for payload in messages:
            journal.add(index, APPEND, stream, offset, record, payload, producer)
            offset += len(payload)
            record += step
    if producer is not None:
        if stream.producers is None:
            stream.producers = {}
        stream.producers[producer.id] = ProducerState(
            producer.epoch, producer.seq, stream.tail, stream.next_record
        )
    if command.stream_seq is not None:
        stream.stream_seq = command.stream_seq
    if stream.ttl_seconds is not None:
        stream.renew(at)


def _add_frames(
    journal: Journal,
    index: int,
    stream: Stream,
    offset: int,
    record: int,
    messages: Sequence[Payload],
    producer: Producer | None,
    counts: tuple[int, ...],
) -> None:
    """Add the rows of a JSON batch. The first row of every append after the first one marks its beginning."""
    number = 0
    for frame, count in enumerate(counts):
        for first in range(count):
            event = b'{"frame":%d}' % frame if frame and not first else None
            payload = messages[number]
            journal.add(index, APPEND, stream, offset, record + number, payload, producer, event)
            offset += len(payload)
            number += 1
