"""Which bucket and stream a path names, and which names are allowed."""

import re
from typing import NamedTuple
from urllib.parse import unquote

from ...model.limits import BUCKETED_PATH_BYTES_MAX, FLAT_PATH_BYTES_MAX
from ..errors import Problem

FLAT_PREFIX = "/v1/stream/"
DEFAULT_BUCKET = "_default"
RESERVED_BUCKETS = frozenset(("healthz", "readyz", "metrics", "cluster", "console", "admin", "auth"))
RESERVED_STREAM = "streams"
PARTS: dict[str, bool | None] = {
    "attrs": False,
    "snapshot": None,
    "retention": True,
    "bootstrap": False,
    "append-batch": False,
}
"""The parts of a stream that a path may name, and whether each takes an argument (None: optional)."""

BUCKET_PATTERN = "a bucket name has 4 to 64 characters of a-z, 0-9, '_' and '-'"
_BUCKET = re.compile(r"[a-z0-9_-]{4,64}")


class Target(NamedTuple):
    """What a path names: a stream, or with `part` (and its argument) something that belongs to one.

    A `flat` path creates its bucket on demand.
    """

    bucket: str
    stream: str
    flat: bool
    part: str = ""
    argument: str | None = None


NO_TARGET = Target("", "", False)
"""The target of a path that names neither a bucket nor a stream."""


def parse_stream_path(path: str) -> Target:
    """The stream that a path names."""
    if path.startswith(FLAT_PREFIX):
        return _flat(path[len(FLAT_PREFIX) :])
    bucket, _, name = path[1:].partition("/")
    stream, *rest = name.split("/")
    if bucket in RESERVED_BUCKETS:
        raise Problem("invalid_bucket_id", f"the bucket name {bucket!r} is reserved")
    _check_text(path)
    if not stream or stream == RESERVED_STREAM:
        raise Problem("invalid_stream_id", f"{stream!r} is not a stream id")
    if len(f"{bucket}/{stream}".encode()) > BUCKETED_PATH_BYTES_MAX:
        raise Problem(
            "invalid_stream_id",
            f"bucket and stream id together may have at most {BUCKETED_PATH_BYTES_MAX} bytes",
        )
    return Target(bucket, stream, False, *_part(rest))


def _part(rest: list[str]) -> tuple[str, str | None]:
    """The part of a stream that the rest of a path names, with its argument."""
    if not rest:
        return "", None
    name, *arguments = rest
    if name not in PARTS or len(arguments) > 1 or PARTS[name] not in (None, bool(arguments)):
        raise Problem(
            "invalid_stream_id", "a stream has no such sub-path, and a stream id must not contain '/'"
        )
    return name, arguments[0] if arguments else None


def parse_bucket_name(name: str) -> str:
    """The name of a bucket to be created."""
    if name in RESERVED_BUCKETS:
        raise Problem("invalid_bucket_id", f"the bucket name {name!r} is reserved")
    if not is_bucket_name(name):
        raise Problem("invalid_bucket_id", BUCKET_PATTERN)
    return name


def is_bucket_name(name: str) -> bool:
    """Whether a bucket name has the right form; it may still be reserved."""
    return _BUCKET.fullmatch(name) is not None


def parse_source(header: str, target: Target) -> str:
    """The stream id of a fork's source, which must be in the same bucket."""
    path = unquote(header, errors="replace")
    if not path.startswith("/"):
        raise Problem("header_invalid", "Stream-Forked-From must be the path of the source")
    source = parse_stream_path(path)
    if source.part:
        raise Problem("header_invalid", "Stream-Forked-From must be the path of a stream")
    if source.bucket != target.bucket:
        raise Problem("fork_across_buckets", "a fork must be in the bucket of its source")
    return source.stream


def _flat(name: str) -> Target:
    _check_text(name)
    if len(name) > FLAT_PATH_BYTES_MAX or len(name.encode()) > FLAT_PATH_BYTES_MAX:
        raise Problem("invalid_stream_id", f"a stream path may have at most {FLAT_PATH_BYTES_MAX} bytes")
    bucket, slash, stream = name.partition("/")
    if bucket in RESERVED_BUCKETS or bucket == "__ds":
        raise Problem("invalid_stream_id", f"the first segment {bucket!r} is reserved")
    if not slash:
        bucket, stream = DEFAULT_BUCKET, name
    if not bucket or not stream:
        raise Problem("invalid_stream_id", "the stream path is empty, or lacks its bucket or its stream")
    return Target(bucket, stream, True)


def _check_text(name: str) -> None:
    if "\ufffd" in name:
        raise Problem("invalid_stream_id", "the path is not valid percent-encoded UTF-8")
    if "\0" in name or ".." in name:
        raise Problem("invalid_stream_id", "a name must contain neither NUL nor '..'")
