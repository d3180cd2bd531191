"""The real disk does what the double pretends."""

import os
from pathlib import Path

import pytest

from ursula.log.disk import RealDisk


def test_short_writes_and_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, read = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: write(file, data[:3], offset))
    monkeypatch.setattr(os, "pread", lambda file, length, offset: read(file, min(length, 3), offset))
    disk = RealDisk()
    file = disk.create(str(tmp_path / "file"))
    disk.write(file, b"0123456789", 2)
    assert disk.read(file, 100, 0) == b"\0\x000123456789"
    assert disk.read(file, 4, 3) == b"1234"
    disk.close(file)


def test_files_grow_shrink_move_and_go(tmp_path: Path) -> None:
    disk, old, new = RealDisk(), str(tmp_path / "old"), str(tmp_path / "new")
    file = disk.create(old)
    with pytest.raises(FileExistsError):
        disk.create(old)
    disk.preallocate(file, 10_000)
    assert disk.size(file) == 10_000
    disk.truncate(file, 100)
    disk.sync(file)
    assert disk.size(file) == 100
    disk.close(file)
    disk.rename(old, new)
    assert disk.list(str(tmp_path)) == ["new"]
    disk.unlink(new)
    disk.sync_directory(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        disk.open(new)


def test_new_folders_are_durable_in_their_parents(tmp_path: Path) -> None:
    synced: list[str] = []

    class Recording(RealDisk):
        def sync_directory(self, directory: str) -> None:
            synced.append(directory)
            super().sync_directory(directory)

    disk, inner = Recording(), str(tmp_path / "a" / "b")
    disk.make_directory(inner)
    assert synced[-2:] == [str(tmp_path), str(tmp_path / "a")]
    disk.make_directory(inner)
    assert synced[-1] == str(tmp_path / "a")
    assert os.path.isdir(inner)
