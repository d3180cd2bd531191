"""A walk through names that come and go meanwhile."""

from itertools import islice

import pytest
from sortedcontainers import SortedList
from tests.model.driving import Driver

from ursula.model import walking
from ursula.model.commands import Delete, Undelete
from ursula.model.walking import walk


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "NAMES_AT_ONCE", 2)


def test_what_is_there_all_the_while_is_met_once_and_what_comes_or_goes_perhaps() -> None:
    names = SortedList(["b", "d", "f", "h", "j"])
    found = walk(names)
    first = list(islice(found, 3))
    for name in ("b", "h"):
        names.remove(name)
    names.update(["a", "e", "g", "k"])
    assert [*first, *found] == ["b", "d", "f", "h", "j", "k"]


def test_no_more_names_are_copied_at_once_than_a_few() -> None:
    names = SortedList(range(100))
    found = walk(names)
    next(found)
    names.clear()
    assert list(found) == [1]


def test_the_names_of_a_bucket_are_also_those_out_of_sight() -> None:
    driver = Driver()
    for name in ("a", "b", "c", "d", "e"):
        driver.create(name, b"x")
    driver.fork("f", "c")
    driver.do(Delete("b", "c"))
    driver.do(Delete("b", "d"))
    bucket = driver.state.buckets["b"]
    assert sorted(bucket.all_names()) == ["a", "b", "c", "e", "f"]
    driver.do(Undelete("b", "c"))
    assert list(bucket.all_names()) == ["a", "b", "c", "e", "f"]
    driver.do(Delete("b", "c"))
    driver.do(Delete("b", "f"))
    assert list(bucket.all_names()) == ["a", "b", "e"]
