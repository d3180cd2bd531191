"""A data folder whose replay takes long enough to do something during it."""

import asyncio
from pathlib import Path

from ursula.engine.start.data_folder import DataFolder
from ursula.log.file import FileLog
from ursula.model.codec import entry as entries
from ursula.model.commands import AnyCommand, Append, Create

STREAMS = 50
MESSAGE = b"m" * 20
PER_ENTRY = 1000


def write_long_log(folder: Path, messages: int) -> None:
    """Fill a new folder with small appends, without a server."""
    asyncio.run(_write(folder, messages))


def expected_tail(messages: int) -> dict[str, int]:
    """The streams such a folder has, and where they end."""
    return {f"/v1/stream/long-{number}": messages // STREAMS * len(MESSAGE) for number in range(STREAMS)}


async def _write(path: Path, messages: int) -> None:
    folder = DataFolder(path)
    log = await FileLog.open(folder.log_path(0), generation=folder.identity.generation)
    names = [f"long-{number}" for number in range(STREAMS)]
    creates: list[AnyCommand] = [Create("_default", name, "text/plain", make_bucket=True) for name in names]
    await log.append(entries.encode(1, 1, creates))
    appends: list[AnyCommand] = [
        Append("_default", names[number % STREAMS], (MESSAGE,), "text/plain") for number in range(PER_ENTRY)
    ]
    for number in range(messages // PER_ENTRY):
        await log.append(entries.encode(1, 2 + number, appends))
    await log.close()
    folder.close()
