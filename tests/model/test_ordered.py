"""Iterating over names that come and go meanwhile."""

from itertools import islice

import pytest
from sortedcontainers import SortedList
from tests.model.driving import Driver

from ursula.model import ordered
from ursula.model.commands import Delete, Undelete
from ursula.model.ordered import iterate_while_changing


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "NAMES_AT_ONCE", 2)


def test_a_name_that_is_there_all_the_while_is_returned_once_and_one_that_comes_or_goes_perhaps() -> None:
    names = SortedList(["b", "d", "f", "h", "j"])
    found = iterate_while_changing(names)
    first = list(islice(found, 3))
    for name in ("b", "h"):
        names.remove(name)
    names.update(["a", "e", "g", "k"])
    assert [*first, *found] == ["b", "d", "f", "h", "j", "k"]


def test_only_a_few_names_are_copied_at_once() -> None:
    names = SortedList(range(100))
    found = iterate_while_changing(names)
    next(found)
    names.clear()
    assert list(found) == [1]


def test_the_names_of_a_bucket_include_hidden_streams() -> None:
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
