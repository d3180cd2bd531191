"""When streams expire: one heap of the moments at which a stream must be checked.

A write moves the deadline of a stream with a TTL in the state. A read moves it in memory, and that is logged
(`Renew`) once an eighth of the TTL has passed since the last logged move, and at the latest an eighth of the
TTL before the deadline. A logged `Expire` ends a stream past its deadline.
"""

from heapq import heappop, heappush

from ...model.commands import Create, Expire, IngestRows, Renew, StreamCommand
from ...model.state import State
from ...model.stream.stream import MICROSECONDS, Stream

RETRY_MICROSECONDS = 1 * MICROSECONDS
"""How long after proposing its end a stream is checked again, in case the command was not logged."""

CHECKS_AT_ONCE = 256
"""How many streams are checked before other work gets a turn."""


class Deadlines:
    """The deadlines of a group's streams, and the reads that are not logged yet."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.heap: list[tuple[int, str, str, str]] = []
        self._read_at: dict[str, int] = {}  # by incarnation

    def track(self, bucket: str, name: str) -> None:
        """Begin to check a stream, if it has a deadline."""
        stream = self._state.find(bucket, name)
        if stream is not None and stream.deadline is not None:
            heappush(self.heap, (_check_at(stream), bucket, name, stream.incarnation))

    def next_check(self) -> int | None:
        """The next moment at which something may have to be done."""
        return self.heap[0][0] if self.heap else None

    def overdue(self, bucket: str, name: str, now: int) -> Expire | None:
        """The command that ends the stream of this name, if its deadline has passed."""
        stream = self._state.find(bucket, name)
        if stream is None or stream.deadline is None or stream.deadline > now:
            return None
        if self._unlogged_read(stream) is not None:
            return None
        return Expire(bucket, name, stream.incarnation, stream.deadline)

    def overdue_for(self, command: StreamCommand | IngestRows, now: int) -> Expire | None:
        """The command that must precede another one: it ends a stream that the other one refers to."""
        if isinstance(command, IngestRows):
            names = list(dict.fromkeys(row.stream for row in command.rows))
        elif isinstance(command, Create) and command.fork is not None:
            names = [command.stream, command.fork.source]
        else:
            names = [command.stream]
        found = (self.overdue(command.bucket, name, now) for name in names)
        return next((overdue for overdue in found if overdue is not None), None)

    def note_read(self, bucket: str, name: str, now: int) -> Renew | None:
        """Note a read; returns the command that logs it if that is due."""
        stream = self._state.find(bucket, name)
        if stream is None or stream.ttl_seconds is None or stream.deadline is None:
            return None
        window = stream.ttl_seconds * MICROSECONDS
        # Kept until it is in the state: a renewal that the log did not accept must not be forgotten.
        self._read_at[stream.incarnation] = now
        if now - (stream.deadline - window) < window // 8:
            return None
        return Renew(bucket, name, stream.incarnation, now)

    def forget(self, incarnation: str) -> None:
        """Forget the reads of a stream that has ended."""
        self._read_at.pop(incarnation, None)

    def is_due(self, now: int) -> bool:
        """Whether there is a stream to be checked."""
        return bool(self.heap) and self.heap[0][0] <= now

    def due(self, now: int, may_expire: bool = True) -> list[Expire | Renew]:
        """The commands that are due; each stream is put back, to be checked again.

        A great many may be due at once, so only some are checked; `is_due` says whether more are left.
        Unless streams may be expired here, those past their deadline are checked again later.
        """
        commands: list[Expire | Renew] = []
        for _ in range(CHECKS_AT_ONCE):
            if not self.is_due(now):
                break
            _, bucket, name, incarnation = heappop(self.heap)
            stream = self._state.find(bucket, name)
            if stream is None or stream.incarnation != incarnation or stream.deadline is None:
                continue
            read_at = self._unlogged_read(stream)
            if read_at is not None:
                commands.append(Renew(bucket, name, incarnation, read_at))
                again = now + RETRY_MICROSECONDS // 8
            elif stream.deadline <= now:
                if may_expire:
                    commands.append(Expire(bucket, name, incarnation, stream.deadline))
                again = now + RETRY_MICROSECONDS
            else:
                self._read_at.pop(incarnation, None)
                check = _check_at(stream)
                again = check if check > now else stream.deadline
            heappush(self.heap, (again, bucket, name, incarnation))
        return commands

    def _unlogged_read(self, stream: Stream) -> int | None:
        """The time of a read that moves the deadline and is not logged yet."""
        read_at = self._read_at.get(stream.incarnation)
        if read_at is None or stream.ttl_seconds is None or stream.deadline is None:
            return None
        return read_at if read_at + stream.ttl_seconds * MICROSECONDS > stream.deadline else None


def _check_at(stream: Stream) -> int:
    """An eighth of the TTL before the deadline; for a fixed deadline, the deadline itself."""
    deadline = stream.deadline or 0
    return deadline - (stream.ttl_seconds or 0) * MICROSECONDS // 8
