"""The options of a write."""

from collections.abc import Mapping
from dataclasses import dataclass

from .options import OptionError, parse_flag, parse_seconds, take_known

FAIL, DROP = "fail", "drop"
VERSION_MAX = 2**63 - 1

_KNOWN = (
    "endpoint",
    "bucket",
    "createStreams",
    "contentType",
    "orderBy",
    "onRefused",
    "txnAppId",
    "txnVersion",
    "retryTimeout",
    "checkpointLocation",  # Spark's own, which it hands over too
)


@dataclass(frozen=True)
class WriteOptions:
    """Where rows go, and what happens to those that a stream does not take."""

    endpoint: str
    bucket: str
    create_streams: bool = True
    content_type: str | None = None
    order_by: tuple[str, ...] = ()
    on_refused: str = FAIL
    app: str | None = None
    version: int | None = None
    retry_seconds: float = 120.0


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write; OptionError says which one is wrong."""
    options = take_known(given, _KNOWN)
    endpoint, bucket = options.get("endpoint"), options.get("bucket")
    if not endpoint:
        raise OptionError("the option endpoint is needed: the address of the server that is written to")
    if not bucket:
        raise OptionError("the option bucket is needed: the name of the bucket that is written to")
    on_refused = options.get("onRefused", FAIL)
    if on_refused not in (FAIL, DROP):
        raise OptionError(f"onRefused is {FAIL} or {DROP}, not {on_refused!r}")
    app, version = options.get("txnAppId"), _version(options.get("txnVersion"))
    if (app is None) != (version is None):
        raise OptionError("txnAppId and txnVersion go together: whose write it is, and its number")
    return WriteOptions(
        endpoint.rstrip("/"),
        bucket,
        parse_flag(options, "createStreams", True),
        options.get("contentType"),
        tuple(name.strip() for name in options.get("orderBy", "").split(",") if name.strip()),
        on_refused,
        app,
        version,
        parse_seconds(options, "retryTimeout", 120.0),
    )


def _version(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) > VERSION_MAX:
        raise OptionError(f"txnVersion is a whole number from 0 to 2^63 - 1, not {text!r}")
    return int(text)
