"""The data folder: made so that power loss cannot take it back, and used by one process at a time."""

import os
from pathlib import Path

import pytest

from ursula.engine.folder import DataFolder, FolderRefused, Identity, NewFolder


def test_every_new_folder_above_it_is_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def spy(file: int) -> None:
        synced.append(os.fstat(file).st_ino)
        fsync(file)

    monkeypatch.setattr(os, "fsync", spy)
    path = tmp_path / "a" / "b" / "data"
    DataFolder(path).close()
    assert (path / "ursula.json").stat().st_ino in synced
    # And again at the next start: this one may have died before it came to that.
    for _ in range(2):
        for folder in (path, path.parent, path.parent.parent, tmp_path):
            assert folder.stat().st_ino in synced, folder
        synced.clear()
        DataFolder(path).close()


def test_it_keeps_its_identity(tmp_path: Path) -> None:
    first = DataFolder(tmp_path / "data")
    first.close()
    second = DataFolder(tmp_path / "data")
    assert second.identity == first.identity
    second.close()


def test_two_cannot_have_it_at_once(tmp_path: Path) -> None:
    first = DataFolder(tmp_path / "data")
    with pytest.raises(FolderRefused, match="in use"):
        DataFolder(tmp_path / "data")
    first.close()
    DataFolder(tmp_path / "data").close()


def test_a_half_written_identity_is_written_again(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "ursula.json.new").write_text('{"form')
    DataFolder(tmp_path / "data").close()
    DataFolder(tmp_path / "data").close()


def test_a_restore_that_has_not_come_to_its_end_is_no_new_node(tmp_path: Path) -> None:
    path, identity = tmp_path / "data", Identity(1, "of the copy", 2, 1)
    NewFolder(path, None).close()
    with pytest.raises(FolderRefused, match="has not come to its end: run it again"):
        DataFolder(path)
    folder = NewFolder(path, None)
    folder.finish(identity)
    folder.close()
    again = DataFolder(path)
    assert again.identity == identity
    again.close()
