"""The interface that every log implements: opaque entries, durable and in order. Knows nothing of streams.

Each entry has a position. Positions increase, perhaps with gaps. A position is generation x 2^40 + the log's
own counter, so positions never repeat or go back.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple, Protocol

from ursula import positions
from ursula.histogram import Histogram

GENERATION_SHIFT = positions.GENERATION_SHIFT
COUNTER_MASK = positions.COUNTER_MASK


def purged_to(first: int) -> int:
    """The position up to which a log that begins after `first` was trimmed; 0 if it never was."""
    return first if first & COUNTER_MASK else 0


class Entry(NamedTuple):
    """One durable entry of a log."""

    position: int
    payload: bytes


TakeEntry = Callable[[Entry], bool]
"""Takes a live entry, or returns False."""


class Measures(NamedTuple):
    """The extent and health of a log, for operators. Not every log has segments and syncs."""

    first: int
    tail: int
    size_bytes: int
    segment_count: int | None
    sync_seconds: Histogram | None


class Log(Protocol):
    """Keeps entries in order. `append` may be called again before the previous call has returned."""

    @property
    def known_tail(self) -> int | None:
        """`tail()` if this node knows it without asking others (as a single node does), else None."""
        ...

    @property
    def batch_bytes(self) -> int:
        """How large an entry with several commands should be at the most."""
        ...

    @property
    def entry_bytes_max(self) -> int | None:
        """How large an entry may be; None if there is no limit."""
        ...

    @property
    def first(self) -> int:
        """The position before the first entry that is still in the log."""
        ...

    @property
    def measures(self) -> Measures:
        """Its current extent and size, as far as this node knows."""
        ...

    @property
    def space_problem(self) -> str | None:
        """Why there is no space for more than the engine's own commands; None if there is."""
        ...

    def append(self, payload: bytes) -> Awaitable[int]:
        """Make the payload durable and return its position, or raise an AppendFailed.

        A log may begin to write before the result is awaited.
        """
        ...

    def follow(
        self, after: int, count: int | None = None, take: TakeEntry | None = None
    ) -> AsyncIterator[Entry]:
        """Entries after a position, then live ones: in order, each once, until the log is closed.

        `count` is how many entries the caller has applied up to that position, if it knows. A log that
        numbers its entries checks it. `take` may get a live entry at once while the caller waits for it,
        which saves waking the caller's task. Entries that it does not take are delivered as usual. The caller
        gets an exception of `take`.
        """
        ...

    async def tail(self) -> int:
        """A position at or after every acknowledged entry; raises LogUnavailable."""
        ...

    async def protect(self, after: int) -> int:
        """Say that this node still needs the entries after a position; returns `first`.

        Trimming waits for every node that shares the log, unless the log would become too long. Called again
        and again with later positions. A log of a single node has nothing to wait for. Raises LogUnavailable.
        """
        ...

    async def trim(self, upto: int) -> None:
        """Remove entries at or below a position: not necessarily all of them, but never any others.

        Raises LogUnavailable.
        """
        ...

    async def close(self) -> None:
        """Finish the appends that were begun, release all resources and end the followers."""
        ...


class AppendFailed(Exception):
    """An append that was not acknowledged. Its kinds say whether it was written and whether to retry."""


class AppendRefused(AppendFailed):
    """Not written, and a retry will not help."""


class AppendRetryable(AppendFailed):
    """Certainly not written; the same append may succeed later."""


class AppendUnknown(AppendFailed):
    """It may or may not have been written."""


class LogUnavailable(Exception):
    """The log cannot be reached now, so its tail is not known, or it was not trimmed; a retry may help."""


class LogDamaged(Exception):
    """The log cannot be used: which file, where in it, what is wrong, and what to do."""

    def __init__(self, path: str, where: str, problem: str, hint: str) -> None:
        super().__init__(f"{path}: {problem} ({where}). {hint}")
        self.path, self.where, self.problem, self.hint = path, where, problem, hint


class EntriesTrimmed(Exception):
    """The entries after the requested position are no longer in the log."""

    def __init__(self, after: int, first: int) -> None:
        super().__init__(f"entries after position {after} were trimmed; the log begins after {first}")
        self.after, self.first = after, first
