"""A group on logs that wait, fail or hold back, with a clock that moves when it is told to."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from ursula.engine.failures import Failure
from ursula.engine.group.group import Group
from ursula.log.interface import GENERATION_SHIFT, AppendFailed, Entry, Log, Measures, TakeEntry
from ursula.log.memory import MemoryLog
from ursula.model.codec import entry as entries
from ursula.model.commands import AnyCommand, Append, Create, Producer
from ursula.model.outcomes import AnyOutcome, Page

BASE = 1 << GENERATION_SHIFT
SECOND = 1_000_000
BEGIN = 1_000_000 * SECOND


class GatedLog(MemoryLog):
    """A log whose appends can be held back and made to fail. `entries` is what it was asked to keep."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[list[AnyCommand]] = []
        self.failures: list[AppendFailed] = []
        self._open = asyncio.Event()
        self._open.set()

    def hold(self) -> None:
        """Let appends wait."""
        self._open.clear()

    def let_go(self) -> None:
        """Let appends through."""
        self._open.set()

    async def append(self, payload: bytes) -> int:
        """Keep the payload once it is let through, unless it is its turn to fail."""
        self.entries.append(entries.decode(payload).commands)
        await self._open.wait()
        if self.failures:
            raise self.failures.pop(0)
        return await super().append(payload)


class RemoteLog:
    """A log whose tail must be asked for, as in a cluster. The calls of `tail` can be held and can fail."""

    known_tail = None
    batch_bytes = MemoryLog.batch_bytes
    entry_bytes_max: int | None = None
    space_problem: str | None = None

    def __init__(self) -> None:
        self.memory = GatedLog()
        self.tail_calls = 0
        self.tail_failures: list[Exception] = []
        self._answers = asyncio.Event()
        self._answers.set()

    def hold_tail(self) -> None:
        """Let calls of `tail` wait."""
        self._answers.clear()

    def answer_tail(self) -> None:
        """Answer the calls of `tail`."""
        self._answers.set()

    @property
    def first(self) -> int:
        return self.memory.first

    @property
    def measures(self) -> Measures:
        return self.memory.measures

    def append(self, payload: bytes) -> Awaitable[int]:
        return self.memory.append(payload)

    def follow(
        self, after: int, count: int | None = None, take: TakeEntry | None = None
    ) -> AsyncIterator[Entry]:
        return self.memory.follow(after, count, take)

    async def tail(self) -> int:
        self.tail_calls += 1
        await self._answers.wait()
        if self.tail_failures:
            raise self.tail_failures.pop(0)
        return await self.memory.tail()

    async def protect(self, after: int) -> int:
        return await self.memory.protect(after)

    async def trim(self, upto: int) -> None:
        await self.memory.trim(upto)

    async def close(self) -> None:
        await self.memory.close()


class FakeClock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> int:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass."""
        self.now += int(seconds * SECOND)


class Answers:
    """The outcomes of proposals, in the order in which they came."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.all: list[AnyOutcome | Failure] = []
        self.by_number: dict[int, AnyOutcome | Failure] = {}
        self._count = 0

    def propose(self, command: AnyCommand, unsplit: str | None = None) -> int:
        """Propose without waiting; returns the number under which the answer will be found."""
        number = self._count
        self._count += 1

        def done(outcome: AnyOutcome | Failure) -> None:
            assert number not in self.by_number, "answered twice"
            self.by_number[number] = outcome
            self.all.append(outcome)

        messages = command.messages if isinstance(command, Append | Create) else ()
        self.group.propose(command, done, sum(map(len, messages)), unsplit)
        return number

    async def settled(self) -> list[AnyOutcome | Failure]:
        """All answers, once they are there."""
        await until(lambda: len(self.all) == self._count)
        return [self.by_number[number] for number in range(self._count)]


@asynccontextmanager
async def running(log: Log, clock: Callable[[], int] | None = None) -> AsyncIterator[Group]:
    """A group that has replayed its log; stopped at the end."""
    group = Group(0, log, clock or FakeClock(), BASE)
    task = asyncio.create_task(group.run())
    try:
        await until(lambda: group.recovered or task.done())
        yield group
    finally:
        await group.stop()
        await task


async def decided(group: Group, command: AnyCommand) -> AnyOutcome | Failure:
    """Propose and wait for the answer."""
    answers = Answers(group)
    answers.propose(command)
    return (await answers.settled())[0]


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until something is so."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


class Stretches:
    """How long the loop's thread works without letting others have their turn.

    Work is counted, not time: a thread that waits for a processor does not work. And the measure is all of
    the work: on a slow machine the longest stretch is as small a part of it as on a fast one.
    """

    def __init__(self) -> None:
        self._stretches: list[float] = []
        self.begin()

    def begin(self) -> None:
        """What was done so far does not count."""
        self._last = time.thread_time()

    def note(self) -> None:
        """Others have their turn."""
        now = time.thread_time()
        self._stretches.append(now - self._last)
        self._last = now

    def are_short(self) -> bool:
        """Whether no stretch was a large part of the whole."""
        longest, whole = max(self._stretches), sum(self._stretches)
        print(f"{len(self._stretches)} stretches, the longest of {longest:.4f} s, of {whole:.4f} s together")
        return longest < whole / 4


async def a_while() -> None:
    """Let everything happen that can."""
    for _ in range(50):
        await asyncio.sleep(0)


def create(name: str = "s", ttl_seconds: int | None = None) -> Create:
    """A stream of text."""
    return Create("b", name, "text/plain", ttl_seconds=ttl_seconds, make_bucket=True)


def append(data: bytes, name: str = "s", seq: int | None = None, close: bool = False) -> Append:
    """An append, perhaps by a producer."""
    producer = None if seq is None else Producer("p", 0, seq)
    return Append("b", name, (data,) if data else (), "text/plain", close, producer)


def content(group: Group, name: str = "s") -> bytes:
    """Everything in a stream."""
    page = group.read("b", name, 0, 1 << 30)
    assert isinstance(page, Page), page
    return b"".join(page.chunks)
