"""Parked streams: kept as bytes, which no command and no read can notice."""

import gc
import tracemalloc

import pytest
from tests.model.driving import Driver, publication
from tests.model.storing import evict_stored, flush

from ursula.model.commands import AnyCommand, Append, Create, Delete, ForkPoint, Producer, SetAttributes
from ursula.model.dump import dump
from ursula.model.outcomes import Appended, Created, Description, Refused

PARKED_BYTES_MAX = 450


@pytest.fixture
def driver() -> Driver:
    """A stream `s` that is parked."""
    driver = Driver()
    driver.create("s", b"abc")
    driver.do(Append("b", "s", (b"de",), "text/plain", producer=Producer("p", 0, 0)))
    flush(driver.state)
    assert list(driver.state.buckets["b"].parked) == ["s"]
    return driver


def park_again(driver: Driver) -> bool:
    """Park what was only looked at; whether `s` is parked then."""
    evict_stored(driver.state)
    return "s" in driver.state.buckets["b"].parked


def test_a_parked_stream_is_described_and_listed_as_any_other(driver: Driver) -> None:
    before = dump(driver.state)
    listing = driver.state.reads.list_streams("b", "", "", 10)
    assert "s" in driver.state.buckets["b"].parked, "a list makes nothing an object"
    described = driver.state.reads.describe("b", "s")
    assert isinstance(described, Description)
    assert (described.tail, described.closed) == (5, False)
    assert "s" in driver.state.buckets["b"].streams
    assert driver.state.reads.list_streams("b", "", "", 10) == listing
    assert dump(driver.state) == before
    assert park_again(driver)
    assert dump(driver.state) == before


def test_a_parked_stream_counts(driver: Driver) -> None:
    assert driver.state.stream_count == 1
    assert not driver.state.buckets["b"].is_empty
    described = driver.state.reads.describe_bucket("b")
    assert not isinstance(described, Refused)
    assert described.stream_count == 1


def test_a_parked_stream_takes_the_next_append_and_knows_its_producers(driver: Driver) -> None:
    again = driver.do(Append("b", "s", (b"de",), "text/plain", producer=Producer("p", 0, 0)))
    assert isinstance(again, Appended)
    assert (again.duplicate, again.next_offset) == (True, 5)
    assert park_again(driver)
    following = driver.do(Append("b", "s", (b"f",), "text/plain", producer=Producer("p", 0, 1)))
    assert isinstance(following, Appended)
    assert following.tail == 6
    assert not park_again(driver), "it has a message that is not stored"
    flush(driver.state)
    assert park_again(driver)


@pytest.mark.parametrize(
    "command",
    [
        Create("b", "s", "text/plain"),
        Create("b", "s", "application/json"),
        Create("b", "f", None, fork=ForkPoint("s")),
        Delete("b", "s"),
        Delete("b", "s", "7-0-0"),
        SetAttributes("b", "s", b'{"title":"x"}'),
        publication("s", 5),
        Append("b", "s", (), None, close=True),
    ],
)
def test_every_command_comes_to_the_same_whether_a_stream_is_parked_or_not(
    driver: Driver, command: AnyCommand
) -> None:
    other = Driver()
    other.create("s", b"abc")
    other.do(Append("b", "s", (b"de",), "text/plain", producer=Producer("p", 0, 0)))
    flush(other.state)
    other.stream("s")
    assert "s" in driver.state.buckets["b"].parked
    assert driver.state.look(command) == other.state.look(command)
    assert park_again(driver)
    assert driver.do(command) == other.do(command)
    assert dump(driver.state) == dump(other.state)


def test_a_stream_with_forks_is_not_parked_nor_is_a_fork(driver: Driver) -> None:
    forked = driver.do(Create("b", "f", None, fork=ForkPoint("s")))
    assert isinstance(forked, Created)
    flush(driver.state)
    assert not driver.state.buckets["b"].parked


def test_a_stream_that_is_deleted_and_created_again_is_not_taken_for_the_old_one(driver: Driver) -> None:
    old = driver.described("s").incarnation
    driver.do(Delete("b", "s"))
    driver.create("s", b"x")
    assert driver.described("s").incarnation != old
    assert driver.content("s") == b"x"
    flush(driver.state)
    assert driver.described("s").tail == 1


def test_a_parked_stream_with_a_producer_takes_few_bytes() -> None:
    count = 20_000
    driver = Driver()
    driver.create("first")
    flush(driver.state)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(count):
            name = f"stream-{number:08}"
            producer = Producer("writer-1", 0, 0)
            driver.send(
                Create("b", name, "application/json"),
                Append("b", name, (b'{"n":1}',), "application/json", producer=producer),
            )
        flush(driver.state)
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()
    print(f"{each:.0f} bytes for a parked stream")
    assert len(driver.state.buckets["b"].parked) == count + 1
    assert each < PARKED_BYTES_MAX
