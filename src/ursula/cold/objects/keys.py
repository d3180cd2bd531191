"""The keys of all objects in the store, and when an object got its key.

    segments/g{group}/{first}-{last}-{ulid}.parquet     messages and events after first up to last
    state/g{group}/{position}-{ulid}.parquet            state rows as of a position
    manifests/g{group}/{position}-{ulid}.json
    live/g{group}.json                                  the only object that is ever replaced
    generations/{generation}.json
    etcd/{generation}.json                              the attempt that began a new etcd for it
    blobs/{bucket}/{incarnation}/{ulid}                 large bodies and snapshots
    staging/{bucket}/{digest}-{ulid}.arrow              rows of a bulk write; early ones have no digest

Positions have 20 digits, so keys sort by position. Names of buckets are percent-encoded. A ULID makes a key
unique and says when it was made.

For the server and for Spark executors: the standard library only.
"""

import re
from typing import NamedTuple
from urllib.parse import quote

from .ulid import is_ulid, milliseconds_of, new_ulid

BLOBS = "blobs/"
STAGING = "staging/"
GENERATIONS = "generations/"

_DIGEST_CHARACTERS = 16
_BUCKET_CHARACTERS_MAX = 200
_STAGED = re.compile(
    rf"staging/(?P<bucket>[^/]+)/((?P<digest>[0-9a-f]{{{_DIGEST_CHARACTERS}}})-)?[0-9A-Z]{{26}}\.arrow"
)


def made_at(key: str) -> int | None:
    """When an object got its key, in microseconds since 1970; None if the key does not end with a ULID."""
    ulid = key.rpartition("/")[2].partition(".")[0].rpartition("-")[2]
    return milliseconds_of(ulid) * 1000 if is_ulid(ulid) else None


# Segments and state


def segments_prefix(group: int) -> str:
    """The prefix of the keys of all segments of a group."""
    return f"segments/g{group}/"


def segment_prefix(group: int, first: int, last: int) -> str:
    """The prefix of the keys of a segment of these positions."""
    return f"{segments_prefix(group)}{first:020d}-{last:020d}-"


def segment_key(group: int, first: int, last: int) -> str:
    """A new key for a segment of these positions."""
    return f"{segment_prefix(group, first, last)}{new_ulid()}.parquet"


def states_prefix(group: int) -> str:
    """The prefix of the keys of all state objects of a group."""
    return f"state/g{group}/"


def state_prefix(group: int, position: int) -> str:
    """The prefix of the keys of state rows as of this position."""
    return f"{states_prefix(group)}{position:020d}-"


def state_key(group: int, position: int) -> str:
    """A new key for state rows as of this position."""
    return f"{state_prefix(group, position)}{new_ulid()}.parquet"


# Manifests, live lists and generations


def manifests_prefix(group: int | str) -> str:
    """The prefix of the keys of all manifests of a group."""
    return f"manifests/g{group}/"


def manifest_prefix(group: int, position: int) -> str:
    """The prefix of the keys of a manifest of this position."""
    return f"{manifests_prefix(group)}{position:020d}-"


def manifest_key(group: int, position: int) -> str:
    """A new key for a manifest."""
    return f"{manifest_prefix(group, position)}{new_ulid()}.json"


def live_key(group: int) -> str:
    """The key of the live list of a group."""
    return f"live/g{group}.json"


def generation_key(generation: int) -> str:
    """The key of the object that describes a generation."""
    return f"{GENERATIONS}{generation}.json"


def new_etcd_key(generation: int) -> str:
    """The key of the object that says which etcd was begun for a generation."""
    return f"etcd/{generation}.json"


# Blobs, which the log names without the prefix


def new_blob(bucket: str, incarnation: str) -> str:
    """A new name for a blob of a stream."""
    name = quote(bucket, safe="") if bucket != "." else "%2E"
    if len(name) > _BUCKET_CHARACTERS_MAX:  # file systems reject longer names; the incarnation is unique
        name = name[:_BUCKET_CHARACTERS_MAX].rpartition("%")[0]
    return f"{name}/{incarnation}/{new_ulid()}"


def blob_key(blob: str) -> str:
    """The key of a blob."""
    return BLOBS + blob


# Staged objects


class StagedKey(NamedTuple):
    """The parts of the key of a staged object; keys of early versions have no digest."""

    bucket: str
    digest: str | None
    made_at: int


def staged_key(bucket: str, digest: str) -> str:
    """A new key for a staged object with this digest, which is `sha256:` and 64 hexadecimal digits."""
    beginning = digest.removeprefix("sha256:")[:_DIGEST_CHARACTERS]
    return f"{STAGING}{quote(bucket, safe='')}/{beginning}-{new_ulid()}.arrow"


def parse_staged(key: str) -> StagedKey | None:
    """The parts of a key; None if it is not that of a staged object. The bucket is percent-encoded."""
    found = _STAGED.fullmatch(key)
    at = made_at(key) if found is not None else None
    return None if found is None or at is None else StagedKey(found["bucket"], found["digest"], at)
