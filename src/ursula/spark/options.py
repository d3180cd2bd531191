"""The options of a read, by the names that Kafka's source has where it has one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

EARLIEST = "earliest"
LATEST = "latest"
OFFSET_DIGITS = 20
SNAPSHOT = "__snapshot"
"""Not for users: what a native read took before, so that the rest of it is read and nothing newer."""

_SELECTIONS = ("streams", "streamPrefix", "streamGlob")
_OF_BATCHES = ("endingOffsets", "endingTimestamp")
_OF_STREAMS = ("maxBytesPerTrigger", "maxMessagesPerTrigger", "failOnDataLoss")
OPTIONS = (
    "endpoint",
    "path",
    "bucket",
    *_SELECTIONS,
    "startingOffsets",
    "startingTimestamp",
    *_OF_BATCHES,
    *_OF_STREAMS,
    "includeEvents",
    "includeProducer",
    "retryTimeout",
    "s3Endpoint",
    "s3Region",
    "s3AccessKeyId",
    "s3SecretAccessKey",
    "s3SessionToken",
)


class OptionError(ValueError):
    """An option is missing, or has no meaning; the text says what to write."""


@dataclass(frozen=True)
class S3Options:
    """How to reach the store, if it is in S3; what is not given is found as AWS's own tools do."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ReadOptions:
    """What is to be read of which bucket, and from where."""

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
    retry_seconds: float = 120.0
    s3: S3Options = S3Options()
    snapshot: str | None = None


@dataclass(frozen=True)
class StreamOptions:
    """How a bucket is followed. `from_latest`: from where it ends when the query begins."""

    read: ReadOptions
    from_latest: bool
    bytes_max: int | None
    messages_max: int | None
    fail_on_data_loss: bool


def parse_read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a batch read; OptionError says which one is wrong."""
    options = take_known(given, OPTIONS)
    for name in _OF_STREAMS:
        if name in options:
            raise OptionError(f"{name} is for readStream: leave it out of a batch read")
    return replace(
        _shared(options),
        after=_edge(options, "startingOffsets", EARLIEST),
        until=_edge(options, "endingOffsets", LATEST),
        ending_ms=_number(options, "endingTimestamp"),
    )


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """The options of a read that follows a bucket; OptionError says which one is wrong."""
    options = take_known(given, OPTIONS)
    for name in _OF_BATCHES:
        if name in options:
            raise OptionError(f"{name} is for a batch read: a stream has no end, leave it out of readStream")
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
    """What is to be read, whether once or for ever: without where it begins and ends."""
    return _shared(take_known(given, OPTIONS))


def _shared(options: Mapping[str, str]) -> ReadOptions:
    bucket, endpoint, path = (options.get(name) for name in ("bucket", "endpoint", "path"))
    if not bucket:
        raise OptionError("the option bucket is needed: the name of the bucket that is read")
    if not endpoint and not path:
        raise OptionError("one of the options endpoint (a server) and path (the root of its store) is needed")
    chosen = [name for name in _SELECTIONS if name in options]
    if len(chosen) > 1:
        raise OptionError(f"only one of {' and '.join(chosen)} can be given")
    return ReadOptions(
        bucket,
        None if not endpoint else endpoint.rstrip("/"),
        path or None,
        _names(options.get("streams")),
        options.get("streamPrefix"),
        options.get("streamGlob"),
        starting_ms=_number(options, "startingTimestamp"),
        include_events=parse_flag(options, "includeEvents"),
        include_producer=parse_flag(options, "includeProducer"),
        retry_seconds=parse_seconds(options, "retryTimeout", 120.0),
        s3=S3Options(
            options.get("s3Endpoint"),
            options.get("s3Region"),
            options.get("s3AccessKeyId"),
            options.get("s3SecretAccessKey"),
            options.get("s3SessionToken"),
        ),
        snapshot=options.get(SNAPSHOT),
    )


def take_known(given: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """The options by their names as they are written here; OptionError if there is one of another name."""
    known = {name.lower(): name for name in names}
    options: dict[str, str] = {}
    for given_name, text in given.items():
        name = given_name if given_name == SNAPSHOT else known.get(given_name.lower())
        if name is None:
            raise OptionError(f"there is no option {given_name}; those there are: {', '.join(names)}")
        options[name] = text
    return options


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise OptionError(f'streams is a JSON array of stream ids, as ["a","b"], not {text!r}')
    return tuple(sorted(set(names)))


def _edge(options: Mapping[str, str], name: str, default: str, words: str | None = None) -> int | None:
    """A position; None for the word that is the default. `words` are all that could have been written."""
    text = options.get(name, default)
    if text == default:
        return None
    if text.isascii() and text.isdigit() and len(text) <= OFFSET_DIGITS:
        return int(text)
    wanted = f"{words or default} or a position of up to {OFFSET_DIGITS} digits"
    raise OptionError(f"{name} is {wanted}, not {text!r}")


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text)):
        raise OptionError(f"{name} is a whole number from 1 on, not {text!r}")
    return int(text)


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise OptionError(f"{name} is a time in milliseconds since 1970, not {text!r}")
    return int(text)


def parse_seconds(options: Mapping[str, str], name: str, default: float) -> float:
    """An option that is a number of seconds."""
    try:
        seconds = float(options.get(name, default))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise OptionError(f"{name} is a number of seconds, not {options[name]!r}")
    return seconds


def parse_flag(options: Mapping[str, str], name: str, default: bool = False) -> bool:
    """An option that is true or false."""
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {options[name]!r}")
    return text == "true"
