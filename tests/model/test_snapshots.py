"""Snapshots and trimming: what can be published where, what is dropped then, and what forks keep."""

import pytest
from tests.model.driving import Driver, publication
from tests.model.rows import rows_of

from ursula.model.commands import Append, Create, Delete, Expire, ForkPoint, Trim, Undelete
from ursula.model.dump import dump
from ursula.model.offsets import BEGINNING, TAIL
from ursula.model.outcomes import Created, Refused, Snapshot, SnapshotPublished, StreamTrimmed
from ursula.model.stream import stream as streams
from ursula.model.stream.blob_slice import BlobSlice
from ursula.model.stream.messages import Messages, Payload

JSON = "application/json"


@pytest.fixture
def driver() -> Driver:
    """A binary stream `s` of three messages, and a JSON stream `j` of appends with three and two."""
    driver = Driver()
    driver.create("s", b"abc")
    driver.append("s", b"defgh")
    driver.append("s", b"i")
    driver.create("j", b"1", b"22", b"333", content_type=JSON)
    driver.append("j", b"4", b"55", media_type=JSON)
    return driver


def read_code(driver: Driver, name: str, offset: int) -> tuple[str, int | None]:
    """Why a read is refused, and the earliest offset that it is told."""
    refusal = driver.state.reads.read("b", name, offset, 100, whole=False)
    assert isinstance(refusal, Refused)
    return refusal.code, refusal.earliest


def held(driver: Driver, name: str) -> list[Payload]:
    """The messages that a stream has in memory itself."""
    return driver.stream(name).messages.payloads


def released(driver: Driver) -> list[str]:
    """The blobs that nothing shows any more, in that order."""
    return [key.removeprefix("blobs/") for key in driver.state.stored.replaced]


# Publishing


def test_a_published_snapshot_is_the_visible_one(driver: Driver) -> None:
    outcome = driver.publish("s", 8)
    assert outcome == SnapshotPublished(outcome.incarnation, 9, False, 8, "sha256:aa")
    assert driver.described("s").snapshot == Snapshot(8, "blob", "text/plain", 3, "sha256:aa")
    assert driver.state.blobs == {"blob": 1}


def test_publishing_trims_to_the_snapshot(driver: Driver) -> None:
    driver.publish("s", 3)
    assert driver.described("s").earliest == 3
    assert driver.content("s") == b"defghi"
    assert driver.page("s", BEGINNING).offset == 3
    assert driver.page("s", TAIL).offset == 9
    for offset in (0, 1, 2):
        assert read_code(driver, "s", offset) == ("offset_trimmed", 3)
    assert driver.page("s", 4, 2).chunks == [b"ef"]
    assert read_code(driver, "s", 10)[0] == "offset_beyond_tail"


def test_publishing_without_trimming_drops_nothing(driver: Driver) -> None:
    driver.publish("s", 8, trim=False)
    assert driver.described("s").earliest == 0
    assert driver.content("s") == b"abcdefghi"
    assert held(driver, "s") == [b"abc", b"defgh", b"i"]


@pytest.mark.parametrize(("name", "boundaries"), [("s", [0, 3, 8, 9]), ("j", [0, 1, 3, 6, 7, 9])])
def test_a_snapshot_is_at_a_message_boundary(driver: Driver, name: str, boundaries: list[int]) -> None:
    for offset in range(10):
        foreseen = driver.state.look(publication(name, offset))
        assert (foreseen is None) == (offset in boundaries)
        if isinstance(foreseen, Refused):
            assert foreseen.code == "invalid_offset"


def test_a_snapshot_of_nothing_is_at_the_beginning(driver: Driver) -> None:
    driver.create("empty")
    driver.publish("empty", 0)
    driver.publish("s", 0)
    assert driver.described("s").earliest == 0
    assert [row.kind for row in rows_of(driver.state.buckets["b"].journal)][-1] == "snapshot"
    driver.append("empty", b"x")
    assert driver.content("empty") == b"x"


def test_a_snapshot_at_the_tail_leaves_an_empty_stream_that_continues(driver: Driver) -> None:
    driver.publish("j", 9)
    page = driver.page("j", BEGINNING)
    assert (page.chunks, page.offset, page.next_offset) == ([], 9, 9)
    assert driver.append("j", b"6", media_type=JSON).next_offset == 10
    assert driver.content("j") == b"6"


def test_a_snapshot_beyond_the_tail_is_a_conflict(driver: Driver) -> None:
    assert driver.code(publication("s", 10)) == "snapshot_conflict"


def test_only_a_newer_snapshot_takes_the_place_of_the_visible_one(driver: Driver) -> None:
    driver.publish("s", 3, "first", trim=False)
    driver.publish("s", 8, "second", trim=False)
    assert driver.code(publication("s", 3)) == "snapshot_conflict"
    assert driver.code(publication("s", 0)) == "snapshot_conflict"
    visible = driver.described("s").snapshot
    assert visible is not None
    assert visible.blob == "second"


def test_below_the_earliest_offset_there_is_nothing_to_publish(driver: Driver) -> None:
    driver.publish("s", 3)
    refusal = driver.refusal(publication("s", 0))
    assert (refusal.code, refusal.earliest) == ("offset_trimmed", 3)
    assert driver.code(publication("s", 2)) == "offset_trimmed"


def test_an_older_snapshot_is_a_conflict_even_inside_a_message(driver: Driver) -> None:
    driver.publish("s", 8, trim=False)
    assert driver.code(publication("s", 4)) == "snapshot_conflict"


def test_the_same_snapshot_again_is_no_error_and_changes_nothing(driver: Driver) -> None:
    driver.publish("s", 8, "first")
    again = driver.state.look(publication("s", 8, "second"))
    assert isinstance(again, SnapshotPublished)
    assert (again.duplicate, again.offset, again.digest) == (True, 8, "sha256:aa")
    driver.state.begin(40, driver.now)
    before = dump(driver.state)
    assert driver.state.apply(publication("s", 8, "second"), 0) == again
    assert dump(driver.state) == before
    assert (driver.state.blobs, released(driver)) == ({"first": 1}, [])


def test_the_same_snapshot_again_trims_if_that_was_not_done_yet(driver: Driver) -> None:
    driver.publish("s", 8, "first", trim=False)
    assert driver.publish("s", 8, "second", trim=False).duplicate
    assert driver.described("s").earliest == 0
    assert driver.publish("s", 8, "third").duplicate
    assert driver.described("s").earliest == 8
    assert (driver.state.blobs, released(driver)) == ({"first": 1}, [])
    kinds = [row.kind for row in rows_of(driver.state.buckets["b"].journal)]
    assert kinds[-2:] == ["snapshot", "trim"]


def test_another_snapshot_at_the_same_offset_is_a_conflict(driver: Driver) -> None:
    driver.publish("s", 8)
    assert driver.code(publication("s", 8, digest="sha256:bb")) == "snapshot_conflict"
    assert driver.code(publication("s", 8, trim=False, digest="sha256:bb")) == "snapshot_conflict"


def test_a_closed_stream_can_have_snapshots_too(driver: Driver) -> None:
    driver.do(Append("b", "s", (), None, close=True))
    outcome = driver.publish("s", 9)
    assert (outcome.closed, outcome.tail) == (True, 9)
    assert driver.described("s").closed
    assert driver.page("s", BEGINNING).closed


def test_what_is_not_there_has_no_snapshot_and_is_not_trimmed(driver: Driver) -> None:
    driver.fork("f", "s")
    driver.do(Delete("b", "s"))
    for build in (lambda name: publication(name, 0), lambda name: Trim("b", name, 0)):
        assert driver.code(build("s")) == "stream_gone"
        assert driver.code(build("nothing")) == "stream_not_found"
    assert driver.code(Trim("nowhere", "s", 0)) == "bucket_not_found"


def test_an_incarnation_is_checked_before_anything_else_of_the_stream(driver: Driver) -> None:
    incarnation = driver.described("s").incarnation
    assert driver.code(publication("s", 99, incarnation="9-9-9")) == "incarnation_mismatch"
    assert driver.code(Trim("b", "s", 99, "9-9-9")) == "incarnation_mismatch"
    assert isinstance(driver.do(publication("s", 3, incarnation=incarnation)), SnapshotPublished)
    assert isinstance(driver.do(Trim("b", "s", 3, incarnation)), StreamTrimmed)


def test_a_snapshot_is_no_write_and_renews_nothing(driver: Driver) -> None:
    created = driver.do(Create("b", "t", "text/plain", (b"x",), ttl_seconds=10))
    assert isinstance(created, Created)
    driver.now += 1_000_000
    driver.publish("t", 1)
    stream = driver.stream("t")
    assert (stream.deadline, stream.last_write_at) == (created.deadline, stream.created_at)


# Trimming


def test_a_trim_goes_as_far_as_the_snapshot_and_no_further(driver: Driver) -> None:
    driver.publish("s", 8, trim=False)
    outcome = driver.do(Trim("b", "s", 3))
    assert outcome == StreamTrimmed(driver.described("s").incarnation, 9, False, 3)
    assert driver.content("s") == b"defghi"
    assert driver.code(Trim("b", "s", 9)) == "snapshot_conflict"
    driver.do(Trim("b", "s", 8))
    assert driver.content("s") == b"i"


def test_a_trim_without_a_snapshot_or_backwards_is_a_conflict(driver: Driver) -> None:
    for offset in (0, 3):
        assert driver.code(Trim("b", "s", offset)) == "snapshot_conflict"
    driver.publish("s", 8, trim=False)
    driver.do(Trim("b", "s", 3))
    assert driver.code(Trim("b", "s", 0)) == "snapshot_conflict"
    assert driver.code(Trim("b", "s", 2)) == "snapshot_conflict"


def test_a_trim_is_at_a_message_boundary(driver: Driver) -> None:
    driver.publish("s", 9, trim=False)
    assert driver.code(Trim("b", "s", 4)) == "invalid_offset"
    driver.publish("j", 9, trim=False)
    assert driver.code(Trim("b", "j", 2)) == "invalid_offset"


def test_the_same_trim_again_is_no_error_and_changes_nothing(driver: Driver) -> None:
    driver.publish("s", 3)
    before = rows_of(driver.state.buckets["b"].journal)
    assert driver.do(Trim("b", "s", 3)) == driver.do(Trim("b", "s", 3))
    driver.publish("j", 0)
    assert isinstance(driver.state.look(Trim("b", "j", 0)), StreamTrimmed)
    assert rows_of(driver.state.buckets["b"].journal)[: len(before)] == before
    assert "trim" not in {row.kind for row in rows_of(driver.state.buckets["b"].journal)[len(before) :]}


def test_a_trim_inside_a_json_append_keeps_the_rest_of_it(driver: Driver) -> None:
    driver.publish("j", 1)
    assert driver.page("j", BEGINNING).chunks == [b"22", b"333", b"4", b"55"]
    assert driver.fork("f", "j", 1, 2).tail == 6
    assert driver.code(Create("b", "x", None, fork=ForkPoint("j", 1, 3))) == "invalid_offset"
    assert driver.code(Create("b", "x", None, fork=ForkPoint("j", 2))) == "invalid_offset"


def test_appends_are_kept_apart_after_all_before_them_was_trimmed(driver: Driver) -> None:
    driver.publish("j", 9)
    driver.append("j", b"6", media_type=JSON)
    driver.append("j", b"7", b"8", media_type=JSON)
    assert driver.fork("f", "j", 9, 1).tail == 10
    assert driver.code(Create("b", "x", None, fork=ForkPoint("j", 9, 2))) == "invalid_offset"
    assert driver.fork("g", "j", 10, 2).tail == 12


def test_what_is_trimmed_is_dropped_from_memory(driver: Driver) -> None:
    driver.publish("s", 3, trim=False)
    assert held(driver, "s") == [b"abc", b"defgh", b"i"]
    driver.do(Trim("b", "s", 3))
    assert held(driver, "s") == [b"defgh", b"i"]
    driver.publish("s", 9)
    assert held(driver, "s") == []


def test_a_trimmed_stream_is_read_like_any_other(driver: Driver) -> None:
    driver.publish("s", 3)
    assert driver.page("s", 3, 2).chunks == [b"de"]
    assert driver.page("s", 3, 2, whole=True).chunks == [b"defgh"]
    assert driver.page("s", 5, 9, whole=True).chunks == [b"fgh", b"i"]


# Forks


def test_a_fork_below_the_earliest_offset_is_refused_with_that_offset(driver: Driver) -> None:
    driver.publish("s", 3)
    for offset in (0, 2):
        refusal = driver.refusal(Create("b", "f", None, fork=ForkPoint("s", offset)))
        assert (refusal.code, refusal.earliest) == ("offset_trimmed", 3)
        assert (refusal.incarnation, refusal.tail) == (None, None)  # those would be the source's
    assert driver.code(Create("b", "f", None, fork=ForkPoint("s", 0, 3))) == "offset_trimmed"
    assert driver.code(Create("b", "f", JSON, fork=ForkPoint("s", 0))) == "content_type_mismatch"


def test_a_fork_at_the_earliest_offset_begins_empty(driver: Driver) -> None:
    driver.publish("s", 3)
    assert driver.fork("f", "s", 3).tail == 3
    assert driver.content("f") == b""
    driver.append("f", b"!")
    assert driver.content("f") == b"!"
    assert read_code(driver, "f", 2) == ("offset_trimmed", 3)


def test_a_fork_of_a_trimmed_source_begins_where_the_source_does(driver: Driver) -> None:
    driver.publish("s", 3)
    driver.fork("f", "s", 5)
    driver.append("f", b"!")
    assert driver.content("f") == b"de!"
    assert driver.described("f").earliest == 3


def test_a_fork_keeps_what_it_shares_when_its_source_trims(driver: Driver) -> None:
    driver.fork("f", "s", 5)
    driver.publish("s", 8)
    assert driver.content("f") == b"abcde"
    assert driver.described("f").earliest == 0
    assert driver.described("f").snapshot is None
    assert read_code(driver, "s", 0) == ("offset_trimmed", 8)
    assert driver.code(Create("b", "g", None, fork=ForkPoint("s", 5))) == "offset_trimmed"
    driver.fork("g", "f", 2)
    assert driver.content("g") == b"ab"


def test_what_a_trimmed_source_keeps_for_its_forks_goes_with_the_last_of_them(driver: Driver) -> None:
    driver.fork("f", "s", 5)
    driver.fork("g", "s", 8)
    driver.publish("s", 8)
    assert held(driver, "s") == [b"abc", b"defgh", b"i"]
    driver.do(Delete("b", "f"))
    assert held(driver, "s") == [b"abc", b"defgh", b"i"]
    driver.do(Delete("b", "g"))
    assert held(driver, "s") == [b"i"]
    assert driver.content("s") == b"i"


def test_an_expired_fork_lets_go_of_its_source_too(driver: Driver) -> None:
    fork = driver.do(Create("b", "f", None, ttl_seconds=1, fork=ForkPoint("s", 5)))
    assert isinstance(fork, Created)
    driver.publish("s", 8)
    driver.do(Expire("b", "f", fork.incarnation, fork.deadline or 0))
    assert held(driver, "s") == [b"i"]


def test_a_fork_of_a_fork_keeps_the_first_source(driver: Driver) -> None:
    driver.fork("f", "s", 8)
    driver.append("f", b"FF")
    driver.fork("g", "f", 9)
    driver.do(Delete("b", "f"))
    driver.publish("s", 9)
    assert driver.content("g") == b"abcdefghF"
    assert held(driver, "s") == [b"abc", b"defgh", b"i"]
    driver.do(Delete("b", "g"))
    assert driver.hidden("f") == "stream_not_found"
    assert held(driver, "s") == []


def test_a_fork_is_trimmed_in_the_part_that_it_shares(driver: Driver) -> None:
    driver.fork("f", "s", 8)
    driver.append("f", b"FF")
    assert driver.code(publication("f", 4)) == "invalid_offset"
    driver.publish("f", 3)
    assert driver.content("f") == b"defghFF"
    assert driver.content("s") == b"abcdefghi"
    driver.publish("f", 8)
    assert driver.content("f") == b"FF"
    assert held(driver, "f") == [b"FF"]
    driver.publish("f", 10)
    assert held(driver, "f") == []
    assert driver.content("s") == b"abcdefghi"


def test_where_a_fork_left_inside_a_message_is_a_boundary_of_the_fork(driver: Driver) -> None:
    driver.fork("f", "s", 5)
    driver.append("f", b"FF")
    assert driver.state.look(publication("f", 4)) is not None
    driver.publish("f", 5)
    assert driver.content("f") == b"FF"
    assert driver.code(publication("s", 5)) == "invalid_offset"
    driver.fork("g", "f", 6)
    assert driver.state.look(publication("g", 6)) is None


def test_a_fork_inherits_the_snapshot_at_or_before_it(driver: Driver) -> None:
    driver.publish("s", 3, trim=False)
    driver.fork("before", "s", 2)
    driver.fork("at", "s", 3)
    driver.fork("after", "s", 5)
    driver.fork("within", "s", 0, 3)
    assert driver.described("before").snapshot is None
    for name in ("at", "after", "within"):
        assert driver.described(name).snapshot == driver.described("s").snapshot
    assert driver.state.blobs == {"blob": 4}
    assert driver.publish("after", 3, "again", trim=False).duplicate
    driver.publish("after", 5, "own")
    assert driver.content("after") == b""
    assert driver.content("at") == b"abc"


# Blobs


def test_a_blob_is_released_when_a_newer_snapshot_takes_its_place(driver: Driver) -> None:
    driver.publish("s", 3, "first")
    driver.publish("s", 8, "second")
    assert (driver.state.blobs, released(driver)) == ({"second": 1}, ["first"])


def test_a_blob_is_released_once_when_the_last_stream_that_shows_it_ends(driver: Driver) -> None:
    driver.publish("s", 3, "shared", trim=False)
    driver.fork("f", "s", 5)
    driver.fork("g", "f", 4)
    driver.do(Delete("b", "s"))
    assert (driver.state.blobs, released(driver)) == ({"shared": 2}, [])
    driver.publish("f", 5, "own")
    assert (driver.state.blobs, released(driver)) == ({"shared": 1, "own": 1}, [])
    driver.do(Delete("b", "g"))
    assert (driver.state.blobs, released(driver)) == ({"own": 1}, ["shared"])
    driver.do(Delete("b", "f"))
    assert (driver.state.blobs, released(driver)) == ({}, ["shared", "own"])


def test_a_stream_that_expires_releases_its_blob(driver: Driver) -> None:
    created = driver.do(Create("b", "t", None, (b"x",), ttl_seconds=1))
    assert isinstance(created, Created)
    driver.publish("t", 1, "short")
    driver.do(Expire("b", "t", created.incarnation, created.deadline or 0))
    assert (driver.state.blobs, released(driver)) == ({}, ["short"])


def test_a_refused_publication_touches_no_blob(driver: Driver) -> None:
    driver.publish("s", 8, "visible")
    for command in (publication("s", 99, "x"), publication("s", 0, "x"), publication("s", 8, digest="no")):
        driver.refusal(command)
    assert (driver.state.blobs, released(driver)) == ({"visible": 1}, [])


def test_a_blob_that_is_published_again_is_not_released(driver: Driver) -> None:
    driver.publish("s", 3, "same")
    driver.publish("s", 8, "same")
    assert (driver.state.blobs, released(driver)) == ({"same": 1}, [])


# The journal


def test_snapshots_and_trims_are_told_in_the_journal(driver: Driver) -> None:
    count = len(driver.state.buckets["b"].journal)
    driver.publish("s", 3, trim=False)
    driver.do(Trim("b", "s", 3))
    driver.publish("s", 8, "second")
    rows = rows_of(driver.state.buckets["b"].journal)[count:]
    told = [(row.kind, row.index, row.offset, row.next_offset, row.payload) for row in rows]
    assert told == [
        ("snapshot", 0, 3, 3, None),
        ("trim", 0, 3, 3, None),
        ("snapshot", 0, 8, 8, None),
        ("trim", 0, 8, 8, None),
    ]
    assert rows[2].event == {
        "offset": 8,
        "content_type": "text/plain",
        "size": 3,
        "digest": "sha256:aa",
        "blob": "second",
    }
    assert rows[3].event == {"earliest": 8}
    assert rows[2].position == rows[3].position


def test_what_was_trimmed_stays_in_the_journal(driver: Driver) -> None:
    before = rows_of(driver.state.buckets["b"].journal)
    driver.publish("s", 9)
    assert rows_of(driver.state.buckets["b"].journal)[: len(before)] == before


# Very much at once


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many messages are let go of at once."""
    monkeypatch.setattr(streams, "TRIMMED_AT_ONCE", 4)
    return 4


def long_stream(driver: Driver) -> list[bytes]:
    """A stream `long` of JSON that begins with its nineteenth message, and all that it had."""
    messages = [b"%02d" % number for number in range(20)]
    driver.create("long", *messages, content_type=JSON)
    driver.publish("long", 36)
    return messages


def test_of_very_many_messages_that_are_trimmed_some_are_let_go_of_at_once(
    driver: Driver, few_at_once: int
) -> None:
    messages = long_stream(driver)
    assert held(driver, "long") == messages[few_at_once:]
    assert list(driver.state.residency.trimmed) == [("b", "long")]
    description, before = driver.described("long"), dump(driver.state)
    assert (description.earliest, description.first_record, description.next_record) == (36, 18, 20)
    assert read_code(driver, "long", 34) == ("offset_trimmed", 36)
    counts = [len(held(driver, "long"))]
    while not driver.stream("long").drop_trimmed():
        counts.append(len(held(driver, "long")))
    assert [*counts, len(held(driver, "long"))] == [16, 12, 8, 4, 2]
    assert dump(driver.state) == before
    assert driver.described("long") == description
    assert driver.content("long") == b"1819"


def test_few_messages_that_are_trimmed_are_no_work_for_others(driver: Driver) -> None:
    driver.publish("s", 8)
    assert held(driver, "s") == [b"i"]
    assert not driver.state.residency.trimmed


def test_a_stream_that_was_trimmed_may_end_and_come_back_before_all_is_let_go_of(
    driver: Driver, few_at_once: int
) -> None:
    messages = long_stream(driver)
    driver.do(Delete("b", "long"))
    driver.do(Undelete("b", "long"))
    assert driver.content("long") == b"1819"
    while not driver.stream("long").drop_trimmed():
        assert driver.described("long").next_record == 20
    assert held(driver, "long") == messages[18:]
    assert driver.described("long").next_record == 20


def test_what_a_fork_shared_is_let_go_of_some_at_a_time_when_it_ends(
    driver: Driver, few_at_once: int
) -> None:
    messages = [b"%02d" % number for number in range(20)]
    driver.create("long", *messages, content_type=JSON)
    driver.fork("f", "long", 20)
    driver.publish("long", 36)
    assert held(driver, "long") == messages
    assert not driver.state.residency.trimmed
    driver.do(Delete("b", "f"))
    assert held(driver, "long") == messages[few_at_once:]
    assert list(driver.state.residency.trimmed) == [("b", "long")]


def test_whether_bodies_are_elsewhere_is_known_after_some_are_let_go_of() -> None:
    messages = Messages(0)
    part = BlobSlice("blob", 0, 3)
    messages.add([b"a", part, b"c", b"d"])
    messages.has_slices = True
    messages.drop_before(6, 1)
    assert messages.has_slices
    messages.drop_before(6, 1)
    assert not messages.has_slices
