"""Keys: which formats there are, and what a key says about its object."""

import time
from collections.abc import Callable

import pytest

from ursula.cold.objects import keys
from ursula.cold.objects.store import check_key
from ursula.cold.objects.ulid import new_ulid
from ursula.model.store_view import store_state

DIGEST = "sha256:" + "0123456789abcdef" * 4
NEW = {
    "segment": lambda: keys.segment_key(3, 5, 6),
    "state": lambda: keys.state_key(3, 6),
    "manifest": lambda: keys.manifest_key(3, 6),
    "blob": lambda: keys.blob_key(keys.new_blob("a/b", "0-1-0")),
    "staged": lambda: keys.staged_key("a/b", DIGEST),
    "staged by an early version": lambda: f"staging/a%2Fb/{new_ulid()}.arrow",
}


@pytest.mark.parametrize("new", NEW.values(), ids=NEW)
def test_a_new_key_says_when_it_was_made(new: Callable[[], str]) -> None:
    before = time.time_ns() // 1_000_000 * 1000
    key = new()
    made_at = keys.made_at(key)
    assert made_at is not None
    assert before <= made_at <= time.time_ns() // 1000
    assert check_key(key) == key
    assert new() != key


@pytest.mark.parametrize(
    "key",
    ["live/g0.json", "generations/1.json", "", "notes.txt", "blobs/b/i/" + "U" * 26, "state/g0/7-.parquet"],
)
def test_a_key_without_a_ulid_does_not_say_when_it_was_made(key: str) -> None:
    assert keys.made_at(key) is None


def test_keys_of_one_group_sort_by_position() -> None:
    made = [keys.state_key(0, position) for position in (7, 1 << 40, 40, 2**63)]
    assert sorted(made) == [made[0], made[2], made[1], made[3]]
    assert all(key.startswith(keys.states_prefix(0)) for key in made)


def test_the_formats_of_keys_never_change() -> None:
    assert keys.segment_prefix(1, 2, 3) == "segments/g1/00000000000000000002-00000000000000000003-"
    assert keys.state_prefix(1, 2) == "state/g1/00000000000000000002-"
    assert keys.manifest_prefix(1, 2) == "manifests/g1/00000000000000000002-"
    assert keys.live_key(1) == "live/g1.json"
    assert keys.generation_key(1) == "generations/1.json"
    assert keys.new_blob(".", "0-1-0").startswith("%2E/0-1-0/")
    assert keys.blob_key("b/0-1-0/X") == store_state.blob_key("b/0-1-0/X") == "blobs/b/0-1-0/X"
    assert keys.staged_key("a/b", DIGEST).startswith("staging/a%2Fb/0123456789abcdef-")


def test_a_staged_key_says_its_bucket_and_the_beginning_of_its_digest() -> None:
    key = keys.staged_key("a/b", DIGEST)
    found = keys.parse_staged(key)
    assert found == ("a%2Fb", "0123456789abcdef", keys.made_at(key))
    early = keys.parse_staged(f"staging/b/{new_ulid()}.arrow")
    assert early is not None
    assert early.digest is None
    for other in (f"staging/b/x-{new_ulid()}.arrow", "staging/b/x.arrow", key.replace("staging", "blobs")):
        assert keys.parse_staged(other) is None
