"""Opening a folder: what is kept, what is truncated, and what stops the start."""

import errno
from zlib import crc32

import pytest
from tests.log.file_log import BASE, opened, path_of, read, read_all, read_payloads, used, write
from tests.log.lossy_disk import LossyDisk

from ursula.log.interface import GENERATION_SHIFT, EntriesTrimmed, Entry, LogDamaged
from ursula.log.record import (
    RECORD_OVERHEAD_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    encode_record,
    encode_segment_header,
)

pytestmark = pytest.mark.anyio

FIRST = path_of(BASE + 1)
RECORD_BYTES = RECORD_OVERHEAD_BYTES + 4


async def three_records() -> LossyDisk:
    disk = LossyDisk()
    await write(disk, [b"one.", b"two.", b"tri."])
    return disk


async def three_segments() -> LossyDisk:
    disk = LossyDisk()
    await write(disk, [bytes([letter]) * 900 for letter in b"abc"])
    assert disk.paths() == [path_of(BASE + number) for number in (1, 2, 3)]
    return disk


def flip(disk: LossyDisk, path: str, byte: int) -> None:
    data = bytearray(disk.contents(path))
    data[byte] ^= 0xFF
    disk.replace(path, bytes(data))


async def damage_of(disk: LossyDisk, generation: int = 1) -> LogDamaged:
    with pytest.raises(LogDamaged) as caught:
        await read(disk, generation=generation)
    return caught.value


async def test_positions_continue_after_reopening() -> None:
    disk = LossyDisk()
    assert await write(disk, [b"a", b"b"]) == [BASE + 1, BASE + 2]
    assert await write(disk, [b"c"]) == [BASE + 3]
    assert await read(disk) == [Entry(BASE + 1, b"a"), Entry(BASE + 2, b"b"), Entry(BASE + 3, b"c")]


async def test_an_empty_log_reopens_empty() -> None:
    disk = LossyDisk()
    await write(disk, [])
    assert await read(disk) == []
    assert await write(disk, [b"a"]) == [BASE + 1]


@pytest.mark.parametrize("zeros_follow", [True, False], ids=["zeros follow", "the file ends"])
async def test_a_torn_tail_is_cut_at_every_byte_of_the_last_record(zeros_follow: bool) -> None:
    disk = await three_records()
    size = len(disk.contents(FIRST))
    whole = used(disk, FIRST)
    for length in range(len(whole) - RECORD_BYTES, len(whole)):
        disk.replace(FIRST, whole[:length].ljust(size if zeros_follow else 0, b"\0"))
        assert await read_payloads(disk) == [b"one.", b"two."]
        assert used(disk, FIRST) == whole[: len(whole) - RECORD_BYTES]
        assert await write(disk, [b"new."]) == [BASE + 3]
        assert await read_payloads(disk) == [b"one.", b"two.", b"new."]


async def test_a_damaged_last_record_is_cut_wherever_it_is_damaged() -> None:
    for byte in range(RECORD_BYTES):
        disk = await three_records()
        flip(disk, FIRST, SEGMENT_HEADER_BYTES + 2 * RECORD_BYTES + byte)
        assert await read_payloads(disk) == [b"one.", b"two."]


async def test_a_record_after_a_bad_one_stops_the_start() -> None:
    for byte in range(RECORD_BYTES):
        disk = await three_records()
        flip(disk, FIRST, SEGMENT_HEADER_BYTES + RECORD_BYTES + byte)
        damage = await damage_of(disk)
        assert damage.path == FIRST
        assert damage.where == f"position {BASE + 2}, byte {SEGMENT_HEADER_BYTES + RECORD_BYTES}"


async def test_a_payload_that_looks_like_a_record_does_not_hide_a_torn_tail() -> None:
    inner, _ = encode_record(BASE + 2, b"not a record of this log", 0)
    disk = LossyDisk()
    await write(disk, [b"one.", inner + b"end"])
    whole = used(disk, FIRST)
    disk.replace(FIRST, whole[:-2])
    assert await read_payloads(disk) == [b"one."]


async def test_a_record_with_a_position_out_of_order_stops_the_start() -> None:
    disk = await three_records()
    whole = used(disk, FIRST)
    stray, _ = encode_record(BASE + 7, b"stray", crc32(b"one.two.tri."))
    disk.replace(FIRST, (whole + stray).ljust(1024, b"\0"))
    assert "followed by another" in (await damage_of(disk)).problem


async def test_a_damaged_record_in_an_older_segment_stops_the_reader_there() -> None:
    disk = await three_segments()
    flip(disk, path_of(BASE + 2), 500)
    damage = await damage_of(disk)
    assert damage.path == path_of(BASE + 2)
    assert damage.where == f"position {BASE + 2}, byte {SEGMENT_HEADER_BYTES}"
    assert "Restore" in damage.hint


async def test_an_older_segment_of_another_history_stops_the_reader() -> None:
    disk, other = await three_segments(), LossyDisk()
    await write(other, [b"x" * 900, b"y"])
    disk.replace(FIRST, other.contents(FIRST))
    damage = await damage_of(disk)
    assert damage.path == FIRST
    assert path_of(BASE + 2) in damage.problem


async def test_a_missing_segment_stops_the_reader() -> None:
    disk = await three_segments()
    disk.remove(path_of(BASE + 2))
    assert (await damage_of(disk)).path == FIRST


async def test_a_segment_that_vanishes_while_open_is_damage() -> None:
    disk = await three_segments()
    async with opened(disk) as log:
        disk.remove(path_of(BASE + 2))
        with pytest.raises(LogDamaged, match="gone"):
            await read_all(log)


async def test_a_damaged_header_of_an_older_segment_stops_the_start() -> None:
    disk = await three_segments()
    flip(disk, path_of(BASE + 2), 20)
    assert (await damage_of(disk)).path == path_of(BASE + 2)


async def test_a_damaged_header_before_a_record_stops_the_start() -> None:
    disk = await three_segments()
    flip(disk, path_of(BASE + 3), 20)
    assert f"byte {SEGMENT_HEADER_BYTES}" in (await damage_of(disk)).problem


@pytest.mark.parametrize("length", range(SEGMENT_HEADER_BYTES))
async def test_a_segment_that_was_being_created_is_removed(length: int) -> None:
    disk = await three_segments()
    header = encode_segment_header(SegmentHeader(1, BASE + 3, 12345))
    disk.replace(path_of(BASE + 4), header[:length].ljust(length % 2 * 1024, b"\0"))
    assert [entry.position for entry in await read(disk)] == [BASE + 1, BASE + 2, BASE + 3]
    assert disk.paths()[-1] == path_of(BASE + 3)
    disk.crash()
    assert disk.paths()[-1] == path_of(BASE + 3)
    assert await write(disk, [b"d"]) == [BASE + 4]


async def test_the_segment_before_a_removed_one_is_cut_and_synced() -> None:
    disk = await three_segments()
    whole = used(disk, path_of(BASE + 3))
    disk.replace(path_of(BASE + 3), whole[:-1])
    disk.replace(path_of(BASE + 4), b"")
    assert [entry.position for entry in await read(disk)] == [BASE + 1, BASE + 2]
    assert ("sync", f"{BASE + 3:020}.log") in disk.history


async def test_the_first_segment_may_have_been_torn_too() -> None:
    disk = LossyDisk()
    disk.replace(FIRST, b"")
    assert await write(disk, [b"a"]) == [BASE + 1]


async def test_a_lone_torn_segment_in_the_middle_of_a_history_stops_the_start() -> None:
    disk = LossyDisk()
    disk.replace(path_of(BASE + 50), b"")
    assert "missing" in (await damage_of(disk)).problem


async def test_a_renamed_segment_stops_the_start() -> None:
    disk = await three_segments()
    disk.replace(path_of(BASE + 9), disk.contents(path_of(BASE + 3)))
    disk.remove(path_of(BASE + 3))
    assert (await damage_of(disk)).path == path_of(BASE + 9)


async def test_segments_that_go_back_stop_the_start() -> None:
    disk = LossyDisk()
    await write(disk, [b"a"] * 3, generation=2)
    disk.replace(path_of((3 << GENERATION_SHIFT) + 1), encode_segment_header(SegmentHeader(3, BASE, 0)))
    assert "is older than" in (await damage_of(disk, generation=3)).problem


async def test_a_newer_format_is_rejected_with_both_versions() -> None:
    disk = await three_segments()
    for path in (FIRST, path_of(BASE + 3)):
        data = bytearray(disk.contents(path))
        data[8] = 9
        data[28:32] = crc32(data[:28]).to_bytes(4, "little")
        disk.replace(path, bytes(data))
        damage = await damage_of(disk)
        assert "format 9" in damage.problem
        assert "up to 1" in damage.problem
        assert damage.hint == "Use a newer ursula."


async def test_other_files_in_the_folder_are_left_alone() -> None:
    disk = await three_records()
    disk.replace("log/notes.txt", b"mine")
    assert len(await read(disk)) == 3
    assert disk.contents("log/notes.txt") == b"mine"


async def test_what_is_shown_after_reopening_stays_after_power_loss() -> None:
    disk = LossyDisk()
    await write(disk, [b"one."])
    # A process that died between write and sync leaves its record in the page cache only.
    record, _ = encode_record(BASE + 2, b"two.", crc32(b"one."))
    file = disk.open(FIRST)
    disk.write(file, record, SEGMENT_HEADER_BYTES + RECORD_BYTES)
    assert await read_payloads(disk) == [b"one.", b"two."]
    disk.crash()
    assert await read_payloads(disk) == [b"one.", b"two."]


async def test_the_name_of_the_last_segment_is_made_durable_on_opening() -> None:
    disk = LossyDisk()
    disk.write(disk.create(FIRST), encode_segment_header(SegmentHeader(1, BASE, 0)), 0)
    await write(disk, [b"a"])
    disk.crash()
    assert await read_payloads(disk) == [b"a"]


async def test_a_new_generation_continues_in_a_new_segment() -> None:
    disk = LossyDisk()
    await write(disk, [b"a", b"b"])
    base = 2 << GENERATION_SHIFT
    assert await write(disk, [b"c"], generation=2) == [base + 1]
    assert disk.paths() == [FIRST, path_of(base + 1)]
    assert await write(disk, [b"d"], generation=2) == [base + 2]
    expected = [(BASE + 1, b"a"), (BASE + 2, b"b"), (base + 1, b"c"), (base + 2, b"d")]
    assert await read(disk, generation=2) == expected


async def test_a_new_generation_of_an_empty_log_keeps_following_from_anywhere() -> None:
    disk = LossyDisk()
    await write(disk, [])
    async with opened(disk, generation=2) as log:
        position = await log.append(b"a")
        assert position == (2 << GENERATION_SHIFT) + 1
        assert await anext(log.follow(0)) == Entry(position, b"a")
        await log.trim(position)
        assert await anext(log.follow(0)) == Entry(position, b"a")


async def test_an_older_generation_is_rejected() -> None:
    disk = LossyDisk()
    await write(disk, [b"a"], generation=3)
    assert "already in generation 3, but generation 2" in (await damage_of(disk, generation=2)).problem


async def test_a_trimmed_log_still_knows_so_after_reopening() -> None:
    disk = await three_segments()
    async with opened(disk) as log:
        await log.trim(BASE + 2)
        assert disk.paths() == [path_of(BASE + 3)]
    disk.crash()
    async with opened(disk) as log:
        assert log.first == BASE + 2
        with pytest.raises(EntriesTrimmed):
            await anext(log.follow(BASE))


async def test_nothing_stays_open_after_a_refused_start() -> None:
    disk = await three_records()
    flip(disk, FIRST, SEGMENT_HEADER_BYTES + 2)
    await damage_of(disk)
    assert disk.open_files == 0

    disk = await three_records()
    disk.fail("create", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        await write(disk, [], generation=2)
    assert disk.open_files == 0
