"""Reads from any offset, and the messages behind them."""

import pytest
from tests.model.driving import Driver

from ursula.model.offsets import BEGINNING, TAIL
from ursula.model.outcomes import Refused
from ursula.model.stream.messages import Messages


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create("s", b"abc")
    driver.append("s", b"defgh")
    driver.append("s", b"i")
    driver.create("j", b"1", b"22", b"333", content_type="application/json")
    return driver


def test_a_read_gives_as_many_bytes_as_were_asked_for(driver: Driver) -> None:
    page = driver.page("s", 1, 5)
    assert (b"".join(page.chunks), page.offset, page.next_offset, page.tail) == (b"bcdef", 1, 6, 9)


def test_a_read_that_keeps_messages_whole_gives_at_least_one(driver: Driver) -> None:
    assert driver.page("s", 0, 7, whole=True).chunks == [b"abc"]
    assert driver.page("s", 0, 8, whole=True).chunks == [b"abc", b"defgh"]
    assert driver.page("s", 3, 2, whole=True).chunks == [b"defgh"]
    assert driver.page("s", 4, 2, whole=True).chunks == [b"efgh"]


def test_json_messages_are_never_cut(driver: Driver) -> None:
    assert driver.page("j", 0, 4).chunks == [b"1", b"22"]
    assert driver.page("j", 3, 1).chunks == [b"333"]
    inside = driver.state.reads.read("b", "j", 2, 10, whole=False)
    assert isinstance(inside, Refused)
    assert inside.code == "invalid_offset"


def test_the_ends_of_a_stream_have_names(driver: Driver) -> None:
    assert driver.page("s", BEGINNING).chunks == [b"abc", b"defgh", b"i"]
    tail = driver.page("s", TAIL)
    assert (tail.chunks, tail.offset, tail.next_offset) == ([], 9, 9)
    assert driver.page("s", 9).chunks == []


def test_an_offset_beyond_the_tail_is_refused_with_the_tail(driver: Driver) -> None:
    for offset in (10, 10**20 - 1):
        refusal = driver.state.reads.read("b", "s", offset, 10, whole=False)
        assert isinstance(refusal, Refused)
        assert (refusal.code, refusal.tail) == ("offset_beyond_tail", 9)


def test_what_is_not_there_cannot_be_read(driver: Driver) -> None:
    nowhere = driver.state.reads.read("nowhere", "s", 0, 10, whole=False)
    nothing = driver.state.reads.read("b", "nothing", 0, 10, whole=False)
    another = driver.state.reads.read("b", "s", 0, 10, whole=False, incarnation="9-9-9")
    codes = [getattr(refusal, "code", None) for refusal in (nowhere, nothing, another)]
    assert codes == ["bucket_not_found", "stream_not_found", "incarnation_mismatch"]


def test_messages_know_their_boundaries_and_their_appends() -> None:
    messages = Messages(10)
    assert messages.end == 10
    assert messages.add((b"abc",)) == 13
    assert messages.add((b"d", b"ef", b"g")) == 17
    assert messages.add((b"h",)) == 18
    assert [offset for offset in range(9, 20) if messages.is_boundary(offset)] == [10, 13, 14, 16, 17, 18]
    assert [messages.append_end_after(offset) for offset in (10, 12, 13, 16, 17, 18)] == [
        13,
        13,
        17,
        17,
        18,
        18,
    ]
    assert [messages.count_before(offset) for offset in (10, 13, 15, 18)] == [0, 1, 2, 5]
    assert messages.message_ends(13, 17).tolist() == [14, 16, 17]
