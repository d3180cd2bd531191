"""A flush has time until memory fills up, or somebody waits for it."""

import asyncio

import pytest

from ursula.engine import pacing
from ursula.engine.flush.pace import REST_RATIO, FlushPace
from ursula.engine.pacing import (
    LATE_SLICE_SECONDS,
    REST_SECONDS_MAX,
    REST_SECONDS_MIN,
    SLICE_SECONDS,
    TimeSlice,
)
from ursula.model.journal import Gauge

pytestmark = pytest.mark.anyio

SIZE = 1000


def gauge(count: int) -> Gauge:
    hot = Gauge()
    hot.count = count
    return hot


@pytest.mark.parametrize(
    ("hot", "hot_bytes_max", "rest_ratio"),
    [
        (0, None, REST_RATIO),
        (SIZE, None, REST_RATIO),
        (2 * SIZE, None, REST_RATIO / 2),
        (3 * SIZE, None, 0),
        (2 * SIZE, 100 * SIZE, REST_RATIO / 2),
        (1500, 4 * SIZE, REST_RATIO / 2),
        (2 * SIZE, 4 * SIZE, 0),
        (499, SIZE, REST_RATIO),
        (500, SIZE, 0),  # a flush as large as all that fits begins when it is late already
        (SIZE, SIZE, 0),
    ],
)
def test_the_more_is_in_memory_the_less_a_flush_rests(
    hot: int, hot_bytes_max: int | None, rest_ratio: float
) -> None:
    pace = FlushPace(gauge(hot), SIZE, hot_bytes_max)
    assert pace.rest_ratio() == rest_ratio
    assert pace.is_late() == (rest_ratio == 0)


def test_nobody_waits_for_a_rest() -> None:
    pace = FlushPace(gauge(0), SIZE, None)
    pace.caller_waits = True
    assert pace.rest_ratio() == 0
    assert not pace.is_late()


class Clock:
    """A clock that goes only when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pacing, "time", clock)
    return clock


async def goes_on(time_slice: TimeSlice) -> bool:
    """Whether others go on at the end of a step."""
    others: list[str] = []
    asyncio.get_running_loop().call_soon(others.append, "went on")
    await time_slice.end()
    went_on = bool(others)
    await asyncio.sleep(0)
    return went_on


@pytest.mark.parametrize(("hot", "slice_seconds"), [(0, SLICE_SECONDS), (3 * SIZE, LATE_SLICE_SECONDS)])
async def test_others_go_on_when_the_time_of_a_turn_is_up(
    clock: Clock, hot: int, slice_seconds: float
) -> None:
    time_slice = TimeSlice(FlushPace(gauge(hot), SIZE, None))
    for _ in range(2):
        clock.now += 0.9 * slice_seconds
        assert not await goes_on(time_slice)
        clock.now += 0.2 * slice_seconds
        assert await goes_on(time_slice)


def test_a_rest_is_as_long_as_the_step_allows_but_not_longer_than_the_longest(clock: Clock) -> None:
    time_slice = TimeSlice(FlushPace(gauge(0), SIZE, None))
    for worked_seconds in (SLICE_SECONDS / 2, 0.004, 1.0):
        clock.now += worked_seconds
        time_slice.end_in_thread()
    assert clock.slept == [pytest.approx(REST_RATIO * (0.004 + SLICE_SECONDS / 2)), REST_SECONDS_MAX]


def test_work_that_others_wait_for_does_not_rest(clock: Clock) -> None:
    time_slice = TimeSlice()
    clock.now += 1.0
    time_slice.end_in_thread()
    assert clock.slept == [0]


async def test_others_have_a_moment_after_every_step_on_the_loop(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    time_slice = TimeSlice()
    clock.now += LATE_SLICE_SECONDS
    await time_slice.end()
    assert slept == [REST_SECONDS_MIN]
