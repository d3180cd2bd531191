"""What an append that fails leaves behind: a certain answer, and a log that is readable and continues."""

import asyncio
import errno
from random import Random

import pytest
from tests.log.file_log import BASE, opened, path_of, read_all, read_payloads, used
from tests.log.lossy_disk import LossyDisk

from ursula.log.file import FileLog
from ursula.log.interface import AppendRetryable, AppendUnknown, EntriesTrimmed
from ursula.log.record import SEGMENT_HEADER_BYTES

pytestmark = pytest.mark.anyio


async def payloads_of(log: FileLog) -> list[bytes]:
    return [entry.payload for entry in await read_all(log)]


@pytest.mark.parametrize("operation", ["write", "sync"])
async def test_a_failed_append_is_retryable_and_the_log_continues_in_a_new_segment(operation: str) -> None:
    disk = LossyDisk()
    async with opened(disk) as log:
        await log.append(b"one")
        disk.fail(operation, errno.EIO)
        with pytest.raises(AppendRetryable, match="Input/output error"):
            await log.append(b"lost")
        assert await log.append(b"two") == BASE + 2
        assert await payloads_of(log) == [b"one", b"two"]
    assert disk.paths() == [path_of(BASE + 1), path_of(BASE + 2)]
    failed_at = disk.history.index(("truncate", f"{BASE + 1:020}.log"))
    assert ("sync", f"{BASE + 1:020}.log") not in disk.history[failed_at:]
    assert await read_payloads(disk) == [b"one", b"two"]


async def test_appends_queued_behind_a_failed_one_are_tried_in_turn() -> None:
    disk = LossyDisk()
    async with opened(disk) as log:
        disk.fail("sync", errno.EIO)
        lost, *kept = await asyncio.gather(
            *(log.append(b"%d" % number) for number in range(4)), return_exceptions=True
        )
        assert isinstance(lost, AppendRetryable)
        assert kept == [BASE + 1, BASE + 2, BASE + 3]
        assert await payloads_of(log) == [b"1", b"2", b"3"]


async def test_a_failed_first_record_makes_its_segment_again() -> None:
    disk = LossyDisk()
    async with opened(disk) as log:
        disk.fail("sync", errno.EIO)
        with pytest.raises(AppendRetryable):
            await log.append(b"lost")
        disk.fail("write", errno.EIO)
        with pytest.raises(AppendRetryable):
            await log.append(b"lost too")
        await log.append(b"kept")
        assert disk.paths() == [path_of(BASE + 1)]
        assert log.size_bytes == len(used(disk, path_of(BASE + 1)))
        assert await payloads_of(log) == [b"kept"]
    disk.crash()
    assert await read_payloads(disk) == [b"kept"]


async def test_a_failed_append_never_comes_back_after_power_loss() -> None:
    for seed in range(100):
        disk = LossyDisk(seed)
        async with opened(disk) as log:
            await log.append(b"one")
            disk.fail("sync", errno.EIO)
            with pytest.raises(AppendRetryable):
                await log.append(b"lost" * 5)
        disk.crash(Random(seed))
        assert await read_payloads(disk) == [b"one"]


async def test_the_next_header_overrules_a_whole_record_the_cut_did_not_remove() -> None:
    disk = LossyDisk()
    async with opened(disk) as log:
        await log.append(b"one")
        await log.append(b"failed")
        before = disk.contents(path_of(BASE + 1))
    # As if the sync of the second had failed, the log had continued, and the truncation was not durable.
    cut = LossyDisk()
    async with opened(cut) as log:
        await log.append(b"one")
        cut.fail("sync", errno.EIO)
        with pytest.raises(AppendRetryable):
            await log.append(b"failed")
        await log.append(b"two")
    cut.replace(path_of(BASE + 1), before)
    async with opened(cut) as log:
        assert await payloads_of(log) == [b"one", b"two"]


async def test_a_file_that_cannot_be_truncated_stops_the_log() -> None:
    disk = LossyDisk()
    async with opened(disk) as log:
        await log.append(b"one")
        disk.fail("sync", errno.EIO)
        disk.fail("truncate", errno.EIO)
        with pytest.raises(AppendUnknown, match="Input/output error"):
            await log.append(b"unknown")
        for _ in range(2):
            with pytest.raises(AppendRetryable, match="takes no more writes"):
                await log.append(b"refused")
        assert await payloads_of(log) == [b"one"]
    disk.crash()
    assert (await read_payloads(disk))[0] == b"one"


async def test_a_failed_sync_without_a_new_segment_is_unknown_but_the_log_continues() -> None:
    disk = LossyDisk()
    async with opened(disk) as log:
        await log.append(b"one")
        disk.fail("sync", errno.EIO)
        disk.fail("create", errno.ENOSPC)
        with pytest.raises(AppendUnknown):
            await log.append(b"unknown")
        assert await log.append(b"two") == BASE + 2
        assert await payloads_of(log) == [b"one", b"two"]


async def fill(disk: LossyDisk) -> list[bytes]:
    """Append until the disk is full and has room again; returns what was appended."""
    kept: list[bytes] = []
    async with opened(disk) as log:
        for number in range(40):
            if number == 30:
                disk.budget_bytes = 100_000
            payload = b"%d" % number * 50
            [answer] = await asyncio.gather(log.append(payload), return_exceptions=True)
            if isinstance(answer, int):
                kept.append(payload)
            else:
                assert repr(answer) == "AppendRetryable('No space left on device')"
                assert number < 30
        assert await payloads_of(log) == kept
    return kept


async def test_a_full_disk_is_retryable_until_there_is_room() -> None:
    for budget in range(0, 3000, 97):
        disk = LossyDisk(budget_bytes=SEGMENT_HEADER_BYTES + budget)
        kept = await fill(disk)
        assert len(kept) >= 10
        disk.crash(Random(budget))
        assert await read_payloads(disk) == kept
        assert not [path for path in disk.paths() if len(disk.contents(path)) < SEGMENT_HEADER_BYTES]


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory"])
async def test_a_roll_that_fails_is_retryable_and_tried_again(operation: str) -> None:
    disk = LossyDisk()
    async with opened(disk) as log:
        await log.append(b"a" * 900)
        disk.fail(operation, errno.ENOSPC)
        with pytest.raises(AppendRetryable, match="No space left on device"):
            await log.append(b"b" * 900)
        # It would fit into the old segment, but a new header may be on the disk already.
        assert await log.append(b"c") == BASE + 2
        assert disk.paths() == [path_of(BASE + 1), path_of(BASE + 2)]
    disk.crash()
    assert await read_payloads(disk) == [b"a" * 900, b"c"]


async def test_a_position_never_goes_back_though_everything_before_was_trimmed() -> None:
    disk = LossyDisk()
    async with opened(disk) as log:
        await log.append(b"a" * 900)
        disk.fail("sync", errno.EIO, after=1, times=2)
        with pytest.raises(AppendUnknown):
            await log.append(b"b" * 900)
        await log.trim(BASE + 1)
    disk.crash()
    async with opened(disk) as log:
        assert log.first == log.known_tail == BASE + 1
        assert await log.append(b"c") == BASE + 2


async def test_a_roll_whose_leftover_cannot_be_removed_is_tried_again_later() -> None:
    disk = LossyDisk()
    async with opened(disk) as log:
        await log.append(b"a" * 900)
        disk.fail("sync", errno.EIO, times=2)
        disk.fail("unlink", errno.EIO, times=2)
        for _ in range(3):
            with pytest.raises(AppendRetryable):
                await log.append(b"b" * 900)
        await log.append(b"c" * 900)
    disk.crash()
    assert await read_payloads(disk) == [b"a" * 900, b"c" * 900]


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENOSPC, errno.EINVAL])
async def test_a_disk_that_cannot_preallocate_works_without(code: int) -> None:
    disk = LossyDisk()
    disk.fail("preallocate", code, times=10)
    async with opened(disk) as log:
        assert len(disk.contents(path_of(BASE + 1))) == SEGMENT_HEADER_BYTES
        for number in range(5):
            await log.append(b"%d" % number * 300)
        assert len(disk.paths()) == 2
    disk.crash()
    assert await read_payloads(disk) == [b"%d" % number * 300 for number in range(5)]


async def test_room_that_was_reserved_only_in_part_is_released() -> None:
    disk = LossyDisk(budget_bytes=500)
    async with opened(disk) as log:
        assert len(disk.contents(path_of(BASE + 1))) == SEGMENT_HEADER_BYTES
        await log.append(b"a" * 400)


async def test_segments_are_preallocated_and_truncated_when_they_are_full() -> None:
    disk = LossyDisk()
    async with opened(disk) as log:
        await log.append(b"a" * 900)
        assert len(disk.contents(path_of(BASE + 1))) == 1024
        await log.append(b"b" * 900)
        assert disk.contents(path_of(BASE + 1)) == used(disk, path_of(BASE + 1))
        assert log.size_bytes == 2 * len(used(disk, path_of(BASE + 1)))


async def test_a_record_larger_than_a_segment_has_one_of_its_own() -> None:
    disk = LossyDisk()
    async with opened(disk) as log:
        for payload in (b"a", b"b" * 5000, b"c", b"d"):
            await log.append(payload)
    assert disk.paths() == [path_of(BASE + number) for number in (1, 2, 3)]
    assert await read_payloads(disk) == [b"a", b"b" * 5000, b"c", b"d"]


async def test_a_new_segment_is_durable_before_a_record_in_it() -> None:
    disk = LossyDisk()
    async with opened(disk) as log:
        await log.append(b"a" * 900)
        begin = len(disk.history)
        await log.append(b"b" * 900)
        new, old = f"{BASE + 2:020}.log", f"{BASE + 1:020}.log"
        assert disk.history[begin:] == [
            ("create", "unborn"),
            ("write", "unborn"),
            ("preallocate", "unborn"),
            ("sync", "unborn"),
            ("rename", "unborn"),
            ("sync_directory", "log"),
            ("truncate", old),
            ("write", new),
            ("sync", new),
        ]


async def test_trim_removes_the_oldest_first_and_each_durably() -> None:
    disk = LossyDisk()
    async with opened(disk) as log:
        for number in range(4):
            await log.append(b"%d" % number * 900)
        begin = len(disk.history)
        await log.trim(BASE + 1)
        await log.trim(BASE + 3)
        expected = [[("unlink", f"{BASE + n:020}.log"), ("sync_directory", "log")] for n in (1, 2, 3)]
        assert disk.history[begin:] == [call for calls in expected for call in calls]


async def test_a_trim_that_fails_can_be_tried_again() -> None:
    disk = LossyDisk()
    async with opened(disk) as log:
        for number in range(4):
            await log.append(b"%d" % number * 900)
        for operation in ("unlink", "sync_directory"):
            disk.fail(operation, errno.EIO)
            with pytest.raises(OSError, match="Input/output error"):
                await log.trim(BASE + 3)
            assert log.first == BASE
        with pytest.raises(EntriesTrimmed):
            await anext(log.follow(BASE))
        await log.trim(BASE + 3)
        assert log.first == BASE + 3


async def test_nothing_stays_open_after_close() -> None:
    disk = LossyDisk()
    async with opened(disk) as log:
        for number in range(5):
            await log.append(b"%d" % number * 900)
        disk.fail("sync", errno.EIO)
        with pytest.raises(AppendRetryable):
            await log.append(b"x")
        await read_all(log)
    assert disk.open_files == 0
