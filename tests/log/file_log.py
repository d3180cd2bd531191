"""A file log on a lossy disk: open it, write to it, read everything back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.log.lossy_disk import LossyDisk

from ursula.log.file import FileLog
from ursula.log.interface import GENERATION_SHIFT, Entry
from ursula.log.record import SEGMENT_HEADER_BYTES

BASE = 1 << GENERATION_SHIFT
SEGMENT_BYTES = 1024


@asynccontextmanager
async def opened(
    disk: LossyDisk, *, generation: int = 1, segment_bytes: int = SEGMENT_BYTES
) -> AsyncIterator[FileLog]:
    """An open log, which is closed at the end whatever happens."""
    log = await FileLog.open("log", generation=generation, segment_bytes=segment_bytes, disk=disk)
    try:
        yield log
    finally:
        await log.close()


async def read_all(log: FileLog) -> list[Entry]:
    """Every entry that is in the log, up to its tail."""
    entries: list[Entry] = []
    following = log.follow(log.first)
    async with asyncio.timeout(60):
        while (entries[-1].position if entries else log.first) < log.known_tail:
            entries.append(await anext(following))
    return entries


async def write(disk: LossyDisk, payloads: list[bytes], *, generation: int = 1) -> list[int]:
    """Open, append one after the other, close."""
    async with opened(disk, generation=generation) as log:
        return [await log.append(payload) for payload in payloads]


async def read(disk: LossyDisk, *, generation: int = 1) -> list[Entry]:
    """Open, read everything, close."""
    async with opened(disk, generation=generation) as log:
        return await read_all(log)


async def read_payloads(disk: LossyDisk) -> list[bytes]:
    """The payloads of `read`."""
    return [entry.payload for entry in await read(disk)]


def path_of(position: int) -> str:
    """The file of the segment that begins with a position."""
    return f"log/{position:020}.log"


def used(disk: LossyDisk, path: str) -> bytes:
    """A segment without the zeros after its records. Only for payloads whose CRC does not end in zero."""
    return disk.contents(path).rstrip(b"\0").ljust(SEGMENT_HEADER_BYTES, b"\0")
