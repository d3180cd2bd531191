"""Commands that wait for the next batch. While one batch is being made durable, the next one grows here.

When the log is idle, a batch begins as soon as half as many commands are waiting as were in the last two
batches together, even in the middle of reading requests: so the log writes while the loop reads the other
requests, and both are busy. Once the loop has read all requests, whatever is waiting becomes a batch too,
however small.
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
COMMAND_BYTES = 96
"""About how many bytes of an entry a command takes beside its messages; only logs with a limit need it."""
NEVER = 1 << 62

Reply = Callable[[AnyOutcome | Failure], None]
"""Gets the outcome of a command."""


class NextBatch(NamedTuple):
    """Commands that go into the log together, with the replies that wait for their outcomes."""

    commands: list[AnyCommand]
    replies: list[Reply | None]
    body_bytes: int


class BatchQueue:
    """Commands that were proposed and are not in a batch yet."""

    def __init__(
        self, begin: Callable[[], None], bytes_max: int = BATCH_BYTES_MAX, command_bytes: int = 0
    ) -> None:
        """`begin` is called when the next batch should begin at once.

        A batch has at most `bytes_max`, where a command counts `command_bytes` beside its messages.
        """
        self.body_bytes = 0
        self._bytes_max = bytes_max
        self._command_bytes = command_bytes
        self.taken = 0
        """How many commands have left the queue since the start."""
        self._begin = begin
        self._commands: list[AnyCommand] = []
        self._replies: list[Reply | None] = []
        self._awaited: asyncio.Future[None] | None = None
        self._begin_count = NEVER  # a batch begins at once when this many commands are waiting
        self._last_counts = 0, 0  # of the last two batches

    def add(self, command: AnyCommand, reply: Reply | None, size: int) -> None:
        """Add a command to the next batch; `size` is the number of bytes in its messages."""
        self._commands.append(command)
        self._replies.append(reply)
        self.body_bytes += size
        if self._awaited is not None:
            self._awaited.set_result(None)
            self._awaited = None
        if len(self._commands) >= self._begin_count:
            self._begin()

    @property
    def added(self) -> int:
        """How many commands were added since the start."""
        return self.taken + len(self._commands)

    def log_is_idle(self) -> None:
        """Begin the next batch as soon as enough commands are waiting."""
        self._begin_count = max(1, sum(self._last_counts) // 2)

    async def wait(self, seconds_max: float | None = None) -> None:
        """Wait until there is a command, but no longer than this."""
        if self._commands:
            return
        self._awaited = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds_max):
                await self._awaited
        except TimeoutError:
            self._awaited = None

    def next_batch(self) -> NextBatch:
        """Remove the next batch: all commands within the limits; a larger command goes alone."""
        commands, replies = self._commands, self._replies
        count = len(commands)
        self._begin_count = NEVER
        self._last_counts = self._last_counts[1], count
        if count > BATCH_COMMANDS_MAX or self.body_bytes + count * self._command_bytes > self._bytes_max:
            count = self._fitting(commands)
        self._commands, self._replies = commands[count:], replies[count:]
        del commands[count:], replies[count:]
        self.taken += count
        left_bytes = sum(map(size_of, self._commands))
        body_bytes, self.body_bytes = max(0, self.body_bytes - left_bytes), left_bytes
        if commands and isinstance(commands[0], IngestRows):
            body_bytes = sum(len(message) for row in commands[0].rows for message in row.messages)
        return NextBatch(commands, replies, body_bytes)

    def _fitting(self, commands: list[AnyCommand]) -> int:
        """How many of the commands make up the next batch: as many as fit, and at least one."""
        size = 0
        for count, command in enumerate(commands[:BATCH_COMMANDS_MAX]):
            size += size_of(command) + self._command_bytes
            if count and size > self._bytes_max:
                return count
        return min(len(commands), BATCH_COMMANDS_MAX)

    def put_back(self, batch: NextBatch, first: int) -> NextBatch:
        """Put back the commands of the batch taken last from this place on; returns the others."""
        commands, replies, _ = batch
        self._commands = commands[first:] + self._commands
        self._replies = replies[first:] + self._replies
        self.taken -= len(commands) - first
        returned_bytes = sum(map(size_of, commands[first:]))
        self.body_bytes += returned_bytes
        return NextBatch(commands[:first], replies[:first], max(0, batch.body_bytes - returned_bytes))

    def drop(self, upto: int) -> list[Reply | None]:
        """Forget the commands up to this number; returns the replies that the caller must answer."""
        count = max(0, min(upto - self.taken, len(self._commands)))
        dropped, self._replies = self._replies[:count], self._replies[count:]
        self.body_bytes = max(0, self.body_bytes - sum(map(size_of, self._commands[:count])))
        del self._commands[:count]
        self.taken += count
        return dropped


def reply_to_future() -> tuple["asyncio.Future[AnyOutcome | Failure]", Reply]:
    """A future, and the reply that sets it, unless its caller has given up."""
    future: asyncio.Future[AnyOutcome | Failure] = asyncio.get_running_loop().create_future()

    def reply(outcome: AnyOutcome | Failure) -> None:
        if not future.done():
            future.set_result(outcome)

    return future, reply


def size_of(command: AnyCommand) -> int:
    """How much of a batch a command takes up; a part of a bulk write, which must be alone, takes up all."""
    if isinstance(command, IngestRows):
        return BATCH_BYTES_MAX + 1
    return sum(map(len, command.messages)) if isinstance(command, Append | Create) else 0


def creation_bytes(command: Create) -> int:
    """How much a new stream without messages adds to the hot bytes."""
    return ROW_BYTES + len(command.attributes or b"")
