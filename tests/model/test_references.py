"""Messages by reference, whose bytes are in a blob, and references from streams into segments."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.model.drawing import batched
from tests.model.driving import Driver
from tests.model.storing import cut, flush, flushed, segment

from ursula.model.commands import AnyCommand, Append, Body, Create, ForkPoint, Merge, Producer
from ursula.model.dump import dump
from ursula.model.offsets import BEGINNING
from ursula.model.outcomes import Appended, FeedPage
from ursula.model.read.not_in_memory import FeedNotInMemory, NotInMemory
from ursula.model.state import REFS_MAX, State
from ursula.model.stream.blob_slice import BlobSlice, Blocks, slices_of

Log = list[tuple[int, int, list[AnyCommand]]]
JSON = "application/json"


def by_reference(name: str, blob: str, *sizes: int, media_type: str = "text/plain") -> Append:
    return Append("b", name, (), media_type, body=Body(blob, sizes, 2**60))


# Parts


def test_a_part_is_measured_and_cut_like_bytes() -> None:
    part = BlobSlice("blob", 10, 15)
    assert len(part) == 5
    assert part[1:3] == BlobSlice("blob", 11, 13)
    assert part[2:] == BlobSlice("blob", 12, 15)
    assert part[:2] == BlobSlice("blob", 10, 12)
    assert len(part[4:2]) == 0
    assert slices_of(Body("blob", (2, 3), 0)) == (BlobSlice("blob", 0, 2), BlobSlice("blob", 2, 5))
    blocks = Blocks(5, (7,))
    checked = slices_of(Body("blob", (2, 3), 0, (7,)))
    assert checked == (BlobSlice("blob", 0, 2, blocks), BlobSlice("blob", 2, 5, blocks))
    assert checked[1][1:2] == BlobSlice("blob", 3, 4, blocks)


@given(st.binary(max_size=12), st.integers(-2, 14), st.integers(-2, 14))
def test_cutting_a_part_twice_is_like_cutting_bytes_twice(content: bytes, first: int, last: int) -> None:
    part = BlobSlice("blob", 0, len(content))[max(first, 0) :][: max(last, 0)]
    assert content[part.start : part.end] == content[max(first, 0) :][: max(last, 0)]


# Bodies


def by_name_of(command: AnyCommand, number: int) -> AnyCommand:
    """The same command, with its messages in a blob."""
    if not isinstance(command, Append | Create) or not command.messages:
        return command
    body = Body(f"body-{number}", tuple(map(len, command.messages)), 2**60)
    return replace(command, messages=(), body=body)


def without_bodies(state: State) -> bytes:
    """The state, but for where its messages came from."""
    state.stored.bodies = []
    for key in [key for key in state.stored.replaced if key.startswith("blobs/body-")]:
        del state.stored.replaced[key]
    return dump(state)


@settings(
    max_examples=60,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(batched(), st.data())
def test_a_body_by_reference_comes_to_what_its_bytes_come_to(log: Log, data: st.DataObject) -> None:
    state, other = State(0), State(0)
    for position, at, commands in log:
        for one in (state, other):
            one.begin(position, at)
        for index, command in enumerate(commands):
            by_name = by_name_of(command, position * 10 + index) if data.draw(st.booleans()) else command
            assert other.look(by_name) == state.look(command)
            assert other.apply(by_name, index) == state.apply(command, index)
        assert without_bodies(other) == without_bodies(state)


def test_bytes_in_a_blob_are_not_held() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.do(by_reference("s", "blob", 1000))
    driver.append("s", b"de")
    assert driver.described("s").tail == 1005
    assert driver.page("s", 0, 3).chunks == [b"abc"]
    missing = driver.state.reads.read("b", "s", 0, 100, whole=False)
    assert isinstance(missing, NotInMemory)
    assert missing.offset == 0
    assert driver.page("s", 1003).chunks == [b"de"]
    driver.fork("f", "s", 1003)
    assert isinstance(driver.state.reads.read("b", "f", 500, 10, whole=False), NotInMemory)


def test_a_boundary_in_a_blob_is_known_without_its_bytes() -> None:
    driver = Driver()
    driver.create("j", b"1", content_type=JSON)
    driver.do(by_reference("j", "blob", 10, 20, media_type=JSON))
    assert driver.stream("j").is_boundary(11)
    assert not driver.stream("j").is_boundary(12)
    assert driver.described("j").next_record == 3
    assert isinstance(driver.state.reads.read_records("b", "j", 1, None, 1, 100), NotInMemory)
    fork = driver.fork("f", "j", 1, 1)
    assert (fork.tail, fork.record_next) == (11, 2)


def test_a_retry_by_reference_is_stored_once() -> None:
    driver = Driver()
    driver.create("s")
    command = replace(by_reference("s", "first", 5), producer=Producer("p", 0, 0))
    driver.do(command)
    again = driver.do(replace(command, body=Body("second", (5,), 2**60)))
    assert isinstance(again, Appended)
    assert (again.duplicate, again.next_offset) == (True, 5)
    assert [blob for _, blob in driver.state.stored.bodies] == ["first"]


def test_a_new_stream_may_begin_by_reference() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.do(Create("b", "t", "text/plain", body=Body("blob", (7,), 2**60), fork=ForkPoint("s")))
    assert driver.described("t").tail == 10


def test_a_body_is_replaced_when_a_segment_has_its_bytes() -> None:
    driver = Driver()
    driver.create("s")
    driver.do(by_reference("s", "early", 5))
    cut(driver.state)
    driver.do(by_reference("s", "late", 5))
    assert not driver.state.stored.replaced
    driver.do(flushed(driver.state))
    assert list(driver.state.stored.replaced) == ["blobs/early"]
    assert [blob for _, blob in driver.state.stored.bodies] == ["late"]


def test_the_feed_does_not_hold_what_is_in_a_blob_but_can_name_it() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    before = driver.state.position
    driver.do(by_reference("s", "blob", 5))
    assert isinstance(driver.state.reads.read_feed("b", before, None, 1000), FeedNotInMemory)
    page = driver.state.reads.read_feed("b", before, None, 1000, with_slices=True)
    assert isinstance(page, FeedPage)
    (row,) = page.entries[0].rows
    named: object = row.payload
    assert named == BlobSlice("blob", 0, 5)


# References into segments


def test_a_stream_notes_the_first_append_after_each_cut() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    first = driver.state.position
    driver.append("s", b"de")
    flush(driver.state)
    driver.append("s", b"f")
    second = driver.state.position
    driver.append("s", b"g")
    stream = driver.stream("s")
    assert stream.refs is not None
    assert stream.refs.tolist() == [0, first, 0, 5, second, 2]
    assert [stream.ref_at(offset) for offset in (0, 4)] == [(0, first, 0)] * 2
    assert [stream.ref_at(offset) for offset in (5, 6)] == [(5, second, 2)] * 2
    assert stream.end_at(driver.state.cut) == 5


def test_a_message_of_a_json_stream_is_found_by_its_ordinal() -> None:
    driver = Driver()
    driver.create("j", b"1", b"22", content_type=JSON)
    flush(driver.state)
    driver.append("j", b"3", media_type=JSON)
    stream = driver.stream("j")
    offsets = [ref.offset for ref in map(stream.ref_of_record, range(4)) if ref is not None]
    assert offsets == [0, 0, 3, 3]
    assert not stream.holds_record(1)
    assert stream.holds_record(2)


def test_a_stream_without_messages_has_no_references() -> None:
    driver = Driver()
    driver.create("s")
    driver.do(Append("b", "s", (), None, close=True))
    assert driver.stream("s").refs is None
    assert driver.stream("s").ref_at(0) is None


def flushed_often(count: int) -> Driver:
    """A stream `s` with a message in each of so many segments."""
    driver = Driver()
    driver.create("s")
    for number in range(count):
        driver.append("s", b"%d" % (number % 10))
        flush(driver.state)
    return driver


def reference_count(driver: Driver) -> int:
    refs = driver.stream("s").refs
    return 0 if refs is None else len(refs) // 3


def test_references_to_segments_that_were_merged_become_one() -> None:
    count = REFS_MAX + 4
    driver = flushed_often(count)
    assert reference_count(driver) == count
    inputs = list(driver.state.segments)
    output = segment(inputs[0].first, inputs[-3].last, "segments/merged")
    driver.do(Merge(tuple(one.key for one in inputs[:-2]), output, driver.now))
    assert reference_count(driver) == count, "a merge touches no stream"
    driver.append("s", b"x")
    assert reference_count(driver) == 4
    for offset in range(count):
        ref = driver.stream("s").ref_at(offset)
        assert ref is not None
        expected = output if offset < count - 2 else inputs[offset]
        assert driver.state.segment_at(ref.position) == expected
    assert driver.stream("s").end_at(driver.state.cut) == count


def test_few_references_are_left_alone() -> None:
    driver = flushed_often(REFS_MAX - 1)
    inputs = list(driver.state.segments)
    output = segment(inputs[0].first, inputs[-1].last, "segments/merged")
    driver.do(Merge(tuple(one.key for one in inputs), output, driver.now))
    driver.append("s", b"x")
    assert reference_count(driver) == REFS_MAX


def test_references_to_what_is_not_stored_yet_are_kept() -> None:
    driver = Driver()
    driver.create("s")
    for _ in range(REFS_MAX + 4):
        driver.append("s", b"x")
        cut(driver.state)
    driver.append("s", b"y")
    assert reference_count(driver) == REFS_MAX + 5
    assert b"".join(driver.page("s", BEGINNING).chunks) == b"x" * (REFS_MAX + 4) + b"y"
