"""The running hash of a log: replicas of different versions must hash alike, so it stays what it is."""

from typing import get_args

import pytest

from ursula.model.entry_hash import _HASHED, HASH_BYTES, hash_entry
from ursula.model.outcomes import (
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

INGEST = Ingest(7, ("staging/b/x",), True, None, False, 1, 2, 3, 4, (), True)
OUTCOMES: list[AnyOutcome] = [
    Refused("stream_closed", "why", "0-1-0", 5, True, 1, 2, 3, 4),
    BucketCreated("b"),
    BucketDeleted("b"),
    Created(True, "0-1-0", "text/plain", 5, False, 9, 0, 1),
    Appended("0-1-0", 5, 6, False, True, 1, 2, 3, 4),
    Ended("0-1-0"),
    AttributesSet("0-1-0"),
    SnapshotPublished("0-1-0", 5, False, 4, "sha256:aa", True),
    StreamTrimmed("0-1-0", 5, False, 4),
    Renewed(9),
    Ignored(),
    Undeleted("0-1-0", 5, False, 9),
    INGEST,
    RowsIngested(INGEST, ["0-1-0"]),
    CutMade(8),
    Done(8),
]


def test_the_hash_stays_what_it_is() -> None:
    """If this fails, nodes of different versions would contradict each other."""
    assert hash_entry(b"", b"entry", OUTCOMES).hex() == "c440e30fd3866b621ab3a65a072ad4c1"


def test_every_outcome_has_a_row() -> None:
    assert {type(outcome) for outcome in OUTCOMES} == set(get_args(AnyOutcome)) == _HASHED.keys()
    kinds = [kind for kind, _ in _HASHED.values()]
    assert len(set(kinds)) == len(kinds)


def test_the_hash_depends_on_everything_before() -> None:
    first = hash_entry(b"", b"one", [Done(1)])
    assert len(first) == HASH_BYTES
    assert hash_entry(first, b"two", []) != hash_entry(b"", b"two", [])
    assert hash_entry(b"", b"other", [Done(1)]) != first
    assert hash_entry(b"", b"one", [Done(2)]) != first
    assert hash_entry(b"", b"one", [CutMade(1)]) != first


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Refused("empty_body", "no body"), Refused("empty_body", "the body is empty")),
        (Ended("0-1-0"), Ended("0-1-1")),
    ],
)
def test_texts_do_not_count(one: AnyOutcome, other: AnyOutcome) -> None:
    assert hash_entry(b"", b"entry", [one]) == hash_entry(b"", b"entry", [other])


def test_codes_count() -> None:
    refusals = [Refused("empty_body", "no"), Refused("stream_closed", "no")]
    hashes = {hash_entry(b"", b"entry", [one]) for one in refusals}
    assert len(hashes) == 2
