"""The seam every log implements: bytes in order, each at a position. Knows nothing of streams.

A log keeps opaque entries durable and in order. Positions increase and may skip; a position is
generation x 2^40 + the log's own number, so positions never repeat or go back.
"""

from collections.abc import AsyncIterator, Awaitable
from typing import NamedTuple, Protocol

from ursula.tally import Tally

GENERATION_SHIFT = 40
COUNTER_MASK = (1 << GENERATION_SHIFT) - 1


def purged_to(first: int) -> int:
    """How far a log that begins after a position was trimmed; 0 if it still begins with its first entry."""
    return first if first & COUNTER_MASK else 0


class Entry(NamedTuple):
    """One durable entry of a log."""

    position: int
    payload: bytes


class Measures(NamedTuple):
    """What a log holds and how it fares, for an operator to see. Not every log has segments and syncs."""

    first: int
    tail: int
    size_bytes: int
    segment_count: int | None
    sync_seconds: Tally | None


class Log(Protocol):
    """Where commands are kept in order. `append` may be called again before the last one returned."""

    @property
    def known_tail(self) -> int | None:
        """`tail()` where it is known without asking anyone (one node), else None."""
        ...

    @property
    def measures(self) -> Measures:
        """What it holds now, as far as this node knows."""
        ...

    def append(self, payload: bytes) -> Awaitable[int]:
        """Make the payload durable and return its position, or raise an AppendFailed.

        A log may begin with it before the result is awaited.
        """
        ...

    def follow(self, after: int) -> AsyncIterator[Entry]:
        """Entries after a position, then live ones, in order, each once, without end."""
        ...

    async def tail(self) -> int:
        """A position at or after every acknowledged entry."""
        ...

    async def trim(self, upto: int) -> None:
        """Forget entries at or below a position. Never forgets more; may keep some of them."""
        ...

    async def close(self) -> None:
        """Finish what was begun and let go of the files. Followers end."""
        ...


class AppendFailed(Exception):
    """An append that was not acknowledged. The three kinds are kept apart up to the HTTP answer."""


class AppendRefused(AppendFailed):
    """Not written, and trying again will not help."""


class AppendRetryable(AppendFailed):
    """Certainly not written; the same append may succeed later."""


class AppendUnknown(AppendFailed):
    """It may or may not have been written."""


class LogDamaged(Exception):
    """The log cannot be read as it must be: which file, where, what is wrong, and what to do."""

    def __init__(self, path: str, where: str, problem: str, hint: str) -> None:
        super().__init__(f"{path}: {problem} ({where}). {hint}")
        self.path, self.where, self.problem, self.hint = path, where, problem, hint


class Trimmed(Exception):
    """The entries after the asked position are no longer in the log."""

    def __init__(self, after: int, first: int) -> None:
        super().__init__(f"entries after position {after} were trimmed; the log begins after {first}")
        self.after, self.first = after, first
