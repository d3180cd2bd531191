"""The data folder: which node it belongs to, its format, and the process that has it open."""

import errno
import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path

import msgspec

from ...cold.objects.checksum import has_checksum, with_checksum
from ...cold.objects.fsync import replace_file, sync_folder

FORMAT = 1
_LOCK = "lock"
_RESTORING = "restoring"
_LEFT_BEHIND = {_LOCK, "ursula.json.new", _RESTORING}
"""The files that a killed restore may leave in a folder that is otherwise empty."""


class FolderRefused(Exception):
    """The data folder cannot be used; the text says why and what to do."""


class Identity(msgspec.Struct, frozen=True):
    """The contents of `ursula.json`: the node whose data is next to it."""

    format: int
    cluster: str
    generation: int
    groups: int


def new_identity(groups: int = 1) -> Identity:
    """The identity of a new node or a new cluster."""
    return Identity(FORMAT, secrets.token_hex(8), 1, groups)


class Applied(msgspec.Struct, frozen=True):
    """The contents of `applied.json`: the last position that each group had applied."""

    positions: list[int]


class DataFolder:
    """A data folder that only this process has open."""

    def __init__(self, path: Path, *, is_member: bool = False) -> None:
        """A new folder gets an identity of its own; that of a member of a cluster gets it by `join`."""
        self.path = path
        self._applied: list[int] = []
        self._lock = _lock(path)
        try:
            self._identity = self._read()
            if is_member:
                self._check_member()
            elif self._identity is None:
                self._identity = self._create()
            _make_durable(path)
        except BaseException:
            self.close()
            raise

    @property
    def found_identity(self) -> Identity | None:
        """The node whose data this is; None for a new member of a cluster."""
        return self._identity

    @property
    def identity(self) -> Identity:
        """The node whose data this is."""
        if self._identity is None:
            raise RuntimeError("the folder of a new member has no identity before it joins")
        return self._identity

    def join(self, identity: Identity) -> None:
        """Make this the folder of a member of a cluster, or check that it is.

        A member continues in a generation that was restored: nothing in its folder belongs to a generation,
        since the log is in etcd.
        """
        own = self._identity
        if own is None or (own.generation < identity.generation and own == _before(identity, own)):
            _write(self.path, identity)
            self._identity = identity
        elif own != identity:
            raise FolderRefused(
                f"the data folder {self.path} belongs to generation {own.generation} of the "
                f"cluster {own.cluster}, and the store to generation {identity.generation} of "
                f"{identity.cluster}: check cold.root and cold.s3_bucket. After a restore, begin with an "
                "empty --data-dir"
            )

    def close(self) -> None:
        """Unlock the folder."""
        os.close(self._lock)

    def note_applied(self, positions: list[int]) -> None:
        """Note the last applied position of each group: a log that ends before it has lost entries."""
        if positions != self._applied:
            self._applied = positions
            temporary = self.path / "applied.json.new"
            with suppress(OSError):  # it is only a check: the data is in the log
                note = msgspec.json.format(msgspec.json.encode(Applied(positions)), indent=1) + b"\n"
                temporary.write_bytes(with_checksum(note))
                temporary.rename(self.path / "applied.json")

    def applied(self, group: int) -> int:
        """The last applied position of a group as last noted; 0 if it is unknown."""
        try:
            note = (self.path / "applied.json").read_bytes()
            if has_checksum(note):
                positions = msgspec.json.decode(note, type=Applied).positions
            else:
                positions = msgspec.json.decode(note, type=list[int])  # as earlier versions wrote it
        except (OSError, ValueError):
            return 0  # it is written without syncing, so a power loss may leave garbage in it
        return positions[group] if group < len(positions) else 0

    def log_path(self, group: int) -> Path:
        """The folder of a group's log."""
        return self.path / "log" / f"g{group}"

    def _read(self) -> Identity | None:
        file = self.path / "ursula.json"
        try:
            text = file.read_bytes()
            found = msgspec.json.decode(text, type=dict[str, object]).get("format")
            if isinstance(found, int) and found > FORMAT:
                raise FolderRefused(
                    f"the data folder {self.path} has format {found}, but this version of ursula reads "
                    f"format {FORMAT}: start a newer version"
                )
            return msgspec.json.decode(text, type=Identity)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise FolderRefused(
                f"{file} cannot be read ({error}): put it back from a backup, or choose another --data-dir"
            ) from None

    def _check_member(self) -> None:
        if (self.path / "log").exists():
            raise FolderRefused(
                f"the data folder {self.path} is that of a single node, which cannot become part of a "
                "cluster by itself: choose another --data-dir, or leave out cluster.name"
            )

    def _create(self) -> Identity:
        if (self.path / "log").exists():
            raise FolderRefused(
                f"the data folder {self.path} has a log but no ursula.json: put that file back from a backup"
            )
        if (self.path / _RESTORING).exists():
            raise FolderRefused(
                f"a restore to the data folder {self.path} was begun and not finished: run it "
                "again; or, for a new and empty node, choose another --data-dir"
            )
        if (self.path / "etcd").exists():
            raise FolderRefused(
                f"the data folder {self.path} is that of a member of a cluster: set cluster.name, or choose "
                "another --data-dir"
            )
        identity = new_identity()
        _write(self.path, identity)
        return identity


class NewFolder:
    """A data folder that a restore fills: it is locked, and no server starts from it until it is finished.

    A restore that is rejected before it begins leaves the folder as it was, so that the folder does not look
    like that of an unfinished one.
    """

    def __init__(self, path: Path, store: Path | None) -> None:
        """The folder may exist, but must be empty except for the store itself, if that is local."""
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
        """Mark the folder, since the restore is about to write: no server starts from it until `finish`."""
        marker = self.path / _RESTORING
        try:
            self._made_marker = not marker.exists()
            self._begun = True
            marker.touch()
            sync_folder(self.path)
        except OSError as error:
            raise FolderRefused(f"cannot use the data folder {self.path}: {error.strerror}") from None

    def take_back(self) -> None:
        """Remove the mark, since nothing was written after all."""
        if self._made_marker:
            (self.path / _RESTORING).unlink(missing_ok=True)
            self._begun = False

    def finish(self, identity: Identity) -> None:
        """Write the identity: from now on a server can start from the folder."""
        _write(self.path, identity)
        (self.path / _RESTORING).unlink(missing_ok=True)
        _make_durable(self.path)

    def close(self) -> None:
        """Unlock the folder."""
        if not self._begun:
            self._leave_as_it_was()
        os.close(self._lock)

    def _leave_as_it_was(self) -> None:
        with suppress(OSError):  # another process may have put a file there
            if self._made_lock:
                (self.path / _LOCK).unlink()
            for folder in self._made:
                folder.rmdir()


def is_abandoned(path: Path, cluster: str, generation: int) -> bool:
    """Whether this is certainly the data folder of that node, and no process has it open."""
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


def _before(identity: Identity, own: Identity) -> Identity:
    """An identity in the generation of another one."""
    return msgspec.structs.replace(identity, generation=own.generation)


def check_empty(path: Path, store: Path | None) -> None:
    """Raise FolderRefused if a folder contains anything but a store; changes nothing."""
    try:
        found = sorted(set(os.listdir(path)) - _LEFT_BEHIND - _leading_to(store, path))
    except FileNotFoundError:
        return
    except OSError as error:
        raise FolderRefused(f"cannot read the data folder {path}: {error.strerror}") from None
    if found:
        raise FolderRefused(
            f"the data folder {path} is not empty ({', '.join(found[:3])}): restore makes a new node and "
            "does not change an existing one. Move it away, or choose another --data-dir"
        )


def _leading_to(store: Path | None, path: Path) -> set[str]:
    """The name in a folder that leads to a store, if the store is inside the folder."""
    if store is None or not store.resolve().is_relative_to(path.resolve()):
        return set()
    return set(store.resolve().relative_to(path.resolve()).parts[:1])


def _lock(path: Path) -> int:
    """Create the folder, and lock it for this process."""
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
    if not os.fstat(lock).st_nlink:  # a restore that was rejected has removed the file
        os.close(lock)
        return _lock(path)
    return lock


def _write(path: Path, identity: Identity) -> None:
    try:
        replace_file(path / "ursula.json", msgspec.json.encode(identity) + b"\n")
    except OSError as error:
        raise FolderRefused(f"cannot write to the data folder {path}: {error.strerror}") from None


def _make_durable(path: Path) -> None:
    """Sync the folder and its parents: all may be new, created here or by a start that was killed."""
    try:
        sync_folder(path)
        for parent in path.absolute().parents:
            with suppress(PermissionError):  # one that we may not read was not created by us
                sync_folder(parent)
    except OSError as error:
        raise FolderRefused(f"cannot sync the data folder {path}: {error.strerror}") from None
