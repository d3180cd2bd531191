"""How fast a server starts that has much to replay."""

import asyncio
import http.client
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

from ursula.engine.start.data_folder import DataFolder
from ursula.log.disk import RealDisk
from ursula.log.file import FileLog
from ursula.model.codec.entry import encode
from ursula.model.commands import AnyCommand, Append, Create

from ..cold import NEVER_FLUSHED
from ..failure import Failed
from ..results import Row
from ..rounds import Plan
from ..servers import Kind, Server, scratch_folder, started

STREAMS = 100_000
LOG_BYTES = 256_000_000
BATCH = 64
MESSAGE = b"x" * 256

_BUCKET = "_default"
_TYPE = "application/octet-stream"
_PROPOSER = 1


def measure(plan: Plan) -> list[Row]:
    """Megabytes of log per second, from the start of the process until it is ready, less an empty start."""
    row = Row("start", f"start with {STREAMS:,} streams and 256 MB of log (256 B appends)")
    speed = row.figure("replay", "MB/s")
    full = row.figure("start", "s")
    empty = row.figure("empty start", "s")
    row.note(f"the log was written just before, {BATCH} appends per entry, so it is read from the page cache")
    with scratch_folder() as folder:
        plan.progress.begin(row.title, 1)
        plan.progress.step("writing the log")
        size = asyncio.run(_write_log(folder / "data"))

        def once(kind: Kind) -> None:
            with started(kind) as server:
                empty_seconds = server.ready_seconds
            with started(kind, folder / "data") as server:
                _expect_everything(server)
                full.add(kind.name, server.ready_seconds)
                empty.add(kind.name, empty_seconds)
                speed.add(kind.name, size / 1e6 / (server.ready_seconds - empty_seconds))

        plan.interleave(row, (NEVER_FLUSHED,), once)
    row.value_at_least(speed, 40)
    return [row]


class _UnsyncedDisk(RealDisk):
    """The log is made for one run, so nothing of it must survive one."""

    def sync(self, file: int) -> None:
        pass


async def _write_log(path: Path) -> int:
    """Write a log as the server would; its size in bytes."""
    folder = DataFolder(path)
    log = await FileLog.open(folder.log_path(0), generation=folder.identity.generation, disk=_UnsyncedDisk())
    commands = _commands()
    at = time.time_ns() // 1000
    while log.size_bytes < LOG_BYTES:
        at += 1000
        await log.append(encode(_PROPOSER, at, list(islice(commands, BATCH))))
    await log.close()
    folder.close()
    return log.size_bytes


def _commands() -> Iterator[AnyCommand]:
    """Every stream is created, then one after the other gets a message, without end."""
    names = [f"s{number}" for number in range(STREAMS)]
    for name in names:
        yield Create(_BUCKET, name, _TYPE, make_bucket=True)
    for name in cycle(names):
        yield Append(_BUCKET, name, (MESSAGE,), _TYPE)


def _expect_everything(server: Server) -> None:
    """The last stream must be there, with messages."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("HEAD", server.path(f"s{STREAMS - 1}"))
    answer = connection.getresponse()
    connection.close()
    if answer.status != 200 or not int(answer.headers["Stream-Next-Offset"]):
        raise Failed(f"a stream was not there after the start: {answer.status}")
