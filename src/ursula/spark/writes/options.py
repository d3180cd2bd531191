"""The options of a write."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..options import OptionError, parse_flag, parse_seconds, take_known

COLUMNS = ("stream", "value", "content_type")
"""The columns that are written; `content_type` may be missing."""

FAIL, DROP = "fail", "drop"
VERSION_MAX = 2**63 - 1

_KNOWN = (
    "endpoint",
    "auth",
    "bucket",
    "createStreams",
    "contentType",
    "orderBy",
    "onRefused",
    "txnAppId",
    "txnVersion",
    "retryTimeout",
    "checkpointLocation",  # Spark's own, which it passes on
)


@dataclass(frozen=True)
class WriteOptions:
    """Where rows go, and what happens to rows that a stream refuses."""

    endpoint: str
    bucket: str
    create_streams: bool = True
    content_type: str | None = None
    order_by: tuple[str, ...] = ()
    on_refused: str = FAIL
    app: str | None = None
    version: int | None = None
    retry_seconds: float = 120.0
    auth: str | None = field(default=None, repr=False)


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write; OptionError says which one is wrong."""
    options = take_known(given, _KNOWN)
    endpoint, bucket = options.get("endpoint"), options.get("bucket")
    if not endpoint:
        raise OptionError("the option endpoint is needed: the address of the server to write to")
    if not bucket:
        raise OptionError("the option bucket is needed: the name of the bucket to write to")
    on_refused = options.get("onRefused", FAIL)
    if on_refused not in (FAIL, DROP):
        raise OptionError(f"onRefused must be {FAIL} or {DROP}, not {on_refused!r}")
    app, version = options.get("txnAppId"), _version(options.get("txnVersion"))
    if (app is None) != (version is None):
        raise OptionError("txnAppId and txnVersion go together: they identify a transaction")
    return WriteOptions(
        endpoint=endpoint.rstrip("/"),
        bucket=bucket,
        create_streams=parse_flag(options, "createStreams", True),
        content_type=options.get("contentType"),
        order_by=tuple(name.strip() for name in options.get("orderBy", "").split(",") if name.strip()),
        on_refused=on_refused,
        app=app,
        version=version,
        retry_seconds=parse_seconds(options, "retryTimeout", 120.0),
        auth=options.get("auth"),
    )


def _version(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) > VERSION_MAX:
        raise OptionError(f"txnVersion must be a whole number from 0 to 2^63 - 1, not {text!r}")
    return int(text)
