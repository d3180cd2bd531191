"""The rows that changed since the last flush, and a snapshot of them as of a cut.

A key names a row of the state in the store: a stream, a bucket, a segment, a replaced object, the tombstones
of a name or a bulk write. Keys are noted before the first change after a cut. So a flush can capture the rows
as of its cut step by step: a row that is about to change is captured just before that, the others later.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum

Key = tuple[int, str, str]
Rows = list[tuple[Key, bytes | None]]

LARGE_ROW_BYTES = 64 * 1024
"""Encoding a row of this size takes as long as many others: thousands of tombstones may share one row."""


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
    """The keys of rows that changed since the last flush: sealed by later cuts, or still open."""

    def __init__(self) -> None:
        self.open: dict[Key, None] = {}
        self.sealed: list[tuple[int, dict[Key, None]]] = []
        self.capture: RowSnapshot | None = None

    def note(self, key: Key) -> None:
        """Note a row that is about to change."""
        if key not in self.open:
            if self.capture is not None:
                self.capture.before_change(key)
            self.open[key] = None

    def seal(self, cut: int) -> None:
        """Assign the changes so far to a cut."""
        self.sealed.append((cut, self.open))
        self.open = {}

    def forget_stored(self, cut: int) -> list[dict[Key, None]]:
        """Forget the changes up to a cut, which are stored; return their keys."""
        stored = [keys for sealed, keys in self.sealed if sealed <= cut]
        self.sealed = [(sealed, keys) for sealed, keys in self.sealed if sealed > cut]
        return stored

    def begin_capture(
        self, row_of: Callable[[Key], bytes | None], everything: Iterator[Key] | None = None
    ) -> "RowSnapshot":
        """Begin to capture, as of the last cut, the rows that changed up to it, or all rows for a base."""
        sealed = [keys for _, keys in self.sealed]
        self.capture = RowSnapshot(everything or (key for keys in sealed for key in keys), sealed, row_of)
        self.capture.is_base = everything is not None
        return self.capture

    def end_capture(self) -> None:
        """End a capture that is done or no longer wanted."""
        self.capture = None


class RowSnapshot:
    """The rows of some keys as of a cut. `row_of` encodes a row as it is now; None if there is none."""

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
        """Capture up to `count` more rows, fewer if one is large."""
        for _ in range(count):
            key = next(self._keys, None)
            if key is None:
                self.is_done = True
                self._keys, self._wanted = iter(()), []  # residency has the keys and frees them step by step
                return
            if key not in self._early and self._keep(key) >= LARGE_ROW_BYTES:
                return

    def _keep(self, key: Key) -> int:
        row = self._row_of(key)
        if row is not None or not self.is_base:
            self.rows.append((key, row))
        return 0 if row is None else len(row)
