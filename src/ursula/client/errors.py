"""What can go wrong, told apart by the one question that matters: was it written?

`Refused`: no, and the same request will never be. `Retryable`: certainly not, try again. `OutcomeUnknown`:
perhaps; only a request that may be repeated, or one of a producer, can be tried again.
"""

import json
from collections.abc import Mapping
from typing import Any

import httpx


class StreamError(Exception):
    """Something that the server refused or that did not reach it, with the fields of the JSON error."""

    def __init__(
        self,
        code: str,
        message: str,
        status: int | None = None,
        data: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.status = status
        self.data = dict(data or {})
        self.retry_after = retry_after
        self.maybe_written = False


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

_BY_CODE: dict[str, type[Refused]] = {"stream_closed": Closed, "producer_epoch_stale": Fenced}
_BY_STATUS: dict[int, type[Refused]] = {404: NotFound, 410: Gone, 412: PreconditionFailed}
_NAMES = {404: "not_found", 410: "gone", 412: "precondition_failed"}
"""Codes for answers without a body, as those to HEAD are."""


def error_of_answer(status: int, headers: httpx.Headers, body: bytes) -> StreamError:
    """The error that an answer of 300 and more means."""
    code, message, data = error_fields(status, body)
    if "producer-epoch" in headers:
        data.setdefault("current_epoch", int(headers["producer-epoch"]))
    kind: type[StreamError]
    if code in RETRYABLE_CODES or status in RETRYABLE_STATUSES:
        kind = Retryable
    elif status >= 500 and code not in FINAL_CODES:
        # A stranger's 503 says nothing about the request: a proxy may have passed it on.
        kind = OutcomeUnknown
    else:
        kind = _BY_CODE.get(code) or _BY_STATUS.get(status, Refused)
    return kind(code, message, status, data, _seconds(headers.get("retry-after")))


def error_fields(status: int, body: bytes) -> tuple[str, str, dict[str, Any]]:
    """Code, message and data of a JSON error; what the status says if it is none."""
    try:
        return named_error(json.loads(body)["error"])
    except (ValueError, TypeError, KeyError):
        return _NAMES.get(status, f"http_{status}"), f"the server answered {status}", {}


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


def _seconds(header: str | None) -> float | None:
    return float(header) if header is not None and header.isascii() and header.isdigit() else None
