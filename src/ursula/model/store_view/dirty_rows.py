"""What changed since the last flush, and the capture of it as it was at a cut.

A key names a row of the state in the store: a stream, a bucket, a segment, what was replaced or what was
deleted. Keys are noted at the first change after a cut, before it happens; so whoever stores the state of
the cut can take his time: what is about to change is captured just before, everything else later.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum

Key = tuple[int, str, str]
Rows = list[tuple[Key, bytes | None]]

LARGE_ROW_BYTES = 64 * 1024
"""To make one takes as long as many others: thousands of streams that had one name are one row."""


class RowKind(IntEnum):
    """What a row describes. In memory only: the store has the names in `cold.state.state_rows.KINDS`."""

    GROUP = 0
    BUCKET = 1
    STREAM = 2
    SEGMENT = 3
    REPLACED = 4
    GRAVE = 5
    INGEST = 6


GROUP_KEY: Key = (RowKind.GROUP, "", "")
"""The key of the group's own row."""


class DirtyRows:
    """The keys that changed after the flushed position: by the cuts since then, and after the last one."""

    def __init__(self) -> None:
        self.open: dict[Key, None] = {}
        self.sealed: list[tuple[int, dict[Key, None]]] = []
        self.capture: RowSnapshot | None = None

    def note(self, key: Key) -> None:
        """This row is about to change."""
        if key not in self.open:
            if self.capture is not None:
                self.capture.before_change(key)
            self.open[key] = None

    def seal(self, cut: int) -> None:
        """What changed so far was before the cut."""
        self.sealed.append((cut, self.open))
        self.open = {}

    def forget_stored(self, cut: int) -> list[dict[Key, None]]:
        """What changed up to the cut is stored; the keys are handed out."""
        stored = [keys for sealed, keys in self.sealed if sealed <= cut]
        self.sealed = [(sealed, keys) for sealed, keys in self.sealed if sealed > cut]
        return stored

    def begin_capture(
        self, row_of: Callable[[Key], bytes | None], everything: Iterator[Key] | None = None
    ) -> "RowSnapshot":
        """Capture, as of the last cut, what changed up to it; or everything, for a base."""
        sealed = [keys for _, keys in self.sealed]
        self.capture = RowSnapshot(everything or (key for keys in sealed for key in keys), sealed, row_of)
        self.capture.is_base = everything is not None
        return self.capture

    def end_capture(self) -> None:
        """The capture is done, or not wanted any more."""
        self.capture = None


class RowSnapshot:
    """The rows of some keys as they were at a cut. `row_of` tells how one is now; None if there is none."""

    def __init__(
        self, keys: Iterator[Key], wanted: list[dict[Key, None]], row_of: Callable[[Key], bytes | None]
    ) -> None:
        self._keys = keys
        self._wanted = wanted
        self._row_of = row_of
        self._early: dict[Key, None] = {}
        self.is_base = False
        self.rows: Rows = []
        self.is_done = False

    def before_change(self, key: Key) -> None:
        """Capture a row that is about to change for the first time since the cut."""
        if self.is_done or key in self._early:
            return
        if self.is_base or any(key in keys for keys in self._wanted):
            self._early[key] = None
            self._keep(key)

    def step(self, count: int) -> None:
        """Capture so many more, or fewer if one is large."""
        for _ in range(count):
            key = next(self._keys, None)
            if key is None:
                self.is_done = True
                self._keys, self._wanted = iter(()), []  # which others let go of bit by bit
                return
            if key not in self._early and self._keep(key) >= LARGE_ROW_BYTES:
                return

    def _keep(self, key: Key) -> int:
        row = self._row_of(key)
        if row is not None or not self.is_base:
            self.rows.append((key, row))
        return 0 if row is None else len(row)
