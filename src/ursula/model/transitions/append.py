"""The one decision for all kinds of append: plain, by a producer, closing, or the first body of a stream.

`decide_append` looks and never changes anything, so it serves both as the look-ahead before a
command is logged and as the first half of applying it. What is refused, or already done, is an
outcome; what is to be done is the stream itself.

The order of the checks is part of the interface: a later refusal never hides an earlier one.
"""

from collections.abc import Mapping, Sequence

from ..bucket import Bucket
from ..commands import Append, Create, IfMatch, Producer
from ..journal import NO_RECORD, Journal, Kind
from ..outcomes import Appended, Refused
from ..stream.blob_slice import parts_of
from ..stream.messages import Payload
from ..stream.stream import ProducerState, Stream
from ..text.media_type import JSON

APPEND = int(Kind.APPEND)


def decide_append(
    buckets: Mapping[str, Bucket], command: Append, unsplit: str | None = None
) -> Stream | Appended | Refused:
    """The stream to append to, or what the request came to instead.

    `unsplit` says why the body could not be split into messages. Such a body is always refused, but
    only after all that comes before it in the order of checks.
    """
    bucket = buckets.get(command.bucket)
    if bucket is None:
        return bucket_not_found(command.bucket)
    stream = bucket.streams.get(command.stream) or bucket.find(command.stream)
    if stream is None or stream.gone:
        return stream_not_found(command.stream, stream)
    if command.incarnation is not None and command.incarnation != stream.incarnation:
        return incarnation_mismatch(stream)
    producer = command.producer
    has_body = bool(command.messages) or unsplit is not None or command.body is not None
    if stream.closed:
        return _on_closed(stream, command, close_only=command.close and not has_body)
    if has_body and command.media_type != stream.media_type:
        return refused("content_type_mismatch", f"the stream has content type {stream.content_type}", stream)
    known = None
    if producer is not None:
        known = stream.producers.get(producer.id) if stream.producers else None
        if known is not None and producer.epoch == known.epoch and producer.seq <= known.seq:
            return _duplicate(stream, command, known)
    if command.if_match is not None and not matches(stream, command.if_match):
        return precondition_failed(stream)
    if command.record_match is not None and not (
        stream.is_json and command.record_match == stream.next_record
    ):
        return refused("precondition_failed", "the next record is not the one named", stream)
    if producer is not None:
        problem = check_producer(producer, known, stream)
        if problem is not None:
            return problem
    seq = command.stream_seq
    if seq is not None and stream.stream_seq is not None and seq.encode() <= stream.stream_seq.encode():
        message = f"Stream-Seq {seq!r} is out of sequence: it must be greater than {stream.stream_seq!r}"
        return refused("stream_seq_conflict", message, stream)
    if unsplit is not None:
        return refused("invalid_json", unsplit, stream)
    return stream


def check_producer(producer: Producer, known: ProducerState | None, stream: Stream | None) -> Refused | None:
    """Why this request of a producer, which is no duplicate, cannot be taken; None if it can."""
    if known is None:
        expected = 0
    elif producer.epoch < known.epoch:
        return refused(
            "producer_epoch_stale", f"the producer is in epoch {known.epoch}", stream, epoch=known.epoch
        )
    elif producer.epoch > known.epoch:
        if producer.seq != 0:
            return refused("producer_headers_invalid", "a new epoch must begin with seq 0", stream)
        expected = 0
    else:
        expected = known.seq + 1
    if producer.seq == expected:
        return None
    return refused(
        "producer_seq_conflict",
        f"expected seq {expected}, received {producer.seq}",
        stream,
        expected_seq=expected,
        received_seq=producer.seq,
    )


def write(
    bucket: Bucket,
    stream: Stream,
    command: Append | Create,
    index: int,
    at: int,
    counts: tuple[int, ...] = (),
) -> None:
    """Do what was decided: messages, producer, `Stream-Seq`, window and journal together."""
    messages: Sequence[Payload] = command.messages
    producer = command.producer
    if command.body is not None:
        messages = parts_of(command.body)
        stream.messages.has_parts = True
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
    """The rows of a JSON batch: the first of each append after the first says that it is one."""
    number = 0
    for frame, count in enumerate(counts):
        for first in range(count):
            event = b'{"frame":%d}' % frame if frame and not first else None
            payload = messages[number]
            journal.add(index, APPEND, stream, offset, record + number, payload, producer, event)
            offset += len(payload)
            number += 1


def message_count(command: Append | Create) -> int:
    """How many messages it brings."""
    return len(command.messages) if command.body is None else len(command.body.sizes)


def matches(stream: Stream, condition: IfMatch) -> bool:
    """Whether the stream is in a state that the condition allows."""
    return condition.anything or any(
        version.incarnation == stream.incarnation
        and version.tail == stream.tail
        and version.closed == stream.closed
        for version in condition.versions
    )


def bucket_not_found(bucket: str) -> Refused:
    """There is no such bucket."""
    return Refused("bucket_not_found", f"there is no bucket {bucket!r}")


def stream_not_found(name: str, stream: Stream | None = None) -> Refused:
    """There is no such stream, or it is out of sight because forks still need it."""
    if stream is not None and stream.gone:
        return Refused("stream_gone", f"the stream {name!r} was deleted", incarnation=stream.incarnation)
    return Refused("stream_not_found", f"there is no stream {name!r}")


def precondition_failed(stream: Stream | None) -> Refused:
    """The stream, if there is one, has changed since the writer saw it."""
    return refused("precondition_failed", "the stream is not in the state named by If-Match", stream)


def incarnation_mismatch(stream: Stream | None) -> Refused:
    """The name is now another stream's, or nobody's."""
    return refused("incarnation_mismatch", "there is no such incarnation of the stream now", stream)


def _on_closed(stream: Stream, command: Append, close_only: bool) -> Appended | Refused:
    producer = command.producer
    if producer is None:
        if close_only:
            return _again(stream, command, stream.tail, stream.next_record)
    elif stream.closed_by == (producer.id, producer.epoch, producer.seq):
        return _again(stream, command, stream.tail, stream.next_record, producer.epoch, producer.seq)
    return refused("stream_closed", "the stream is closed", stream)


def _duplicate(stream: Stream, command: Append, known: ProducerState) -> Appended:
    if command.producer is not None and command.producer.seq == known.seq:
        return _again(stream, command, known.next_offset, known.next_record, known.epoch, known.seq)
    return Appended(stream.incarnation, stream.tail, stream.tail, stream.closed, True, known.epoch, known.seq)


def _again(
    stream: Stream,
    command: Append,
    next_offset: int,
    next_record: int,
    epoch: int | None = None,
    seq: int | None = None,
) -> Appended:
    """What the request came to when it was done, at this offset; its ordinals too unless they are trimmed."""
    outcome = Appended(stream.incarnation, stream.tail, next_offset, stream.closed, True, epoch, seq)
    if stream.is_json and next_offset >= stream.earliest:
        outcome.record_next = next_record
        outcome.record_start = next_record - message_count(command)
    return outcome


def refused(
    code: str,
    message: str,
    stream: Stream | None,
    epoch: int | None = None,
    expected_seq: int | None = None,
    received_seq: int | None = None,
) -> Refused:
    """A refusal that tells the state of the stream, if there is one."""
    if stream is None:
        return Refused(code, message, None, None, False, epoch, expected_seq, received_seq)
    return Refused(
        code, message, stream.incarnation, stream.tail, stream.closed, epoch, expected_seq, received_seq
    )
