"""Bulk writes: each row once, in whatever parts and however often it is tried."""

from collections.abc import Callable

import pytest
from tests.model.driving import SECOND, Driver
from tests.model.storing import flush, reloaded

from ursula.model.commands import (
    Append,
    Collect,
    Create,
    CreateBucket,
    Delete,
    DeleteBucket,
    IngestBegin,
    IngestRow,
    IngestRows,
)
from ursula.model.dump import dump
from ursula.model.outcomes import Ignored, Ingest, RowsIngested

Between = Callable[[Driver], None]

ONE, TWO = "staging/b/one", "staging/b/two"


def nothing(driver: Driver) -> None:
    """Everything stays in memory."""


def restarted(driver: Driver) -> None:
    """Another process goes on."""
    flush(driver.state)
    driver.state = reloaded(driver.state)


@pytest.fixture(params=[nothing, restarted])
def between(request: pytest.FixtureRequest) -> Between:
    happening: Between = request.param
    return happening


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.do(CreateBucket("b"))
    return driver


def begin(
    driver: Driver, version: int = 1, objects: tuple[str, ...] = (ONE,), drop: bool = False, at: int = 0
) -> Ingest:
    outcome = driver.do(IngestBegin("b", "job", version, objects, True, None, drop, at or driver.now))
    assert isinstance(outcome, Ingest)
    return outcome


def rows(
    first: int, *values: bytes, number: int = 0, version: int = 1, end: bool = False, stream: str = "s"
) -> IngestRows:
    made = tuple(IngestRow(stream, (value,), "text/plain") for value in values)
    return IngestRows("b", "job", version, number, first, made, end)


def test_only_the_part_that_comes_next_is_applied(driver: Driver, between: Between) -> None:
    begin(driver, objects=(ONE, TWO))
    assert driver.do(rows(1, b"2")) == Ignored()
    assert isinstance(driver.do(rows(0, b"1", b"2")), RowsIngested)
    between(driver)
    for late in (rows(0, b"1", b"2"), rows(1, b"2"), rows(0, b"x", number=1), rows(2, b"x", version=2)):
        assert driver.state.look(late) == Ignored()
        assert driver.do(late) == Ignored()
    driver.do(rows(2, b"3", end=True))
    between(driver)
    outcome = driver.do(rows(0, b"4", number=1, end=True))
    assert isinstance(outcome, RowsIngested)
    assert (outcome.ingest.appended, outcome.ingest.ended, outcome.ingest.failed) == (4, True, False)
    assert driver.do(rows(1, b"x", number=1)) == Ignored()
    between(driver)
    assert begin(driver).appended == 4
    assert driver.state.ingests["b", "job"].ended
    assert dump(driver.state) == dump(reloaded(driver.state))


def test_a_newer_version_waits_for_the_end_of_the_older(driver: Driver, between: Between) -> None:
    begin(driver, version=1)
    between(driver)
    found = begin(driver, version=2, objects=(TWO,))
    assert (found.version, found.ended) == (1, False)
    driver.do(rows(0, b"1", end=True))
    assert begin(driver, version=2, objects=(TWO,)).version == 2
    assert driver.code(IngestBegin("b", "job", 1, (), True, None, False, driver.now)) == "ingest_outdated"


def test_a_refused_row_is_the_end_of_it(driver: Driver, between: Between) -> None:
    driver.create("s")
    driver.create("closed")
    driver.do(Append("b", "closed", (), None, close=True))
    begin(driver, objects=(ONE, TWO))
    row = IngestRow("closed", (b"x",), "text/plain")
    part = IngestRows("b", "job", 1, 0, 0, (*rows(0, b"1").rows, row, *rows(0, b"2").rows), True)
    driver.do(part)
    assert driver.content("s") == b"1"
    between(driver)
    found = begin(driver)
    assert (found.appended, found.failed, found.refused[0].row) == (1, True, 1)


def test_a_stream_of_another_type_than_was_assumed_makes_the_part_void(driver: Driver) -> None:
    driver.create("s", content_type="application/json")
    begin(driver)
    assumed = IngestRow("s", (b"text",), "text/plain", assumed=True)
    said = IngestRow("s", (b"text",), "text/plain")
    new = IngestRow("t", (b"text",), "text/plain", assumed=True)
    assert driver.do(IngestRows("b", "job", 1, 0, 0, (new, assumed), False)) == Ignored()
    assert driver.state.find("b", "t") is None
    outcome = driver.do(IngestRows("b", "job", 1, 0, 0, (new, said), False))
    assert isinstance(outcome, RowsIngested)
    assert outcome.ingest.refused[0].code == "content_type_mismatch"


def test_objects_are_kept_until_nobody_needs_them(driver: Driver) -> None:
    state = driver.state
    begin(driver, objects=(ONE, TWO))
    driver.do(IngestBegin("b", "other", 1, (TWO,), True, None, False, driver.now))
    assert not state.stored.replaced
    driver.do(rows(0, end=True))
    driver.do(rows(0, number=1, end=True))
    assert set(state.stored.replaced) == {ONE}
    begin(driver, version=2, objects=(ONE,))
    assert not state.stored.replaced
    driver.do(DeleteBucket("b"))
    assert set(state.stored.replaced) == {ONE, TWO}
    assert not state.ingests


def test_objects_that_may_be_collected_already_are_refused(driver: Driver) -> None:
    driver.do(Collect(driver.now, 0))
    command = IngestBegin("b", "job", 1, (ONE,), True, None, False, driver.now - SECOND)
    assert driver.code(command) == "unavailable"
    assert not driver.state.ingests


def test_a_stream_is_made_again_after_it_was_deleted(driver: Driver) -> None:
    begin(driver)
    driver.do(rows(0, b"1"))
    driver.do(Delete("b", "s"))
    driver.do(rows(1, b"2", end=True))
    assert driver.content("s") == b"2"
    assert driver.do(Create("b", "s", "text/plain")).incarnation.endswith("-0")  # type: ignore[union-attr]
