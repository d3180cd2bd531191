"""The one decision for all kinds of append: plain, by a producer, closing, or the first body of a stream.

The order of the checks is part of the interface: a later refusal never hides an earlier one.
"""

from typing import TYPE_CHECKING

from ..commands import Append, Create, IfMatch, Producer
from ..outcomes import Appended, Refused
from ..stream.stream import ProducerState, Stream
from .refusals import (
    bucket_not_found,
    incarnation_mismatch,
    precondition_failed,
    refused,
    stored_too_long_ago,
    stream_not_found,
)

if TYPE_CHECKING:
    from ..state import State


def decide_append(
    state: "State", command: Append, json_problem: str | None = None
) -> Stream | Appended | Refused:
    """The stream to append to, or the outcome if nothing is to be appended.

    `json_problem` says why the body could not be split into messages. Such a body is always refused, but
    only after every check that precedes this one.
    """
    bucket = state.buckets.get(command.bucket)
    if bucket is None:
        return bucket_not_found(command.bucket)
    stream = bucket.streams.get(command.stream) or bucket.find(command.stream)
    if stream is None or stream.hidden:
        return stream_not_found(command.stream, stream)
    if command.incarnation is not None and command.incarnation != stream.incarnation:
        return incarnation_mismatch(stream)
    producer = command.producer
    has_body = bool(command.messages) or json_problem is not None or command.body is not None
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
        return refused("precondition_failed", "the next record is not the one the request expects", stream)
    if producer is not None:
        problem = check_producer(producer, known, stream)
        if problem is not None:
            return problem
    seq = command.stream_seq
    if seq is not None and stream.stream_seq is not None and seq.encode() <= stream.stream_seq.encode():
        message = f"Stream-Seq {seq!r} is out of sequence: it must be greater than {stream.stream_seq!r}"
        return refused("stream_seq_conflict", message, stream)
    if json_problem is not None:
        return refused("invalid_json", json_problem, stream)
    if command.body is not None and state.may_be_collected(command.body.made_at):
        return stored_too_long_ago()
    return stream


def check_producer(producer: Producer, known: ProducerState | None, stream: Stream | None) -> Refused | None:
    """Why this request of a producer, which is not a duplicate, is refused; None if it is accepted."""
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


def message_count(command: Append | Create) -> int:
    """How many messages a command has."""
    return len(command.messages) if command.body is None else len(command.body.sizes)


def matches(stream: Stream, condition: IfMatch) -> bool:
    """Whether the stream is in a state that the condition allows."""
    return condition.any_version or any(
        version.incarnation == stream.incarnation
        and version.tail == stream.tail
        and version.closed == stream.closed
        for version in condition.versions
    )


def _on_closed(stream: Stream, command: Append, close_only: bool) -> Appended | Refused:
    producer = command.producer
    if producer is None:
        if close_only:
            return _again(stream, command, stream.tail, stream.next_record)
    elif stream.closed_by == (producer.id, producer.epoch, producer.seq):
        epoch, seq = producer.epoch, producer.seq
        return _again(stream, command, stream.tail, stream.next_record, epoch=epoch, seq=seq)
    return refused("stream_closed", "the stream is closed", stream)


def _duplicate(stream: Stream, command: Append, known: ProducerState) -> Appended:
    if command.producer is not None and command.producer.seq == known.seq:
        epoch, seq = known.epoch, known.seq
        return _again(stream, command, known.next_offset, known.next_record, epoch=epoch, seq=seq)
    return Appended(
        incarnation=stream.incarnation,
        tail=stream.tail,
        next_offset=stream.tail,
        closed=stream.closed,
        duplicate=True,
        epoch=known.epoch,
        seq=known.seq,
    )


def _again(
    stream: Stream,
    command: Append,
    next_offset: int,
    next_record: int,
    epoch: int | None = None,
    seq: int | None = None,
) -> Appended:
    """The outcome that the first attempt had, with its records unless they have been trimmed."""
    outcome = Appended(
        incarnation=stream.incarnation,
        tail=stream.tail,
        next_offset=next_offset,
        closed=stream.closed,
        duplicate=True,
        epoch=epoch,
        seq=seq,
    )
    if stream.is_json and next_offset >= stream.earliest:
        outcome.record_next = next_record
        outcome.record_start = next_record - message_count(command)
    return outcome
