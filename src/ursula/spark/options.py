"""The options of a read, by the names that Kafka's source has where it has one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

EARLIEST = "earliest"
LATEST = "latest"
OFFSET_DIGITS = 20
SNAPSHOT = "__snapshot"
"""Not for users: what a native read took before, so that the rest of it is read and nothing newer."""

_SELECTIONS = ("streams", "streamPrefix", "streamGlob")
_KNOWN = {
    name.lower(): name
    for name in (
        "endpoint",
        "path",
        "bucket",
        *_SELECTIONS,
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
        "endingTimestamp",
        "includeEvents",
        "includeProducer",
        "retryTimeout",
        "s3Endpoint",
        "s3Region",
        "s3AccessKeyId",
        "s3SecretAccessKey",
        "s3SessionToken",
    )
}


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


def parse_read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a batch read; OptionError says which one is wrong."""
    options = _known(given)
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
        _edge(options, "startingOffsets", EARLIEST),
        _edge(options, "endingOffsets", LATEST),
        _number(options, "startingTimestamp"),
        _number(options, "endingTimestamp"),
        _flag(options, "includeEvents"),
        _flag(options, "includeProducer"),
        _seconds(options, "retryTimeout", 120.0),
        S3Options(
            options.get("s3Endpoint"),
            options.get("s3Region"),
            options.get("s3AccessKeyId"),
            options.get("s3SecretAccessKey"),
            options.get("s3SessionToken"),
        ),
        options.get(SNAPSHOT),
    )


def _known(given: Mapping[str, str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, text in given.items():
        known = name if name == SNAPSHOT else _KNOWN.get(name.lower())
        if known is None:
            raise OptionError(f"there is no option {name}; those there are: {', '.join(_KNOWN.values())}")
        options[known] = text
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


def _edge(options: Mapping[str, str], name: str, default: str) -> int | None:
    """A position; None for the word that is the default."""
    text = options.get(name, default)
    if text == default:
        return None
    if text.isascii() and text.isdigit() and len(text) <= OFFSET_DIGITS:
        return int(text)
    raise OptionError(f"{name} is {default} or a position of up to {OFFSET_DIGITS} digits, not {text!r}")


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise OptionError(f"{name} is a time in milliseconds since 1970, not {text!r}")
    return int(text)


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    try:
        seconds = float(options.get(name, default))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise OptionError(f"{name} is a number of seconds, not {options[name]!r}")
    return seconds


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {options[name]!r}")
    return text == "true"
