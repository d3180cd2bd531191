"""When streams end by themselves: one heap of moments at which a stream must be looked at.

Writes move a sliding window in the state. Reads move it in memory, and that is logged (`Renew`) once
an eighth of the window has passed since the last logged one, and at the latest an eighth of the
window before the deadline. A stream past its deadline is ended by a logged `Expire`.
"""

from heapq import heappop, heappush

from ...model.commands import Create, Expire, IngestRows, Renew, StreamCommand
from ...model.state import State
from ...model.stream.stream import MICROSECONDS, Stream

RETRY_MICROSECONDS = 1 * MICROSECONDS
"""How long after a proposed end the stream is looked at again, in case that was not logged."""

LOOKS_AT_ONCE = 256
"""So many streams are looked at before others have their turn."""


class Expiry:
    """The deadlines of a group's streams, and the reads that were not logged yet."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.heap: list[tuple[int, str, str, str]] = []
        self._seen: dict[str, int] = {}

    def add(self, bucket: str, name: str) -> None:
        """Begin to look after a stream that has a deadline."""
        stream = self._state.find(bucket, name)
        if stream is not None and stream.deadline is not None:
            heappush(self.heap, (_look_at(stream), bucket, name, stream.incarnation))

    def next_look(self) -> int | None:
        """The next moment at which something may have to be done."""
        return self.heap[0][0] if self.heap else None

    def overdue(self, bucket: str, name: str, now: int) -> Expire | None:
        """The command that ends the stream at this name, if its deadline has passed."""
        stream = self._state.find(bucket, name)
        if stream is None or stream.deadline is None or stream.deadline > now:
            return None
        if self._pending(stream) is not None:
            return None
        return Expire(bucket, name, stream.incarnation, stream.deadline)

    def overdue_for(self, command: StreamCommand | IngestRows, now: int) -> Expire | None:
        """The command that must come before another: it ends a stream of which that one speaks."""
        if isinstance(command, IngestRows):
            names = list(dict.fromkeys(row.stream for row in command.rows))
        elif isinstance(command, Create) and command.fork is not None:
            names = [command.stream, command.fork.source]
        else:
            names = [command.stream]
        found = (self.overdue(command.bucket, name, now) for name in names)
        return next((overdue for overdue in found if overdue is not None), None)

    def seen(self, bucket: str, name: str, now: int) -> Renew | None:
        """Note a read; returns the command that logs it if that is due."""
        stream = self._state.find(bucket, name)
        if stream is None or stream.ttl_seconds is None or stream.deadline is None:
            return None
        window = stream.ttl_seconds * MICROSECONDS
        # Kept until the state has it: a renewal that the log did not take must not be forgotten.
        self._seen[stream.incarnation] = now
        if now - (stream.deadline - window) < window // 8:
            return None
        return Renew(bucket, name, stream.incarnation, now)

    def forget(self, incarnation: str) -> None:
        """A stream has ended."""
        self._seen.pop(incarnation, None)

    def is_due(self, now: int) -> bool:
        """Whether there is a stream to be looked at."""
        return bool(self.heap) and self.heap[0][0] <= now

    def due(self, now: int) -> list[Expire | Renew]:
        """The commands whose time has come; each stream is put back to be looked at again.

        Very many may be due at one moment. So only some are looked at; `is_due` tells if that was not all.
        """
        commands: list[Expire | Renew] = []
        for _ in range(LOOKS_AT_ONCE):
            if not self.is_due(now):
                break
            _, bucket, name, incarnation = heappop(self.heap)
            stream = self._state.find(bucket, name)
            if stream is None or stream.incarnation != incarnation or stream.deadline is None:
                continue
            pending = self._pending(stream)
            if pending is not None:
                commands.append(Renew(bucket, name, incarnation, pending))
                again = now + RETRY_MICROSECONDS // 8
            elif stream.deadline <= now:
                commands.append(Expire(bucket, name, incarnation, stream.deadline))
                again = now + RETRY_MICROSECONDS
            else:
                self._seen.pop(incarnation, None)
                look = _look_at(stream)
                again = look if look > now else stream.deadline
            heappush(self.heap, (again, bucket, name, incarnation))
        return commands

    def _pending(self, stream: Stream) -> int | None:
        """The time of a read that moves the deadline and was not logged yet."""
        seen = self._seen.get(stream.incarnation)
        if seen is None or stream.ttl_seconds is None or stream.deadline is None:
            return None
        return seen if seen + stream.ttl_seconds * MICROSECONDS > stream.deadline else None


def _look_at(stream: Stream) -> int:
    """An eighth of the window before the deadline; a fixed end is looked at when it comes."""
    deadline = stream.deadline or 0
    return deadline - (stream.ttl_seconds or 0) * MICROSECONDS // 8
