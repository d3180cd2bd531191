"""Counts what a group has written since it started, per log entry so that an append costs nothing extra."""

from collections.abc import Sequence

from ...histogram import Histogram
from ...model.commands import AnyCommand, Append, Create, IngestRows, PlainAppend

BATCH_COMMANDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
BATCH_BYTES = tuple(float(256 * 4**step) for step in range(9))

_WRITES = (Append, Create)
_PLAIN = frozenset((PlainAppend,))


class Counters:
    """Entries that became durable, their contents, and entries that the log did not accept."""

    def __init__(self) -> None:
        self.batch_commands = Histogram(BATCH_COMMANDS)
        self.batch_bytes = Histogram(BATCH_BYTES)
        self.append_bytes = 0
        self.append_messages = 0
        self.entries_unavailable = 0
        self.entries_unknown = 0

    def committed(self, commands: Sequence[AnyCommand], body_bytes: int, entry_bytes: int) -> None:
        """Count an entry that is durable."""
        self.batch_commands.add(len(commands))
        self.batch_bytes.add(entry_bytes)
        self.append_bytes += body_bytes
        if _PLAIN.issuperset(map(type, commands)):
            self.append_messages += len(commands)
            return
        for command in commands:
            if isinstance(command, _WRITES):
                self.append_messages += len(command.messages)
                if command.body is not None:
                    self.append_messages += len(command.body.sizes)
                    self.append_bytes += sum(command.body.sizes)
            elif isinstance(command, IngestRows):
                self.append_messages += sum(len(row.messages) for row in command.rows)
