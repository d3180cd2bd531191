"""A real folder that can lose power: it knows what of it was synced, and shows what a crash may leave.

Files have their bytes as of their last sync, and folders their names as of theirs. What happened since is on
the disk or not, each change by itself: a file that was moved may be in both places, or in neither.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import RLock
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

Choose = Callable[[T | None, T | None], T | None]
"""Of what a name stood for when it was synced and what it stands for now, what the crash leaves."""


def nothing_new(before: T | None, _: T | None) -> T | None:
    """Nothing is on the disk but what was synced."""
    return before


def only_removals(before: T | None, now: T | None) -> T | None:
    """What was removed is gone, and what was made was lost."""
    return None if now is None else before


class LossyFolder:
    """Watches a folder that is there. `on_moment` is told of every change and every sync in it, after it.

    Who has `lock` sees it at one moment.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.on_moment: Callable[[str], None] = lambda _: None
        self.lock = RLock()
        self._held: dict[int, int] = {}  # an open file for each inode, so that no other gets its number
        self._names: dict[int, dict[str, int]] = {}
        self._bytes: dict[int, bytes] = {}
        self._root = self._hold(root)
        for name in ("unlink", "rmdir", "mkdir"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name), place=0))
        for name in ("rename", "replace", "link"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name), place=1))
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._watched_sync(name, getattr(os, name)))

    def crash(self, target: Path, random: Random | None, choose: Choose[int] = nothing_new) -> None:
        """Make a folder of what is left if the power fails now; with a random, of any part of it."""
        with self.lock:
            keep = choose if random is None else lambda *both: random.choice(both)
            self._leave(self._root, self.root, target, keep, random)

    def close(self) -> None:
        """Let go of its files."""
        for file in self._held.values():
            os.close(file)
        self._held.clear()

    # How it keeps its books.

    def _watched(self, name: str, call: Callable[..., Any], place: int) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            with self.lock:
                result = call(*arguments, **options)
                if self._is_inside(path := os.path.abspath(os.fsdecode(arguments[place]))):
                    self.on_moment(f"{name} {path}")
                return result

        return watched

    def _watched_sync(self, name: str, call: Callable[[int], None]) -> Callable[[int], None]:
        def watched(file: int) -> None:
            path = os.readlink(f"/proc/self/fd/{file}")
            if not self._is_inside(path):
                call(file)
                return
            with self.lock:
                self._sync(file, path)
                self.on_moment(f"{name} {path}")

        return watched

    def _sync(self, file: int, path: str) -> None:
        status = os.fstat(file)
        self._hold(Path(f"/proc/self/fd/{file}"))
        if stat.S_ISDIR(status.st_mode):
            self._names[status.st_ino] = self._listed(Path(path))
        else:
            self._bytes[status.st_ino] = Path(f"/proc/self/fd/{file}").read_bytes()

    def _is_inside(self, path: str) -> bool:
        return path == str(self.root) or path.startswith(f"{self.root}/")

    def _hold(self, path: Path) -> int:
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
        inode = os.fstat(file).st_ino
        if inode in self._held:
            os.close(file)
        else:
            self._held[inode] = file
        return inode

    def _listed(self, folder: Path) -> dict[str, int]:
        return {name: self._hold(folder / name) for name in os.listdir(folder)}

    # What it leaves.

    def _leave(
        self, inode: int, now: Path | None, target: Path, keep: Choose[int], random: Random | None
    ) -> None:
        target.mkdir()
        before = self._names.get(inode, {})
        current = {} if now is None else self._listed(now)
        for name in sorted({*before, *current}):
            known, present = before.get(name), current.get(name)
            kept = known if known == present else keep(known, present)
            if kept is None:
                continue
            if stat.S_ISDIR(os.fstat(self._held[kept]).st_mode):
                path = now / name if now is not None and kept == present else None
                self._leave(kept, path, target / name, keep, random)
            else:
                (target / name).write_bytes(self._left_of(kept, random))

    def _left_of(self, inode: int, random: Random | None) -> bytes:
        synced = self._bytes.get(inode, b"")
        if random is None:
            return synced
        now = Path(f"/proc/self/fd/{self._held[inode]}").read_bytes()
        arrived = random.choice((0, random.randrange(len(now) + 1), len(now)))
        return now[:arrived] + synced[arrived:]
