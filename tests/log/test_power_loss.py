"""Power loss at every moment: what was acknowledged or shown stays, once and in order."""

import asyncio
import errno
from contextlib import suppress
from random import Random

import pytest
from tests.log.file_log import BASE, opened, read_all, read_payloads, write
from tests.log.lossy_disk import LossyDisk, PowerLoss

from ursula.log.file import FileLog
from ursula.log.interface import AppendFailed, AppendRetryable, EntriesTrimmed, Entry


class Witness:
    """What the log reported to its users, over all of its lives."""

    def __init__(self) -> None:
        self.acknowledged: list[Entry] = []
        self.shown: set[Entry] = set()
        self.refused: set[bytes] = set()
        self.trimmed = BASE
        self.numbers = 0

    async def watch(self, log: FileLog, after: int) -> None:
        """Follow until the log ends or the power does."""
        with suppress(PowerLoss, EntriesTrimmed):
            async for entry in log.follow(after):
                self.shown.add(entry)

    async def append(self, log: FileLog, size: int) -> None:
        """Append a payload like no other and note the answer."""
        self.numbers += 1
        payload = b"%08d" % self.numbers + b"x" * size
        try:
            self.acknowledged.append(Entry(await log.append(payload), payload))
        except AppendRetryable:
            self.refused.add(payload)
        except AppendFailed:
            pass

    async def check(self, log: FileLog) -> None:
        """Compare with what the log has now."""
        entries = await read_all(log)
        positions = [entry.position for entry in entries]
        assert positions == sorted(set(positions))
        promised = {entry for entry in {*self.acknowledged, *self.shown} if entry.position > log.first}
        assert promised <= set(entries)
        assert log.first <= self.trimmed
        assert not self.refused & {entry.payload for entry in entries}
        self.shown.update(entries)


async def live(
    disk: LossyDisk, witness: Witness, random: Random, appends: int, sizes: tuple[int, ...]
) -> None:
    """One life of a log: open, check, use, end by power loss or by closing."""
    with suppress(PowerLoss):
        async with opened(disk, segment_bytes=512) as log:
            await witness.check(log)
            watching = asyncio.create_task(witness.watch(log, log.first))
            for _ in range(appends):
                together = random.choice((1, 1, 3))
                await asyncio.gather(*(witness.append(log, random.choice(sizes)) for _ in range(together)))
                if random.random() < 0.1 and witness.acknowledged:
                    witness.trimmed = max(witness.trimmed, random.choice(witness.acknowledged).position)
                    with suppress(OSError):
                        await log.trim(witness.trimmed)
            await log.close()
            await watching


async def check_at_last(disk: LossyDisk, witness: Witness) -> None:
    async with opened(disk, segment_bytes=512) as log:
        await witness.check(log)
        await witness.append(log, 10)
        await witness.check(log)


@pytest.mark.parametrize("mode", [None, 1, 2, 3, 4, 5], ids=lambda mode: f"keeps {mode}")
def test_power_loss_after_every_disk_call_loses_nothing_that_was_promised(mode: int | None) -> None:
    calls = 1
    while True:
        disk, witness = LossyDisk(calls), Witness()
        disk.power_fails_after = calls
        asyncio.run(live(disk, witness, Random(7), 12, (100, 200)))
        finished = disk.calls < calls
        disk.crash(None if mode is None else Random(mode * 1000 + calls))
        asyncio.run(check_at_last(disk, witness))
        if finished:
            break
        calls += 1
    assert calls > 60


@pytest.mark.parametrize("seed", range(150))
def test_many_lives_with_faults_and_power_loss_keep_every_promise(seed: int) -> None:
    random = Random(seed)
    disk, witness = LossyDisk(seed), Witness()
    for _ in range(6):
        if random.random() < 0.7:
            disk.power_fails_after = disk.calls + random.randrange(1, 120)
        for operation in ("write", "sync", "truncate", "create", "sync_directory", "unlink"):
            if random.random() < 0.25:
                times = random.choice((1, 1, 3))
                disk.fail(operation, errno.EIO, after=random.randrange(3, 30), times=times)
        disk.budget_bytes = random.choice((None, None, disk.used_bytes() + 1500))
        with suppress(OSError):
            asyncio.run(live(disk, witness, random, 10, (0, 50, 200, 700)))
        disk.crash(random.choice((None, random)))
        disk.budget_bytes = None
    asyncio.run(check_at_last(disk, witness))


@pytest.mark.anyio
async def test_without_a_directory_sync_a_new_segment_would_be_lost() -> None:
    class Forgetful(LossyDisk):
        def sync_directory(self, directory: str) -> None:
            pass

    careful, forgetful = LossyDisk(), Forgetful()
    for disk in (careful, forgetful):
        await write(disk, [b"a"])
        disk.crash()
    assert len(careful.paths()) == 1
    assert forgetful.paths() == []


@pytest.mark.anyio
async def test_without_a_sync_an_entry_would_be_lost() -> None:
    class Forgetful(LossyDisk):
        def sync(self, file: int) -> None:
            pass

    careful, forgetful = LossyDisk(), Forgetful()
    for disk in (careful, forgetful):
        await write(disk, [b"a"])
        disk.crash()
    assert await read_payloads(careful) == [b"a"]
    assert await read_payloads(forgetful) == []
