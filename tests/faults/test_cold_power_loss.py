"""Power loss after a snapshot was stored: every name on the way to it is on the disk."""

import os
from pathlib import Path

import pytest

from ursula.cold.blobs import Blobs
from ursula.cold.objects.fs import FsStore

KEYS = ("bucket/0-1-0/01ARZ3NDEKTSV4RRFFQ69G5FAV", "bucket/0-1-0/01ARZ3NDEKTSV4RRFFQ69G5FAW")


class Disk:
    """Which folders were synced since something was made in them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[tuple[str, str]] = []
        self._fsync = os.fsync
        self._rename = os.rename
        monkeypatch.setattr(os, "fsync", self._note_sync)
        monkeypatch.setattr(os, "rename", self._note_rename)

    def _note_sync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        self.steps.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))

    def _note_rename(self, before: Path, after: Path) -> None:
        assert ("sync", str(before)) in self.steps, "a name for bytes that may not be there"
        self._rename(before, after)
        self.steps.append(("rename", str(after)))


@pytest.mark.parametrize("is_known", [False, True], ids=["new folder", "folder of one that was killed"])
@pytest.mark.anyio
async def test_a_stored_snapshot_has_all_its_names_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    store = FsStore(tmp_path / "cold")
    blobs = Blobs(store, tmp_path / "tmp")
    if is_known:  # made, and then nobody synced it
        store.local_path(f"blobs/{KEYS[0]}").parent.mkdir(parents=True)
    for key in KEYS:
        disk = Disk(monkeypatch)
        writer = blobs.create()
        writer.write(b"bytes")
        await blobs.keep(writer, key)
        path = store.local_path(f"blobs/{key}")
        after = disk.steps[disk.steps.index(("rename", str(path))) :]
        synced = {name for step, name in after if step == "sync"}
        names = [folder for folder in path.parents if folder == tmp_path or tmp_path in folder.parents]
        assert len(names) == 5
        assert {str(folder) for folder in names} <= synced
        assert path.read_bytes() == b"bytes"
        monkeypatch.undo()
    await store.close()
