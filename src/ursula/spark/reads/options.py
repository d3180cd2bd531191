"""The options of a read. They have the names of Spark's Kafka source where it has such an option."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..options import OFFSET_DIGITS, OptionError, S3Options, parse_flag, parse_seconds, take_known

EARLIEST = "earliest"
LATEST = "latest"
RETRY_SECONDS = 120.0
VIEW = "__view"
"""Internal: the view of a native read, so that its hot rows are read from the same view."""

_SELECTIONS = ("streams", "streamPrefix", "streamGlob")
_BATCH_ONLY = ("endingOffsets", "endingTimestamp")
_STREAM_ONLY = ("maxBytesPerTrigger", "maxMessagesPerTrigger", "failOnDataLoss")
OPTIONS = (
    "endpoint",
    "auth",
    "path",
    "bucket",
    *_SELECTIONS,
    "startingOffsets",
    "startingTimestamp",
    *_BATCH_ONLY,
    *_STREAM_ONLY,
    "includeEvents",
    "includeProducer",
    "retryTimeout",
    "s3Endpoint",
    "s3Region",
    "s3AccessKeyId",
    "s3SecretAccessKey",
    "s3SessionToken",
)


@dataclass(frozen=True)
class ReadOptions:
    """Which bucket to read, which of its rows, and from where."""

    bucket: str
    endpoint: str | None
    path: str | None
    streams: tuple[str, ...] | None = None
    stream_prefix: str | None = None
    stream_glob: str | None = None
    after: int | None = None
    until: int | None = None
    starting_ms: int | None = None
    ending_ms: int | None = None
    include_events: bool = False
    include_producer: bool = False
    retry_seconds: float = RETRY_SECONDS
    s3: S3Options = field(default_factory=S3Options)
    view: str | None = None
    auth: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class StreamOptions:
    """How to follow a bucket. `from_latest`: begin at the end of the bucket as of the start of the query."""

    read: ReadOptions
    from_latest: bool
    bytes_max: int | None
    messages_max: int | None
    fail_on_data_loss: bool


def parse_read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a batch read; OptionError says which one is wrong."""
    options = take_known(given, OPTIONS, VIEW)
    for name in _STREAM_ONLY:
        if name in options:
            raise OptionError(f"{name} is for readStream: leave it out of a batch read")
    return replace(
        _shared(options),
        after=_edge(options, "startingOffsets", EARLIEST),
        until=_edge(options, "endingOffsets", LATEST),
        ending_ms=_milliseconds(options, "endingTimestamp"),
    )


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """The options of a streaming read; OptionError says which one is wrong."""
    options = take_known(given, OPTIONS, VIEW)
    for name in _BATCH_ONLY:
        if name in options:
            raise OptionError(f"{name} is for a batch read: a stream has no end, so omit it from readStream")
    options.setdefault("startingOffsets", EARLIEST if "startingTimestamp" in options else LATEST)
    from_latest = options["startingOffsets"] == LATEST
    after = None if from_latest else _edge(options, "startingOffsets", EARLIEST, f"{EARLIEST}, {LATEST}")
    return StreamOptions(
        replace(_shared(options), after=after),
        from_latest,
        _count(options, "maxBytesPerTrigger"),
        _count(options, "maxMessagesPerTrigger"),
        parse_flag(options, "failOnDataLoss", True),
    )


def parse_shared_options(given: Mapping[str, str]) -> ReadOptions:
    """The options that batch and streaming reads share: all except where they begin and end."""
    return _shared(take_known(given, OPTIONS, VIEW))


def _shared(options: Mapping[str, str]) -> ReadOptions:
    bucket, endpoint, path = (options.get(name) for name in ("bucket", "endpoint", "path"))
    if not bucket:
        raise OptionError("the option bucket is needed: the name of the bucket to read")
    if not endpoint and not path:
        raise OptionError("one of the options endpoint (a server) and path (the root of its store) is needed")
    chosen = [name for name in _SELECTIONS if name in options]
    if len(chosen) > 1:
        raise OptionError(f"only one of {' and '.join(chosen)} can be given")
    return ReadOptions(
        bucket=bucket,
        endpoint=None if not endpoint else endpoint.rstrip("/"),
        path=path or None,
        streams=_stream_ids(options.get("streams")),
        stream_prefix=options.get("streamPrefix"),
        stream_glob=options.get("streamGlob"),
        starting_ms=_milliseconds(options, "startingTimestamp"),
        include_events=parse_flag(options, "includeEvents"),
        include_producer=parse_flag(options, "includeProducer"),
        retry_seconds=parse_seconds(options, "retryTimeout", RETRY_SECONDS),
        s3=S3Options(
            endpoint=options.get("s3Endpoint"),
            region=options.get("s3Region"),
            access_key_id=options.get("s3AccessKeyId"),
            secret_access_key=options.get("s3SecretAccessKey"),
            session_token=options.get("s3SessionToken"),
        ),
        view=options.get(VIEW),
        auth=options.get("auth"),
    )


def _stream_ids(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise OptionError(f'streams must be a JSON array of stream ids such as ["a","b"], not {text!r}')
    return tuple(sorted(set(names)))


def _edge(options: Mapping[str, str], name: str, default: str, words: str | None = None) -> int | None:
    """A position; None for the default word. `words` lists all words that are accepted."""
    text = options.get(name, default)
    if text == default:
        return None
    if text.isascii() and text.isdigit() and len(text) <= OFFSET_DIGITS:
        return int(text)
    wanted = f"{words or default} or a position of up to {OFFSET_DIGITS} digits"
    raise OptionError(f"{name} must be {wanted}, not {text!r}")


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text)):
        raise OptionError(f"{name} must be a whole number, at least 1, not {text!r}")
    return int(text)


def _milliseconds(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise OptionError(f"{name} must be a time in milliseconds since 1970, not {text!r}")
    return int(text)
