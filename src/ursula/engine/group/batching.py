"""Commands that wait for the next batch. While one batch is made durable, the next one gathers here.

When the log has nothing to do, a batch begins as soon as half of those that wrote lately are here, in the
middle of reading requests: so the log writes while the loop reads the others, and both are busy. Whatever is
there when the loop has read all requests begins a batch too, however little it is.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from ...model.commands import AnyCommand, Append, Create, IngestRows
from ...model.journal import ROW_BYTES
from ...model.outcomes import AnyOutcome
from ..failures import Failure

BATCH_COMMANDS_MAX = 1024
BATCH_BYTES_MAX = 1024 * 1024
NEVER = 1 << 62

Reply = Callable[[AnyOutcome | Failure], None]


class NextBatch(NamedTuple):
    """Commands that go into the log together, with those who wait for them."""

    commands: list[AnyCommand]
    dones: list[Reply | None]
    body_bytes: int


class BatchQueue:
    """What was proposed and is in no batch yet."""

    def __init__(self, begin: Callable[[], None]) -> None:
        """`begin` is called to have a batch taken at once."""
        self.body_bytes = 0
        self._begin = begin
        self._commands: list[AnyCommand] = []
        self._dones: list[Reply | None] = []
        self._awaited: asyncio.Future[None] | None = None
        self._enough = NEVER  # so many commands begin a batch at once
        self._sizes = 0, 0  # of the last two batches

    def add(self, command: AnyCommand, done: Reply | None, size: int) -> None:
        """Have a command, whose messages have so many bytes, join the next batch."""
        self._commands.append(command)
        self._dones.append(done)
        self.body_bytes += size
        if self._awaited is not None:
            self._awaited.set_result(None)
            self._awaited = None
        if len(self._commands) >= self._enough:
            self._begin()

    def log_is_idle(self) -> None:
        """Begin the next batch as soon as enough commands are here."""
        self._enough = max(1, sum(self._sizes) // 2)

    async def begun(self, seconds_max: float | None = None) -> None:
        """Wait until there is something to write, or for so long."""
        if self._commands:
            return
        self._awaited = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds_max):
                await self._awaited
        except TimeoutError:
            self._awaited = None

    def take(self) -> NextBatch:
        """The next batch: everything that waits, within the limits; one larger command goes alone."""
        commands, dones = self._commands, self._dones
        count = len(commands)
        self._enough = NEVER
        self._sizes = self._sizes[1], count
        if count > BATCH_COMMANDS_MAX or self.body_bytes > BATCH_BYTES_MAX:
            count = _fitting(commands)
        self._commands, self._dones = commands[count:], dones[count:]
        del commands[count:], dones[count:]
        left_bytes = sum(map(size_of, self._commands))
        body_bytes, self.body_bytes = max(0, self.body_bytes - left_bytes), left_bytes
        if commands and isinstance(commands[0], IngestRows):
            body_bytes = sum(len(message) for row in commands[0].rows for message in row.messages)
        return NextBatch(commands, dones, body_bytes)

    def give_up(self) -> list[Reply | None]:
        """Forget all of it; those who wait for it are to be told."""
        dones, self._commands, self._dones = self._dones, [], []
        self.body_bytes = 0
        return dones


def size_of(command: AnyCommand) -> int:
    """How much of a batch a command takes; that of many rows takes all of it, since it must be alone."""
    if isinstance(command, IngestRows):
        return BATCH_BYTES_MAX + 1
    return sum(map(len, command.messages)) if isinstance(command, Append | Create) else 0


def creation_bytes(command: Create) -> int:
    """What a new stream without messages adds to what waits for the store."""
    return ROW_BYTES + len(command.attributes or b"")


def _fitting(commands: list[AnyCommand]) -> int:
    """How many of the commands make one batch: as many as fit, and at least one."""
    size = 0
    for count, command in enumerate(commands[:BATCH_COMMANDS_MAX]):
        size += size_of(command)
        if count and size > BATCH_BYTES_MAX:
            return count
    return min(len(commands), BATCH_COMMANDS_MAX)
