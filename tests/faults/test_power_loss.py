"""Power loss under a running group: what was acknowledged stays, and nothing shown is taken back."""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from tests.faults.rounds import ROUNDS, seeded
from tests.log.lossy_disk import LossyDisk, PowerLoss

from ursula.engine.clock import system_clock
from ursula.engine.failures import Failure, OutcomeUnknown, Unavailable
from ursula.engine.group.group import Group
from ursula.log.file import FileLog
from ursula.model.commands import AnyCommand, Append, Create, Delete, Producer
from ursula.model.offsets import BEGINNING
from ursula.model.outcomes import AnyOutcome, Appended, Created, Ended, Page, Refused

NAMES = ("a", "b", "c")
SEGMENT_BYTES = 2048


class Promises:
    """What the users of a group were told or shown, over all of its lives."""

    def __init__(self) -> None:
        self.messages = 0
        self.acknowledged: dict[str, list[bytes]] = {}
        self.never: set[bytes] = set()
        self.shown: dict[str, bytes] = {}
        self.closed: set[str] = set()
        self.gone: set[str] = set()
        self.may_be_gone: set[str] = set()
        self.outcomes: Counter[str] = Counter()
        self.problem: AssertionError | None = None
        self._current: dict[str, str] = {}

    def look(self, group: Group) -> dict[str, bytes]:
        """Read every stream as a client would and compare with what was seen before; what there is."""
        streams = {}
        for name in NAMES:
            page = group.read("bucket", name, BEGINNING, 1 << 30)
            now = page.incarnation if isinstance(page, Page) else ""
            before = self._current.get(name, "")
            if before and before != now:
                assert before in self.may_be_gone, "a stream is lost"
                self.gone.add(before)
            self._current[name] = now
            if isinstance(page, Page):
                streams[now] = self._see(page)
        return streams

    def watch(self, group: Group) -> None:
        """What a watcher does when it is woken; the group does not pass on what goes wrong there."""
        try:
            self.look(group)
        except AssertionError as problem:
            self.problem = problem

    def check(self, group: Group) -> None:
        """Compare a group with all that was promised."""
        if self.problem is not None:
            raise self.problem
        streams = self.look(group)
        for incarnation in {*self.shown, *self.acknowledged} - self.may_be_gone:
            assert incarnation in streams, "a stream is lost"
        for incarnation, data in streams.items():
            found = data.split(b";")[:-1]
            assert len(found) == len(set(found)), "something was stored twice"
            assert not self.never & set(found), "something was stored that was answered as not written"
            promised = self.acknowledged.get(incarnation, [])
            assert [m for m in found if m in set(promised)] == promised, "lost, or out of order"

    def _see(self, page: Page) -> bytes:
        data, incarnation = b"".join(page.chunks), page.incarnation
        assert data.startswith(self.shown.get(incarnation, b"")), "a stream lost or changed what was shown"
        assert page.closed or incarnation not in self.closed, "a closed stream is open again"
        assert incarnation not in self.gone, "a stream that was gone is back"
        self.shown[incarnation] = data
        if page.closed:
            self.closed.add(incarnation)
        return data


class User:
    """Proposes one command after the other and notes the answers."""

    def __init__(self, name: str, promises: Promises) -> None:
        self.name = name
        self._promises = promises
        self._next_seq: Counter[str] = Counter()

    async def act(self, group: Group, random: Random) -> None:
        """One command, decided or failed."""
        name = random.choice(NAMES)
        found = group.describe("bucket", name)
        if isinstance(found, Refused):
            create = Create("bucket", name, "text/plain", make_bucket=True)
            await self._propose(group, create, lambda outcome: self._created(group, outcome))
            return
        incarnation = found.incarnation
        kind = random.choices(("append", "produce", "close", "delete"), (20, 20, 1, 2))[0]
        if kind == "delete":
            self._promises.may_be_gone.add(incarnation)
            await self._propose(group, Delete("bucket", name, incarnation), self._deleted)
        else:
            await self._append(group, name, incarnation, kind, random)

    async def _append(self, group: Group, name: str, incarnation: str, kind: str, random: Random) -> None:
        self._promises.messages += 1
        message = b"%d" % self._promises.messages + b"x" * random.choice((0, 30, 400, 3000))
        is_producer = kind == "produce"
        producer = Producer(self.name, 0, self._next_seq[incarnation]) if is_producer else None
        closes = kind == "close"
        command = Append(
            "bucket", name, (message + b";",), "text/plain", closes, producer, None, None, incarnation
        )
        await self._propose(group, command, lambda outcome: self._appended(command, message, outcome))

    def _appended(self, command: Append, message: bytes, outcome: AnyOutcome | Failure) -> None:
        promises, incarnation = self._promises, command.incarnation or ""
        if isinstance(outcome, Unavailable | Refused) or (
            isinstance(outcome, Appended) and outcome.duplicate
        ):
            # Of a duplicate the earlier try counts, whose outcome was unknown; this message is not stored.
            promises.never.add(message)
        elif isinstance(outcome, Appended):
            promises.acknowledged.setdefault(incarnation, []).append(message)
            if outcome.closed:
                promises.closed.add(incarnation)
        if isinstance(outcome, Appended) and command.producer is not None:
            self._next_seq[incarnation] = command.producer.seq + 1

    def _created(self, group: Group, outcome: AnyOutcome | Failure) -> None:
        if isinstance(outcome, Created):
            self._promises.acknowledged.setdefault(outcome.incarnation, [])
            group.watchers.add(outcome.incarnation, lambda: self._promises.watch(group))

    def _deleted(self, outcome: AnyOutcome | Failure) -> None:
        if isinstance(outcome, Ended):
            self._promises.gone.add(outcome.incarnation)

    async def _propose(
        self, group: Group, command: AnyCommand, note: Callable[[AnyOutcome | Failure], None]
    ) -> None:
        answered = asyncio.Event()

        def done(outcome: AnyOutcome | Failure) -> None:
            self._promises.outcomes[type(outcome).__name__] += 1
            note(outcome)
            answered.set()

        group.propose(command, done, sum(map(len, command.messages)) if isinstance(command, Append) else 0)
        async with asyncio.timeout(60):
            await answered.wait()


async def live(disk: LossyDisk, users: list[User], promises: Promises, random: Random, acts: int) -> bool:
    """One life of a group: replay, check, use, stop. False if it could not even begin."""
    try:
        log = await FileLog.open("log", segment_bytes=SEGMENT_BYTES, disk=disk)
    except (PowerLoss, OSError):
        return False
    group = Group(0, log, system_clock, log.first)
    running = asyncio.create_task(group.run())
    while not group.recovered and not running.done():
        await asyncio.sleep(0)
    if group.recovered:
        promises.check(group)
        for incarnation in promises.look(group):
            group.watchers.add(incarnation, lambda: promises.watch(group))

        async def use(user: User) -> None:
            for _ in range(acts):
                await user.act(group, random)
                if random.random() < 0.3:
                    promises.look(group)

        await asyncio.gather(*map(use, users))
        promises.check(group)
    await group.stop()
    failures = await asyncio.gather(running, return_exceptions=True)
    assert isinstance(failures[0], PowerLoss | None)
    return group.recovered


def test_power_loss_takes_back_nothing_that_was_acknowledged_or_shown() -> None:
    seeds, total = seeded("power"), Counter[str]()
    for _ in range(4 * ROUNDS):
        random = Random(seed := seeds.getrandbits(32))
        print("seed", seed)
        disk, promises = LossyDisk(seed), Promises()
        users = [User(f"user-{number}", promises) for number in range(4)]
        for _ in range(5):
            if random.random() < 0.7:
                disk.power_fails_after = disk.calls + random.randrange(1, 150)
            for operation in ("write", "sync", "truncate", "create", "sync_directory", "rename"):
                if random.random() < 0.25:
                    times = random.choice((1, 1, 3))
                    disk.fail(operation, errno.EIO, after=random.randrange(2, 40), times=times)
            disk.budget_bytes = random.choice((None, None, disk.used_bytes() + 20_000))
            asyncio.run(live(disk, users, promises, random, acts=15))
            disk.crash(random.choice((None, random)))
            disk.budget_bytes = None
        assert asyncio.run(live(disk, users, promises, random, acts=2))
        total += promises.outcomes
    print(dict(total))
    assert {"Appended", "Created", "Ended", "Unavailable", "OutcomeUnknown"} <= set(total)


@pytest.mark.anyio
async def test_a_full_disk_refuses_writes_and_takes_them_again_when_there_is_room() -> None:
    disk = LossyDisk(budget_bytes=10_000)
    group, running = await _group(disk)
    assert isinstance(await _decided(group, _create()), Created)
    stored = 0
    while isinstance(outcome := await _decided(group, _message(500)), Appended):
        stored += 1
    assert isinstance(outcome, Unavailable)
    assert 0 < stored < 20
    page = group.read("bucket", "a", BEGINNING, 1 << 30)
    assert isinstance(page, Page)
    assert page.tail == stored * 500
    disk.budget_bytes = 100_000
    for _ in range(5):
        assert isinstance(await _decided(group, _message(500)), Appended)
    await group.stop()
    await running
    disk.crash()
    group, running = await _group(disk)
    page = group.read("bucket", "a", BEGINNING, 1 << 30)
    assert isinstance(page, Page)
    assert page.tail == (stored + 5) * 500
    await group.stop()
    await running


@pytest.mark.anyio
async def test_a_failed_sync_is_not_acknowledged_and_the_next_write_works() -> None:
    disk = LossyDisk()
    group, running = await _group(disk)
    await _decided(group, _create())
    disk.fail("sync", errno.EIO)
    assert isinstance(await _decided(group, _message(10)), Unavailable)
    assert isinstance(await _decided(group, _message(20)), Appended)
    await group.stop()
    await running
    disk.crash(Random(3))
    group, running = await _group(disk)
    page = group.read("bucket", "a", BEGINNING, 1 << 30)
    assert isinstance(page, Page)
    assert page.tail == 20
    await group.stop()
    await running


@pytest.mark.anyio
async def test_when_not_even_the_cut_works_the_outcome_is_unknown_and_no_more_is_written() -> None:
    disk = LossyDisk()
    group, running = await _group(disk)
    await _decided(group, _create())
    disk.fail("sync", errno.EIO)
    disk.fail("truncate", errno.EIO)
    assert isinstance(await _decided(group, _message(10)), OutcomeUnknown)
    for _ in range(3):
        assert isinstance(await _decided(group, _message(20)), Unavailable)
    page = group.read("bucket", "a", BEGINNING, 1 << 30)
    assert isinstance(page, Page)
    assert page.tail == 0
    await group.stop()
    await running
    disk.crash()
    group, running = await _group(disk)
    assert isinstance(await _decided(group, _message(30)), Appended)
    page = group.read("bucket", "a", BEGINNING, 1 << 30)
    assert isinstance(page, Page)
    assert page.tail in (30, 40)
    await group.stop()
    await running


async def _group(disk: LossyDisk) -> tuple[Group, asyncio.Task[None]]:
    log = await FileLog.open("log", segment_bytes=SEGMENT_BYTES, disk=disk)
    group = Group(0, log, system_clock, log.first)
    running = asyncio.create_task(group.run())
    while not group.recovered:
        await asyncio.sleep(0)
    return group, running


async def _decided(group: Group, command: AnyCommand) -> AnyOutcome | Failure:
    future: asyncio.Future[AnyOutcome | Failure] = asyncio.get_running_loop().create_future()
    group.propose(command, future.set_result)
    async with asyncio.timeout(60):
        return await future


def _create() -> Create:
    return Create("bucket", "a", "text/plain", make_bucket=True)


def _message(size: int) -> Append:
    return Append("bucket", "a", (b"x" * size,), "text/plain")
