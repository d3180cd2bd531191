"""The data folder: made so that power loss cannot take it back, and used by one process at a time."""

import fcntl
import os
from pathlib import Path

import pytest

from ursula.engine.start.data_folder import DataFolder, FolderRefused, Identity, NewFolder


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
    begun = NewFolder(path, None)
    begun.begin()
    begun.close()
    with pytest.raises(FolderRefused, match="was begun and not finished: run it again"):
        DataFolder(path)
    NewFolder(path, None).close()  # refused, which does not undo the one before
    with pytest.raises(FolderRefused, match="was begun and not finished: run it again"):
        DataFolder(path)
    folder = NewFolder(path, None)
    folder.begin()
    folder.finish(identity)
    folder.close()
    again = DataFolder(path)
    assert again.identity == identity
    again.close()


@pytest.mark.parametrize("there", ["nothing", "the folder", "a file"])
def test_a_restore_that_is_refused_leaves_the_folder_as_it_was(tmp_path: Path, there: str) -> None:
    path = tmp_path / "a" / "data"
    if there != "nothing":
        path.mkdir(parents=True)
    if there == "a file":
        (path / "notes").write_text("mine")
        with pytest.raises(FolderRefused, match="is not empty"):
            NewFolder(path, None)
        assert os.listdir(path) == ["notes"]
        return
    for is_begun in (False, True):
        folder = NewFolder(path, None)
        if is_begun:
            folder.begin()
            folder.take_back()
        folder.close()
        assert path.exists() == (there == "the folder")
        assert (tmp_path / "a").exists() == path.exists()
        assert not path.exists() or os.listdir(path) == []
    DataFolder(path).close()


def test_a_lock_that_was_taken_away_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, refused = tmp_path / "data", NewFolder(tmp_path / "data", None)
    lock = fcntl.flock

    def late(file: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        refused.close()  # while the next one has opened the file and not locked it yet
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    first = DataFolder(path)
    with pytest.raises(FolderRefused, match="in use"):
        DataFolder(path)
    first.close()
