"""Append to a stream without a producer: an append that may have been written is never sent twice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..connection.retry import perform
from ..connection.steps import Answer, Request, Steps, without_none
from ..errors import InvalidAnswer, Refused, StreamError, named_error
from ..formats.frames import frames
from ..formats.json_text import decode, encode
from ..results import Appended
from ..target import StreamTarget, content_type_of

CONFLICT = 409


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The outcome of one message of a batch: the offset after it, or why it was refused."""

    status: int
    next_offset: str | None
    record_start: int | None
    record_next: int | None
    error: StreamError | None

    @classmethod
    def of(cls, fields: Mapping[str, Any], path: str) -> "BatchResult":
        """Read one element of the response, for the stream at a path."""
        refusal = fields.get("error")
        status = int(fields["status"])
        if refusal is None:
            error = None
        else:
            code, message, data = named_error(refusal)
            error = Refused(code, message, status, data)
            error.path = path
        return cls(
            status=status,
            next_offset=fields.get("stream_next_offset"),
            record_start=fields.get("stream_record_start"),
            record_next=fields.get("stream_record_next"),
            error=error,
        )


def append(
    target: StreamTarget,
    data: bytes | str,
    *,
    close: bool = False,
    if_match: str | None = None,
    stream_seq: str | None = None,
    incarnation: str | None = None,
    record_match: int | None = None,
) -> Steps[Appended]:
    """Append bytes or text as they are; with `close`, also close the stream.

    A JSON stream accepts JSON text; an array is several messages. Raises OutcomeUnknown if the append may
    have been written: read the stream to find out, or use a producer.
    """
    headers = {
        "content-type": (yield from content_type_of(target)),
        "stream-closed": "true" if close else None,
        "if-match": if_match,
        "stream-seq": stream_seq,
        "stream-incarnation": incarnation,
        "stream-record-match": None if record_match is None else str(record_match),
    }
    answer = yield from post(target, target.address.path, without_none(headers), as_bytes(data))
    return Appended.of(answer)


def append_json(
    target: StreamTarget,
    *values: Any,
    close: bool = False,
    if_match: str | None = None,
    stream_seq: str | None = None,
    incarnation: str | None = None,
    record_match: int | None = None,
) -> Steps[Appended]:
    """Append each value as one message of a JSON stream: either all of them or none."""
    return (
        yield from append(
            target,
            json_array([encode(value) for value in values]),
            close=close,
            if_match=if_match,
            stream_seq=stream_seq,
            incarnation=incarnation,
            record_match=record_match,
        )
    )


def append_batch(
    target: StreamTarget, messages: Sequence[bytes | str], *, incarnation: str | None = None
) -> Steps[list[BatchResult]]:
    """Append several messages in one request, each independently: one may be refused and the next stored."""
    headers = {"content-type": (yield from content_type_of(target))}
    if incarnation is not None:
        headers["stream-incarnation"] = incarnation
    path = target.address.part("append-batch")
    answer = yield from post(target, path, headers, frames(map(as_bytes, messages)))
    try:
        return [BatchResult.of(fields, target.path) for fields in decode(answer.body)]
    except InvalidAnswer as error:
        error.maybe_written = True
        raise


def post(target: StreamTarget, path: str, headers: Mapping[str, str], body: bytes) -> Steps[Answer]:
    """The response to a write that must not be retried if its outcome is unknown."""
    try:
        return (yield from perform(Request("POST", path, {}, headers, body), target.patience))
    except Refused as refusal:
        if refusal.status == CONFLICT:
            target.content_type = None  # the stream may have been recreated: ask again next time
        raise


def as_bytes(data: bytes | str) -> bytes:
    """Bytes as they are, and text as UTF-8."""
    return data.encode() if isinstance(data, str) else data


def json_array(texts: Sequence[bytes]) -> bytes:
    """JSON texts as one array; each element is a message."""
    return b"[" + b",".join(texts) + b"]"
