"""Background tasks: nothing awaits them, and still no exception is lost."""

import asyncio
import logging

import pytest

from ursula.engine.background import BackgroundTasks

pytestmark = pytest.mark.anyio


async def test_an_exception_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise RuntimeError("a bug")

    tasks = BackgroundTasks()
    with caplog.at_level(logging.ERROR):
        task = tasks.spawn(fail())
        await asyncio.wait((task,))
        await asyncio.sleep(0)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "a bug"
    assert "fail" in record.message


async def test_a_cancelled_task_is_not_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    tasks = BackgroundTasks()
    task = tasks.spawn(asyncio.Event().wait())  # type: ignore[arg-type]
    await asyncio.sleep(0)
    tasks.cancel()
    await tasks.wait(60)
    assert task.cancelled()
    assert caplog.records == []


async def test_all_are_waited_for_but_not_longer_than_the_timeout() -> None:
    tasks, may_end = BackgroundTasks(), asyncio.Event()
    ended: list[int] = []

    async def work(number: int) -> None:
        await may_end.wait()
        ended.append(number)

    for number in range(3):
        tasks.spawn(work(number))
    await tasks.wait(0.001)
    assert ended == []
    may_end.set()
    await tasks.wait(60)
    assert ended == [0, 1, 2]
    await tasks.wait(60)
