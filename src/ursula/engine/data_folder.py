"""The data folder: who it belongs to, which format it has, and who is using it now."""

import errno
import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path

import msgspec

from ..cold.objects.checksum import has_checksum, with_checksum
from ..cold.objects.fsync import sync_folder

FORMAT = 1
_LOCK = "lock"
_RESTORING = "restoring"
_LEFT_BEHIND = {_LOCK, "ursula.json.new", _RESTORING}
"""What a restore that was killed may leave in a folder that is empty otherwise."""


class FolderRefused(Exception):
    """The data folder cannot be used; the text says why and what to do."""


class Identity(msgspec.Struct, frozen=True):
    """What `ursula.json` says of the data beside it."""

    format: int
    cluster: str
    generation: int
    groups: int


class Applied(msgspec.Struct, frozen=True):
    """What `applied.json` says: how far each group had come."""

    positions: list[int]


class DataFolder:
    """A data folder that this process, and no other, has open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._applied: list[int] = []
        self._lock = _lock(path)
        try:
            self.identity = self._read() or self._create()
            _make_durable(path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others use it."""
        os.close(self._lock)

    def note_applied(self, positions: list[int]) -> None:
        """Note how far each group has come: a log that ends before that is not the one it was."""
        if positions != self._applied:
            self._applied = positions
            temporary = self.path / "applied.json.new"
            with suppress(OSError):  # what matters of it is in the log
                note = msgspec.json.format(msgspec.json.encode(Applied(positions)), indent=1) + b"\n"
                temporary.write_bytes(with_checksum(note))
                temporary.rename(self.path / "applied.json")

    def applied(self, group: int) -> int:
        """How far a group had come when that was last noted; 0 if nobody knows."""
        try:
            note = (self.path / "applied.json").read_bytes()
            if has_checksum(note):
                positions = msgspec.json.decode(note, type=Applied).positions
            else:
                positions = msgspec.json.decode(note, type=list[int])  # as earlier versions wrote it
        except (OSError, ValueError):
            return 0  # it is written without syncing, so a power loss may leave anything
        return positions[group] if group < len(positions) else 0

    def log_path(self, group: int) -> Path:
        """Where the log of a group lies."""
        return self.path / "log" / f"g{group}"

    def _read(self) -> Identity | None:
        file = self.path / "ursula.json"
        try:
            text = file.read_bytes()
            found = msgspec.json.decode(text, type=dict[str, object]).get("format")
            if isinstance(found, int) and found > FORMAT:
                raise FolderRefused(
                    f"the data folder {self.path} has format {found}, and this version of ursula reads "
                    f"format {FORMAT}: start a newer version"
                )
            return msgspec.json.decode(text, type=Identity)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise FolderRefused(
                f"{file} cannot be read ({error}): put it back from a backup, or choose another --data-dir"
            ) from None

    def _create(self) -> Identity:
        if (self.path / "log").exists():
            raise FolderRefused(
                f"the data folder {self.path} has a log but no ursula.json: put that file back from a backup"
            )
        if (self.path / _RESTORING).exists():
            raise FolderRefused(
                f"a restore to the data folder {self.path} was begun and has not come to its end: run it "
                "again; or, for a new and empty node, choose another --data-dir"
            )
        identity = Identity(FORMAT, secrets.token_hex(8), 1, 1)
        _write(self.path, identity)
        return identity


class NewFolder:
    """A data folder that a restore fills: locked from the beginning, and of use to no one before its end.

    A restore that is refused before it has begun leaves it as it was, so that nobody takes it for half done.
    """

    def __init__(self, path: Path, store: Path | None) -> None:
        """The folder may be there, but must be empty; only the store itself, if local, may lie in it."""
        self.path = path
        self._made = [folder for folder in (path, *path.parents) if not os.path.exists(folder)]
        self._made_lock = not os.path.exists(path / _LOCK)
        self._made_marker = False
        self._begun = False
        self._lock = _lock(path)
        try:
            check_empty(path, store)
        except FolderRefused:
            self.close()
            raise

    def begin(self) -> None:
        """From now on no server starts from it before its end: the restore is about to write."""
        marker = self.path / _RESTORING
        try:
            self._made_marker = not marker.exists()
            self._begun = True
            marker.touch()
            sync_folder(self.path)
        except OSError as error:
            raise FolderRefused(f"cannot use the data folder {self.path}: {error.strerror}") from None

    def take_back(self) -> None:
        """Nothing was written after all."""
        if self._made_marker:
            (self.path / _RESTORING).unlink(missing_ok=True)
            self._begun = False

    def finish(self, identity: Identity) -> None:
        """From now on a server can start from it."""
        _write(self.path, identity)
        (self.path / _RESTORING).unlink(missing_ok=True)
        _make_durable(self.path)

    def close(self) -> None:
        """Let others use it."""
        if not self._begun:
            self._leave_as_it_was()
        os.close(self._lock)

    def _leave_as_it_was(self) -> None:
        with suppress(OSError):  # someone else may have put something there
            if self._made_lock:
                (self.path / _LOCK).unlink()
            for folder in self._made:
                folder.rmdir()


def is_abandoned(path: Path, cluster: str, generation: int) -> bool:
    """Whether this is certainly the data folder of that node and no process has it open."""
    try:
        identity = msgspec.json.decode((path / "ursula.json").read_bytes(), type=Identity)
        if (identity.cluster, identity.generation) != (cluster, generation):
            return False
        lock = os.open(path / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def check_empty(path: Path, store: Path | None) -> None:
    """FolderRefused if a folder that is there has more in it than a store; nothing is changed."""
    try:
        found = sorted(set(os.listdir(path)) - _LEFT_BEHIND - _leading_to(store, path))
    except FileNotFoundError:
        return
    except OSError as error:
        raise FolderRefused(f"cannot read the data folder {path}: {error.strerror}") from None
    if found:
        raise FolderRefused(
            f"the data folder {path} is not empty ({', '.join(found[:3])}): restore makes a new node and "
            "changes none that is there. Move it away, or choose another --data-dir"
        )


def _leading_to(store: Path | None, path: Path) -> set[str]:
    """The name in a folder below which a store lies, if it does."""
    if store is None or not store.resolve().is_relative_to(path.resolve()):
        return set()
    return set(store.resolve().relative_to(path.resolve()).parts[:1])


def _lock(path: Path) -> int:
    """Make the folder, and have it for this process alone."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise FolderRefused(f"cannot write to the data folder {path}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise FolderRefused(f"cannot lock the data folder {path}: {error.strerror}") from None
        raise FolderRefused(
            f"the data folder {path} is in use by another process: stop it, or choose another --data-dir"
        ) from None
    if not os.fstat(lock).st_nlink:  # a restore that was refused has taken it away
        os.close(lock)
        return _lock(path)
    return lock


def _write(path: Path, identity: Identity) -> None:
    temporary = path / "ursula.json.new"
    try:
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(identity) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path / "ursula.json")
    except OSError as error:
        raise FolderRefused(f"cannot write to the data folder {path}: {error.strerror}") from None


def _make_durable(path: Path) -> None:
    """Sync the folder and those above it: all may be new, made here or by a start that died half way."""
    try:
        sync_folder(path)
        for parent in path.absolute().parents:
            with suppress(PermissionError):  # one we may not read was made by someone else
                sync_folder(parent)
    except OSError as error:
        raise FolderRefused(f"cannot sync the data folder {path}: {error.strerror}") from None
