"""Refusals that several decisions share."""

from ..outcomes import ErrorCode, Refused
from ..stream.stream import Stream


def refused(
    code: ErrorCode,
    message: str,
    stream: Stream | None,
    *,
    epoch: int | None = None,
    expected_seq: int | None = None,
    received_seq: int | None = None,
) -> Refused:
    """A refusal that reports the state of the stream, if there is one."""
    refusal = Refused(code, message, epoch=epoch, expected_seq=expected_seq, received_seq=received_seq)
    if stream is not None:
        refusal.incarnation, refusal.tail, refusal.closed = stream.incarnation, stream.tail, stream.closed
    return refusal


def bucket_not_found(bucket: str) -> Refused:
    """There is no such bucket."""
    return Refused("bucket_not_found", f"there is no bucket {bucket!r}")


def stream_not_found(name: str, stream: Stream | None = None) -> Refused:
    """There is no such stream, or it is hidden because forks still need it."""
    if stream is not None and stream.hidden:
        return Refused("stream_gone", f"the stream {name!r} was deleted", incarnation=stream.incarnation)
    return Refused("stream_not_found", f"there is no stream {name!r}")


def precondition_failed(stream: Stream | None) -> Refused:
    """The stream, if there is one, has changed since the writer saw it."""
    return refused("precondition_failed", "the stream is not in the state named by If-Match", stream)


def incarnation_mismatch(stream: Stream | None) -> Refused:
    """The name now belongs to another incarnation, or to none."""
    return refused("incarnation_mismatch", "this incarnation of the stream does not exist any more", stream)


def trimmed_off(stream: Stream) -> Refused:
    """The offset is before the earliest one that is kept."""
    refusal = refused("offset_trimmed", f"the stream begins at {stream.earliest}", stream)
    refusal.earliest = stream.earliest
    return refusal


def inside_json_message(stream: Stream) -> Refused:
    """A read of a JSON stream must begin where a message does."""
    message = "the offset is inside a JSON message"
    return Refused("invalid_offset", message, stream.incarnation, stream.tail)


def stored_too_long_ago() -> Refused:
    """The command names an object that was stored so long ago that it may have been collected."""
    return Refused("unavailable", "it took too long: the object stored for it may have been deleted already")
