"""The client's errors, classified by the one question that matters: was it written?

`Refused`: no, and the same request will always fail. `Retryable`: certainly not, so try again.
`OutcomeUnknown`: maybe, so only an idempotent request, or one of a producer, can be retried.
"""

import json
from collections.abc import Mapping
from typing import Any

import httpx


class StreamError(Exception):
    """A request that failed: the server refused it, or it did not get through. Has the JSON error's fields.

    `path` is the path or URL of the stream or bucket that the request was for.
    """

    path: str | None = None
    maybe_written = False

    def __init__(
        self,
        code: str,
        message: str,
        status: int | None = None,
        data: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.data = dict(data or {})
        self.retry_after = retry_after

    def __str__(self) -> str:
        text = f"{self.message} ({self.code})"
        return text if self.path is None else f"{self.path}: {text}"


class Refused(StreamError):
    """The server refused the request: nothing was changed, and the same request will fail again."""


class NotFound(Refused):
    """There is no such bucket, stream or snapshot."""


class Gone(Refused):
    """It no longer exists: a deleted stream that forks still need, or data that was trimmed."""


class Closed(Refused):
    """The stream is closed: nothing more can be appended."""


class PreconditionFailed(Refused):
    """The stream is not, or is no longer, in the state that the request requires."""


class Fenced(Refused):
    """Another instance of this producer has taken over, so this one must stop.

    `maybe_written` is true if the last batch may have been stored before that.
    """


class Retryable(StreamError):
    """Certainly not written, and worth a retry; `retry_after` is the server's advice, in seconds."""


class OutcomeUnknown(StreamError):
    """It may or may not have been written."""

    maybe_written = True


class InvalidAnswer(StreamError):
    """The response is malformed: it was damaged in transit, or did not come from a durable-streams server."""

    def __init__(self, message: str) -> None:
        super().__init__("invalid_answer", message)


RETRYABLE_CODES = {
    "unavailable",
    "store_unavailable",
    "write_backpressure",
    "rate_limited",
    "body_timeout",
    "body_incomplete",
}
FINAL_CODES = {"object_damaged"}
RETRYABLE_STATUSES = {408, 425, 429}
NOT_IMPLEMENTED = 501
"""The only status of 500 or more that guarantees that nothing was done."""

NUMBER_DIGITS_MAX = 20
TEXT_CHARACTERS_MAX = 500
"""How many characters of an error page that is not JSON are quoted."""

_BY_CODE: dict[str, type[Refused]] = {"stream_closed": Closed, "producer_epoch_stale": Fenced}
_BY_STATUS: dict[int, type[Refused]] = {404: NotFound, 410: Gone, 412: PreconditionFailed}
_NAMES = {404: "not_found", 410: "gone", 412: "precondition_failed"}
"""Codes for responses without a JSON error: those of other servers, and those to HEAD requests."""

_NUMBERS = {
    "producer-epoch": "current_epoch",
    "producer-expected-seq": "expected_seq",
    "producer-received-seq": "received_seq",
}
"""Headers that become part of an error's data, under the names that our JSON errors use."""


def error_of_answer(status: int, headers: httpx.Headers, body: bytes) -> StreamError:
    """The error that a response with a status of 300 or more reports.

    Its class follows from the status and the protocol's headers, which every server sends. Our own codes
    decide only where those leave it open.
    """
    implied = _implied_code(status, headers)
    code, message, data = _json_error(body) or (implied, _quoted(status, body), {})
    for header, name in _NUMBERS.items():
        if (number := whole_number(headers.get(header))) is not None:
            data.setdefault(name, number)
    kind: type[StreamError]
    if code in RETRYABLE_CODES or status in RETRYABLE_STATUSES:
        kind = Retryable
    elif status >= 500 and status != NOT_IMPLEMENTED and code not in FINAL_CODES:
        # A 503 without our code may come from a proxy that had already forwarded the request.
        kind = OutcomeUnknown
    else:
        kind = _BY_CODE.get(implied) or _BY_CODE.get(code) or _BY_STATUS.get(status, Refused)
    retry_after = whole_number(headers.get("retry-after"))
    return kind(code, message, status, data, None if retry_after is None else float(retry_after))


def _implied_code(status: int, headers: httpx.Headers) -> str:
    """The code that status and headers imply, without the body."""
    if status == 403 and "producer-epoch" in headers:
        return "producer_epoch_stale"
    if status == 409 and headers.get("stream-closed", "").lower() == "true":
        return "stream_closed"
    if status == 409 and "producer-expected-seq" in headers:
        return "producer_seq_conflict"
    return _NAMES.get(status, f"http_{status}")


def _json_error(body: bytes) -> tuple[str, str, dict[str, Any]] | None:
    try:
        fields = json.loads(body)["error"]
        return named_error(fields) if isinstance(fields, dict) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _quoted(status: int, body: bytes) -> str:
    text = " ".join(body.decode(errors="replace").split())
    if len(text) > TEXT_CHARACTERS_MAX:
        text = text[:TEXT_CHARACTERS_MAX] + "..."
    return f"the server responded with {status}: {text}" if text else f"the server responded with {status}"


def named_error(fields: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Code, message and other data of the object under `error`."""
    data = {name: value for name, value in fields.items() if name not in ("code", "message")}
    return str(fields["code"]), str(fields["message"]), data


def error_of_transport(error: httpx.RequestError) -> StreamError:
    """The error for a request whose connection failed."""
    text = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError):
        return Retryable("unreachable", f"cannot reach the server: {text}")
    if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol | httpx.TooManyRedirects):
        return Refused("invalid_request", f"the request cannot be sent: {text}")
    if isinstance(error, httpx.TimeoutException):
        return OutcomeUnknown("timed_out", f"no response in time: {text}")
    return OutcomeUnknown("connection_lost", f"the connection was lost: {text}")


def whole_number(header: str | None) -> int | None:
    """A header as a whole number; None if it is missing or is not one."""
    if header is None or not header.isascii() or not header.isdigit() or len(header) > NUMBER_DIGITS_MAX:
        return None
    return int(header)
