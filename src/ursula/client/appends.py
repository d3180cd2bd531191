"""Append to a stream, without a producer: what may have been written is never sent twice."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import InvalidAnswer, Refused, StreamError, named_error
from .framing import frames
from .json_text import decode
from .results import Appended
from .retry import perform
from .steps import Answer, Request, Steps
from .target import StreamTarget, content_type_of

CONFLICT = 409


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of one message of a batch: where it ends, or why it was refused."""

    status: int
    next_offset: str | None
    record_start: int | None
    record_next: int | None
    error: StreamError | None

    @classmethod
    def of(cls, fields: Mapping[str, Any], path: str) -> "BatchResult":
        """Read from one element of the answer about the stream at a path."""
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
    """Append bytes or text as they are; with `close`, nothing comes after them.

    On a JSON stream this is JSON text, of which an array is several messages. If it is not known whether
    the append was written, OutcomeUnknown is raised: look, or use a producer.
    """
    given = {
        "content-type": (yield from content_type_of(target)),
        "stream-closed": "true" if close else None,
        "if-match": if_match,
        "stream-seq": stream_seq,
        "stream-incarnation": incarnation,
        "stream-record-match": None if record_match is None else str(record_match),
    }
    headers = {name: value for name, value in given.items() if value is not None}
    return Appended.of((yield from post(target, target.address.path, headers, as_bytes(data))))


def append_json(
    target: StreamTarget,
    *values: Any,
    close: bool = False,
    if_match: str | None = None,
    stream_seq: str | None = None,
    incarnation: str | None = None,
    record_match: int | None = None,
) -> Steps[Appended]:
    """Append each value as one message of a JSON stream, all or none of them."""
    return (
        yield from append(
            target,
            json_array([encode_json(value) for value in values]),
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
    """Append several messages in one request, each on its own: one may be refused and the next stored."""
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
    """The answer to a write that must not be repeated when its fate is unknown."""
    try:
        return (yield from perform(Request("POST", path, {}, headers, body), target.patience))
    except Refused as refusal:
        if refusal.status == CONFLICT:
            target.content_type = None  # it may be another stream by now: ask again next time
        raise


def as_bytes(data: bytes | str) -> bytes:
    """Text as UTF-8."""
    return data.encode() if isinstance(data, str) else data


def encode_json(value: Any) -> bytes:
    """A value as compact JSON text."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def json_array(texts: Sequence[bytes]) -> bytes:
    """JSON texts as one array, which the server takes as so many messages."""
    return b"[" + b",".join(texts) + b"]"
