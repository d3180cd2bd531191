"""What every log must do, run over each of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count, cycle
from pathlib import Path
from typing import Any, cast

import pytest
from tests.log.etcd_members import one_etcd
from tests.log.lossy_disk import LossyDisk
from tests.log.shared_log import SharedLog, SharedMemory

from ursula.etcd.client import EtcdClient
from ursula.log.etcd.log import EtcdLog, EtcdLogs
from ursula.log.file import FileLog
from ursula.log.follower import LIVE_ENTRIES_MAX, Follower
from ursula.log.interface import GENERATION_SHIFT, AppendRetryable, EntriesTrimmed, Entry, Log
from ursula.log.memory import MemoryLog

pytestmark = pytest.mark.anyio

BASE = 1 << GENERATION_SHIFT
ONE_PROCESS = ("memory", "file", "file on a double")
SHARED = ("shared memory", "etcd")
THREE = ("shared memory, three proposers", "etcd, three proposers")

_prefixes = count()


class ThreeProposers:
    """A log that three nodes write in turn; it is followed and trimmed by the first of them."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self._logs = logs
        self._turns = cycle(log.append for log in logs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logs[0], name)

    def append(self, payload: bytes) -> Awaitable[int]:
        return next(self._turns)(payload)

    async def close(self) -> None:
        await asyncio.gather(*(log.close() for log in self._logs))


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
async def one_loop() -> None:
    """One loop for all tests: gRPC's thread still reports to a loop that has just been closed."""


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an etcd for all tests of this file."""
    with one_etcd(tmp_path_factory.mktemp("etcd")) as address:
        yield address


@asynccontextmanager
async def etcd_logs(address: str, prefix: str, node: str) -> AsyncIterator[EtcdLogs]:
    """A node's connection to etcd."""
    logs = EtcdLogs(EtcdClient([address]), prefix, 1, node, kept_bytes=0)
    running = asyncio.gather(logs.run(), logs.client.run())
    try:
        yield logs
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await logs.close()
        await logs.client.close()


@pytest.fixture(params=[*ONE_PROCESS, *SHARED, *THREE])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Log]:
    """An open log of each kind."""
    async with AsyncExitStack() as stack:
        log: Log
        if request.param == "memory":
            log = MemoryLog()
        elif request.param == "file":
            log = await FileLog.open(tmp_path / "log", segment_bytes=4096)
        elif request.param == "file on a double":
            log = await FileLog.open("log", segment_bytes=4096, disk=LossyDisk())
        else:
            logs: list[Log]
            if "memory" in request.param:
                memory = SharedMemory()
                logs = [SharedLog(memory) for _ in range(3)]
            else:
                prefix, address = f"{next(_prefixes)}/", request.getfixturevalue("etcd")
                opened = (etcd_logs(address, prefix, f"node-{number}") for number in range(3))
                nodes = [await stack.enter_async_context(node) for node in opened]
                await nodes[0].create(1)
                logs = [EtcdLog(node, 0) for node in nodes]
            log = cast(Log, ThreeProposers(logs)) if request.param in THREE else logs[0]
        yield log
        await log.close()


async def take(entries: AsyncIterator[Entry], count: int) -> list[Entry]:
    async with asyncio.timeout(60):
        return [await anext(entries) for _ in range(count)]


async def waits(entries: AsyncIterator[Entry]) -> None:
    """Let the loop run until a follower has nothing left to read and waits for the next entry."""
    async with asyncio.timeout(60):
        while isinstance(entries, Follower) and (entries._waiter is None or entries._waiter.done()):
            await asyncio.sleep(0)


async def is_quiet(log: Log, entries: AsyncIterator[Entry]) -> bool:
    """Whether nothing was left for a follower: what it gets next is what is appended next."""
    position = await log.append(b"the next")
    return await take(entries, 1) == [Entry(position, b"the next")]


async def append_all(log: Log, payloads: list[bytes]) -> list[Entry]:
    """Append all of them at once; they are sorted by the order that the log gave them."""

    async def append(payload: bytes) -> Entry:
        return Entry(await log.append(payload), payload)

    return sorted(await asyncio.gather(*map(append, payloads)))


async def test_positions_increase_from_the_generation(log: Log) -> None:
    assert await log.tail() == BASE
    assert log.known_tail in (None, BASE)
    positions = [await log.append(b"x") for _ in range(3)]
    assert BASE < positions[0] < positions[1] < positions[2] < 2 * BASE
    assert await log.tail() == positions[2]
    assert log.known_tail in (None, positions[2])


async def test_a_follower_sees_each_entry_once_in_order(log: Log) -> None:
    payloads = [b"%d" % number * 50 for number in range(300)]
    appended = [Entry(await log.append(payload), payload) for payload in payloads[:150]]
    entries = log.follow(BASE)
    reading = asyncio.create_task(take(entries, 300))
    appended += await append_all(log, payloads[150:])
    assert await reading == appended
    assert await is_quiet(log, entries)


async def test_a_follower_begins_after_any_position(log: Log) -> None:
    positions = [await log.append(b"%d" % number * 200) for number in range(60)]
    for index, after in enumerate(positions[:-1]):
        assert (await anext(log.follow(after))).position == positions[index + 1]
    assert await is_quiet(log, log.follow(positions[-1]))


async def test_a_follower_may_begin_before_the_first_generation(log: Log) -> None:
    position = await log.append(b"x")
    assert await anext(log.follow(0)) == Entry(position, b"x")


@pytest.mark.parametrize("log", ONE_PROCESS, indirect=True)
async def test_a_live_entry_is_the_object_that_was_appended(log: Log) -> None:
    await log.append(b"stored")
    entries = log.follow(BASE)
    payload = bytes(bytearray(b"live"))
    await log.append(payload)
    assert (await take(entries, 2))[1].payload is payload


async def test_a_waiting_follower_wakes_for_each_entry(log: Log) -> None:
    entries = log.follow(BASE)
    for _ in range(5):
        waiting = asyncio.create_task(take(entries, 1))
        await waits(entries)
        position = await log.append(b"x")
        assert await waiting == [Entry(position, b"x")]


async def test_each_entry_is_either_taken_or_read_in_order(log: Log) -> None:
    seen: list[Entry] = []

    def take_some(entry: Entry) -> bool:
        if entry.payload.startswith(b"read"):
            return False
        seen.append(entry)
        return True

    async def read() -> None:
        async for entry in log.follow(BASE, None, take_some):
            seen.append(entry)

    appended = [Entry(await log.append(b"stored"), b"stored")]
    reading = asyncio.create_task(read())
    for number in range(5):
        appended += await append_all(log, [b"%b %d" % (kind, number) for kind in (b"take", b"read") * 3])
    async with asyncio.timeout(60):
        while len(seen) < len(appended):
            await asyncio.sleep(0.001)
    assert seen == appended
    reading.cancel()


@pytest.mark.parametrize("log", ONE_PROCESS, indirect=True)
async def test_a_waiting_follower_need_not_wake_for_an_entry_that_is_taken(log: Log) -> None:
    taken: list[Entry] = []

    def take_all(entry: Entry) -> bool:
        taken.append(entry)
        return True

    entries = log.follow(BASE, None, take_all)
    waiting = asyncio.create_task(take(entries, 1))
    await waits(entries)
    appended = [Entry(await log.append(b"x"), b"x") for _ in range(5)]
    assert taken == appended
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.parametrize("log", ONE_PROCESS, indirect=True)
async def test_a_follower_raises_what_taking_an_entry_raised(log: Log) -> None:
    def fail(entry: Entry) -> bool:
        raise RuntimeError("a bug")

    entries = log.follow(BASE, None, fail)
    waiting = asyncio.create_task(take(entries, 1))
    await waits(entries)
    await log.append(b"x")
    with pytest.raises(RuntimeError, match="a bug"):
        await waiting


async def test_several_followers_see_the_same(log: Log) -> None:
    readers = [asyncio.create_task(take(log.follow(BASE), 100)) for _ in range(5)]
    await asyncio.gather(*(log.append(b"%d" % number) for number in range(100)))
    first, *others = await asyncio.gather(*readers)
    assert all(other == first for other in others)


async def test_a_cancelled_wait_loses_nothing(log: Log) -> None:
    positions = [await log.append(b"%d" % number * 100) for number in range(100)]
    entries = log.follow(BASE)
    waiting = asyncio.create_task(take(entries, 1))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    taken = [] if waiting.cancelled() else waiting.result()
    taken += await take(entries, 100 - len(taken))
    assert [entry.position for entry in taken] == positions
    assert await is_quiet(log, entries)
    position = await log.append(b"later")
    assert await take(entries, 1) == [Entry(position, b"later")]


async def test_a_follower_far_behind_still_misses_nothing(log: Log) -> None:
    entries = log.follow(BASE)
    await log.append(b"first")
    await take(entries, 1)
    count = LIVE_ENTRIES_MAX + 100 if log.known_tail is not None else 300
    appended = await append_all(log, [b"x"] * count)
    assert await take(entries, count) == appended
    position = await log.append(b"last")
    assert await take(entries, 1) == [Entry(position, b"last")]


@pytest.mark.parametrize("log", [*ONE_PROCESS, *SHARED], indirect=True)
async def test_a_cancelled_append_is_still_followed_in_order(log: Log) -> None:
    entries = log.follow(BASE)
    appending = asyncio.ensure_future(log.append(b"cancelled"))
    await asyncio.sleep(0)
    appending.cancel()
    await log.append(b"next")
    assert [entry.payload for entry in await take(entries, 2)] == [b"cancelled", b"next"]


async def test_a_payload_may_be_empty_or_larger_than_a_segment(log: Log) -> None:
    payloads = [b"", b"y" * 3_000_000, b"", b"z" * 5000, b"small"]
    for payload in payloads:
        await log.append(payload)
    assert [entry.payload for entry in await take(log.follow(BASE), 5)] == payloads


async def test_trim_never_removes_more_than_asked(log: Log) -> None:
    positions = [await log.append(b"x" * 500) for _ in range(40)]
    await log.trim(positions[19])
    left = await take(log.follow(positions[19]), 20)
    assert [entry.position for entry in left] == positions[20:]


async def test_following_from_before_the_trimmed_entries_says_so(log: Log) -> None:
    positions = [await log.append(b"x" * 500) for _ in range(40)]
    await log.trim(positions[19])
    assert BASE < log.first <= positions[19]
    with pytest.raises(EntriesTrimmed) as caught:
        await anext(log.follow(BASE))
    assert (caught.value.after, caught.value.first) == (BASE, log.first)
    assert (await anext(log.follow(log.first))).position == next(p for p in positions if p > log.first)


async def test_trimming_everything_keeps_the_position(log: Log) -> None:
    last = [await log.append(b"x" * 500) for _ in range(20)][-1]
    await log.trim(last + 1000)
    assert await log.tail() == last
    assert log.first <= last
    position = await log.append(b"x")
    assert position > last
    assert await anext(log.follow(last)) == Entry(position, b"x")


async def test_trim_makes_the_log_smaller(log: Log) -> None:
    last = [await log.append(b"x" * 500) for _ in range(40)][-1]
    await take(log.follow(BASE), 40)
    before = log.measures.size_bytes
    await log.trim(last)
    assert 20_000 <= before < 30_000
    assert log.measures.size_bytes < 5000


async def test_close_ends_followers_and_rejects_appends(log: Log) -> None:
    entries = log.follow(BASE)
    await log.append(b"x")
    await take(entries, 1)
    waiting = asyncio.create_task(take(entries, 1))
    await waits(entries)
    await log.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    with pytest.raises(AppendRetryable):
        await log.append(b"y")
    assert [entry async for entry in log.follow(BASE)] == []


async def test_close_finishes_what_was_begun(log: Log) -> None:
    appends = [asyncio.ensure_future(log.append(b"x")) for _ in range(20)]
    await asyncio.sleep(0)
    await log.close()
    assert sorted([await append for append in appends]) == sorted({append.result() for append in appends})


async def test_the_measures_report_what_the_log_holds(log: Log) -> None:
    positions = [await log.append(b"x" * 500) for _ in range(20)]
    await take(log.follow(BASE), 20)
    measures = log.measures
    assert (measures.first, measures.tail) == (BASE, positions[-1])
    assert measures.size_bytes >= 10_000
    if isinstance(log, FileLog):
        assert measures.segment_count is not None
        assert measures.segment_count > 1
        assert measures.sync_seconds is not None
        assert measures.sync_seconds.count == 20
        assert measures.sync_seconds.total > 0
    else:
        assert measures.segment_count is None
        assert measures.sync_seconds is None
