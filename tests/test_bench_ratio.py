"""How the benchmarks compare two servers, or two figures of ours."""

import pytest
from bench.results import OURS, Figure, Row, Run, Verdict


def figure(ours: list[float], theirs: list[float]) -> Figure:
    """A figure with the results of some rounds."""
    found = Figure("appends/s")
    for server, values in ((OURS, ours), ("rival", theirs)):
        for value in values:
            found.add(server, value)
    return found


def test_a_machine_that_gets_slower_and_slower_changes_no_ratio() -> None:
    assert figure([100, 50, 20], [50, 25, 10]).ratio("rival") == 2.0


def test_one_odd_round_does_not_change_the_ratio() -> None:
    assert figure([100, 100, 5], [50, 50, 50]).ratio("rival") == 2.0


@pytest.mark.parametrize("theirs", [[50, 50], [50, 0, 50]], ids=["fewer rounds", "a round without"])
def test_the_medians_are_compared_if_the_rounds_cannot_be(theirs: list[float]) -> None:
    assert figure([100, 100, 100], theirs).ratio("rival") == 2.0


@pytest.mark.parametrize(("ours", "theirs"), [([], [1.0]), ([1.0], []), ([1.0], [0.0])])
def test_what_was_not_measured_has_no_ratio(ours: list[float], theirs: list[float]) -> None:
    assert figure(ours, theirs).ratio("rival") is None


@pytest.mark.parametrize(("asked", "verdict"), [(2.0, Verdict.MET), (2.1, Verdict.MISSED)])
def test_a_row_says_whether_its_target_is_met(asked: float, verdict: Verdict) -> None:
    row = Row("append", "appends")
    row.at_least(figure([100], [50]), asked, "rival", "the rival")
    (check,) = row.checks
    assert (check.verdict, check.found) == (verdict, "2.00x")


def rows(work: str, *titles: str) -> list[Row]:
    return [Row(work, title, work=work) for title in titles]


def test_measuring_some_rows_again_keeps_the_others_in_their_order() -> None:
    run = Run({}, {})
    order = ["append", "read", "sse"]
    for work in ("append", "read", "sse"):
        run.replace(work, rows(work, f"{work} 1", f"{work} 2"), order)
    run.replace("read", rows("read", "read again"), order)
    assert [row.title for row in run.rows] == ["append 1", "append 2", "read again", "sse 1", "sse 2"]
