"""Attributes: replaced as a whole, cleared by an empty object, and no part of the stream's bytes."""

import pytest
from tests.model.driving import SECOND, Driver
from tests.model.oracle import Row
from tests.model.rows import rows_of

from ursula.model.commands import Append, Create, Delete, ForkPoint, SetAttributes
from ursula.model.dump import dump
from ursula.model.outcomes import AttributesSet, Created

ONE = b'{"title":"one"}'
TWO = b'{"metadata":{"n":2},"title":"two"}'
NONE = b"{}"


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create("s", b"abc")
    return driver


def last_row(driver: Driver) -> Row:
    return rows_of(driver.state.buckets["b"].journal)[-1]


def test_a_stream_has_no_attributes_unless_it_is_given_some(driver: Driver) -> None:
    assert driver.described("s").attributes is None


def test_attributes_are_replaced_as_a_whole(driver: Driver) -> None:
    incarnation = driver.described("s").incarnation
    assert driver.do(SetAttributes("b", "s", TWO)) == AttributesSet(incarnation)
    assert driver.do(SetAttributes("b", "s", ONE)) == AttributesSet(incarnation)
    assert driver.described("s").attributes == ONE


def test_an_empty_object_clears_them(driver: Driver) -> None:
    driver.do(SetAttributes("b", "s", ONE))
    driver.do(SetAttributes("b", "s", NONE))
    assert driver.described("s").attributes is None
    assert last_row(driver).event == {"attributes": {}}


@pytest.mark.parametrize(("there", "asked"), [(NONE, NONE), (ONE, ONE)])
def test_equal_attributes_change_nothing(driver: Driver, there: bytes, asked: bytes) -> None:
    driver.do(SetAttributes("b", "s", there))
    driver.state.begin(40, driver.now)
    before = dump(driver.state)
    incarnation = driver.described("s").incarnation
    assert driver.state.look(SetAttributes("b", "s", asked)) == AttributesSet(incarnation)
    assert driver.state.apply(SetAttributes("b", "s", asked), 0) == AttributesSet(incarnation)
    assert dump(driver.state) == before


def test_attributes_are_writable_after_close_and_are_no_write(driver: Driver) -> None:
    driver.do(Append("b", "s", (), None, close=True))
    before = driver.stream("s").last_write_at
    driver.now += SECOND
    driver.do(SetAttributes("b", "s", ONE))
    assert driver.described("s").attributes == ONE
    assert (driver.described("s").closed, driver.described("s").tail) == (True, 3)
    assert driver.stream("s").last_write_at == before


def test_what_is_not_there_has_no_attributes(driver: Driver) -> None:
    driver.fork("f", "s")
    driver.do(Delete("b", "s"))
    assert driver.code(SetAttributes("nowhere", "s", ONE)) == "bucket_not_found"
    assert driver.code(SetAttributes("b", "nothing", ONE)) == "stream_not_found"
    assert driver.code(SetAttributes("b", "s", NONE)) == "stream_gone"
    assert driver.code(SetAttributes("b", "f", NONE, "9-9-9")) == "incarnation_mismatch"
    assert driver.do(SetAttributes("b", "f", ONE, driver.described("f").incarnation)) is not None
    assert driver.described("f").attributes == ONE


def test_a_stream_may_be_created_with_attributes(driver: Driver) -> None:
    driver.do(Create("b", "t", None, attributes=TWO))
    assert driver.described("t").attributes == TWO
    assert last_row(driver).event == {"attributes": {"metadata": {"n": 2}, "title": "two"}}
    driver.do(Create("b", "u", None, attributes=NONE))
    assert driver.described("u").attributes is None
    assert last_row(driver).event is None


def test_creating_again_compares_attributes_only_when_they_are_sent(driver: Driver) -> None:
    driver.do(SetAttributes("b", "s", ONE))
    assert isinstance(driver.do(Create("b", "s", "text/plain")), Created)
    assert isinstance(driver.do(Create("b", "s", "text/plain", attributes=ONE)), Created)
    assert driver.code(Create("b", "s", "text/plain", attributes=TWO)) == "stream_exists"
    assert driver.code(Create("b", "s", "text/plain", attributes=NONE)) == "stream_exists"
    driver.do(SetAttributes("b", "s", NONE))
    assert isinstance(driver.do(Create("b", "s", "text/plain", attributes=NONE)), Created)
    assert driver.code(Create("b", "s", "text/plain", attributes=ONE)) == "stream_exists"
    assert driver.described("s").attributes is None


def test_a_fork_has_attributes_of_its_own(driver: Driver) -> None:
    driver.do(SetAttributes("b", "s", ONE))
    driver.fork("f", "s")
    assert driver.described("f").attributes is None
    driver.do(Create("b", "g", None, fork=ForkPoint("s"), attributes=TWO))
    assert driver.described("g").attributes == TWO
    assert driver.described("s").attributes == ONE


def test_a_new_stream_at_an_old_name_begins_without_attributes(driver: Driver) -> None:
    driver.do(SetAttributes("b", "s", ONE))
    driver.do(Delete("b", "s"))
    driver.create("s")
    assert driver.described("s").attributes is None
