"""What can go wrong, told apart by the one question that matters: was it written?

`Refused`: no, and the same request will never be. `Retryable`: certainly not, try again. `OutcomeUnknown`:
perhaps; only a request that may be repeated, or one of a producer, can be tried again.
"""

import json
from collections.abc import Mapping
from typing import Any

import httpx


class StreamError(Exception):
    """Something that the server refused or that did not reach it, with the fields of the JSON error.

    `path` is the path, or the URL, of the stream or bucket that it is about.
    """

    path: str | None = None

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
        self.maybe_written = False

    def __str__(self) -> str:
        text = f"{self.message} ({self.code})"
        return text if self.path is None else f"{self.path}: {text}"


class Refused(StreamError):
    """The server said no: nothing was changed, and the same request will not work."""


class NotFound(Refused):
    """No such bucket, stream or snapshot."""


class Gone(Refused):
    """It was there: a deleted stream that forks still need, or data that was trimmed."""


class Closed(Refused):
    """The stream is closed: nothing can be appended any more."""


class PreconditionFailed(Refused):
    """The stream is not, or not any more, what the request demanded it to be."""


class Fenced(Refused):
    """Another instance of this producer has taken over; this one must not go on.

    `maybe_written` tells that the last batch may have been stored before that.
    """


class Retryable(StreamError):
    """Certainly not written, and worth another try; `retry_after` is the server's advice in seconds."""


class OutcomeUnknown(StreamError):
    """It may or may not have been written."""

    def __init__(
        self,
        code: str,
        message: str,
        status: int | None = None,
        data: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(code, message, status, data, retry_after)
        self.maybe_written = True


class InvalidAnswer(StreamError):
    """The answer makes no sense: it was damaged on its way, or no durable-streams server sent it."""

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
"""The one status of 500 and more that promises that nothing was done."""

NUMBER_DIGITS_MAX = 20
TEXT_CHARACTERS_MAX = 500
"""How much of a foreign error page is quoted."""

_BY_CODE: dict[str, type[Refused]] = {"stream_closed": Closed, "producer_epoch_stale": Fenced}
_BY_STATUS: dict[int, type[Refused]] = {404: NotFound, 410: Gone, 412: PreconditionFailed}
_NAMES = {404: "not_found", 410: "gone", 412: "precondition_failed"}
"""Codes for answers without a JSON error: those of other servers, and those to HEAD."""

_NUMBERS = {
    "producer-epoch": "current_epoch",
    "producer-expected-seq": "expected_seq",
    "producer-received-seq": "received_seq",
}
"""Headers that belong into the data of an error, under the names that our JSON errors use."""


def error_of_answer(status: int, headers: httpx.Headers, body: bytes) -> StreamError:
    """The error that an answer of 300 and more means.

    Its class follows from the status and the headers of the protocol, which every server sends; our own
    codes only tell apart what these leave open.
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
        # A stranger's 503 says nothing about the request: a proxy may have passed it on.
        kind = OutcomeUnknown
    else:
        kind = _BY_CODE.get(implied) or _BY_CODE.get(code) or _BY_STATUS.get(status, Refused)
    retry_after = whole_number(headers.get("retry-after"))
    return kind(code, message, status, data, None if retry_after is None else float(retry_after))


def _implied_code(status: int, headers: httpx.Headers) -> str:
    """What the protocol says without a body."""
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
    return f"the server answered {status}: {text}" if text else f"the server answered {status}"


def named_error(fields: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Code, message and data of the object under `error`."""
    data = {name: value for name, value in fields.items() if name not in ("code", "message")}
    return str(fields["code"]), str(fields["message"]), data


def error_of_transport(error: httpx.RequestError) -> StreamError:
    """What a connection that failed means for the request."""
    text = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError):
        return Retryable("unreachable", f"cannot reach the server: {text}")
    if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol | httpx.TooManyRedirects):
        return Refused("invalid_request", f"this cannot be sent: {text}")
    if isinstance(error, httpx.TimeoutException):
        return OutcomeUnknown("timed_out", f"no answer in time: {text}")
    return OutcomeUnknown("connection_lost", f"the connection was lost: {text}")


def whole_number(header: str | None) -> int | None:
    """A header that is a whole number; None if it is missing, or anything else."""
    if header is None or not header.isascii() or not header.isdigit() or len(header) > NUMBER_DIGITS_MAX:
        return None
    return int(header)
