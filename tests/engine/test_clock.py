"""The time of a log when the machine's clock jumps."""

import logging

import pytest
from tests.engine.driving import BEGIN, SECOND, FakeClock, GatedLog, create, decided, running, until

from ursula.engine.clock import SLEW, LogClock
from ursula.model.outcomes import Created, Refused

pytestmark = pytest.mark.anyio

HOUR = 3600 * SECOND


def test_the_clock_is_followed_as_long_as_it_runs_forwards() -> None:
    clock = FakeClock()
    log_clock = LogClock(clock, 0, lambda: 0.0)
    for _ in range(3):
        clock.pass_seconds(10)
        assert log_clock() == clock.now
        log_clock.note(log_clock())
    assert log_clock.ahead_seconds == 0


def test_time_goes_on_when_the_clock_was_set_back_and_the_clock_catches_up() -> None:
    clock, monotonic = FakeClock(), [0.0]
    log_clock = LogClock(clock, 0, lambda: monotonic[0])
    log_clock.note(BEGIN + HOUR)
    before = log_clock()
    assert before == BEGIN + HOUR
    aheads = [log_clock.ahead_seconds]
    while log_clock.ahead_seconds:
        clock.pass_seconds(600)
        monotonic[0] += 600
        assert log_clock() - before >= 600 * SECOND * SLEW - 1, "a second takes little more than a second"
        before = log_clock()
        log_clock.note(before)
        aheads.append(log_clock.ahead_seconds)
    assert aheads[0] == 3600
    assert aheads == sorted(aheads, reverse=True)
    assert log_clock() == clock.now


async def test_a_ttl_ends_though_the_clock_was_set_back_by_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        clock.now += HOUR
        assert isinstance(await decided(group, create("early")), Created)
        clock.now -= HOUR
        assert isinstance(await decided(group, create("short", ttl_seconds=1)), Created)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                group.warn_if_clock_is_behind()
        (warning,) = caplog.records
        assert "ahead of this machine's clock" in warning.message
        assert group.status().clock_ahead_seconds > 3500
        await until(lambda: isinstance(group.describe("b", "short"), Refused))
