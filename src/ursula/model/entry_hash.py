"""A running hash of the log: over each entry and the outcomes of its commands, to compare replicas.

Of an outcome only its kind, its code and its numbers are hashed: texts may be worded differently in another
version. Replicas of different versions must hash alike, so the rows below never change, and a new field of an
outcome is not added to them.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import Any

import msgspec

from .outcomes import (
    AnyOutcome,
    Appended,
    AttributesSet,
    BucketCreated,
    BucketDeleted,
    Created,
    CutMade,
    Done,
    Ended,
    Ignored,
    Ingest,
    Refused,
    Renewed,
    RowsIngested,
    SnapshotPublished,
    StreamTrimmed,
    Undeleted,
)

HASH_BYTES = 16

_encode = msgspec.msgpack.Encoder().encode


def _nothing(outcome: AnyOutcome) -> None:
    """The numbers of an outcome that has none."""


_HASHED: dict[type, tuple[int, Callable[[Any], Any]]] = {
    Refused: (
        1,
        attrgetter("code", "tail", "closed", "epoch", "expected_seq", "received_seq", "earliest"),
    ),
    BucketCreated: (2, _nothing),
    BucketDeleted: (3, _nothing),
    Created: (4, attrgetter("new", "tail", "closed", "deadline", "record_start", "record_next")),
    Appended: (
        5,
        attrgetter(
            "tail", "next_offset", "closed", "duplicate", "epoch", "seq", "record_start", "record_next"
        ),
    ),
    Ended: (6, _nothing),
    AttributesSet: (7, _nothing),
    SnapshotPublished: (8, attrgetter("tail", "closed", "offset", "duplicate")),
    StreamTrimmed: (9, attrgetter("tail", "closed", "earliest")),
    Renewed: (10, attrgetter("deadline")),
    Ignored: (11, _nothing),
    Undeleted: (12, attrgetter("tail", "closed", "deadline")),
    Ingest: (13, attrgetter("version", "object", "row", "appended", "refused_count", "ended")),
    RowsIngested: (
        14,
        attrgetter(
            "ingest.version",
            "ingest.object",
            "ingest.row",
            "ingest.appended",
            "ingest.refused_count",
            "ingest.ended",
        ),
    ),
    CutMade: (15, attrgetter("position")),
    Done: (16, attrgetter("position")),
}
"""By outcome: the number of its kind, and what is hashed of it."""


def hash_entry(before: bytes, payload: bytes, outcomes: Sequence[AnyOutcome]) -> bytes:
    """The hash after an entry, given the one before it, the bytes in the log and the outcomes."""
    values = []
    for outcome in outcomes:
        kind, numbers = _HASHED[type(outcome)]
        values.append((kind, numbers(outcome)))
    digest = blake2b(before, digest_size=HASH_BYTES)
    digest.update(payload)
    digest.update(_encode(values))
    return digest.digest()
