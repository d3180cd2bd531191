"""The folder of a node's member: etcd's own data, and what must be known about it before etcd starts.

- `data/`: etcd's folder. It counts as a member's only once it has a write-ahead log: before that, etcd has
  promised nothing to anyone.
- `member.json`: the numbers of the cluster and the member whose data it is.
- `beginning.json`: a cluster is being begun here. While this file exists, nobody else has been able to reach
  the member, so its data may be removed, and the beginning repeated.
- `removed-{time}/`: the data of a member that the others have removed; only the last one is kept.
"""

import logging
import secrets
import shutil
import time
from pathlib import Path
from typing import TypeVar

import msgspec

from ...cold.objects.fsync import replace_file, sync_folder
from ..failures import ClusterRefused

FORMAT = 1

logger = logging.getLogger(__name__)


class MemberNote(msgspec.Struct, frozen=True):
    """Whose data it is, as etcd numbers clusters and members."""

    cluster: int
    member: int
    format: int = FORMAT


class BeginningNote(msgspec.Struct, frozen=True):
    """An attempt to begin a cluster, by a name that nothing else has."""

    attempt: str
    format: int = FORMAT


Note = TypeVar("Note", MemberNote, BeginningNote)


class EtcdFolder:
    """Created when it is first used, for this user alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path / "data"
        self.tls = path / "tls"
        self._member = path / "member.json"
        self._beginning = path / "beginning.json"
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)
        except OSError as error:
            raise ClusterRefused(f"cannot use the folder {path}: {error.strerror}") from None

    @property
    def has_member(self) -> bool:
        """Whether etcd can start from it again."""
        return any((self.data / "member" / "wal").glob("*.wal"))

    @property
    def is_beginning(self) -> bool:
        """Whether an attempt to begin a cluster here has not ended."""
        return self._beginning.exists()

    def begin(self) -> str:
        """Note that a cluster is being begun here; returns the attempt, the same one until it has ended."""
        if self.is_beginning:
            return self._read(self._beginning, BeginningNote).attempt
        attempt = secrets.token_hex(8)
        self._write(self._beginning, BeginningNote(attempt))
        return attempt

    def end_beginning(self) -> None:
        """Note that the attempt has succeeded: the data is a member's from now on."""
        self._beginning.unlink()
        sync_folder(self.path)

    def abandon_beginning(self) -> None:
        """Remove the data of an attempt that must not go on, and only then the note of it."""
        if self.is_beginning:
            self.clear()
            self.end_beginning()

    @property
    def member(self) -> MemberNote:
        """Whose data it is, if there is any."""
        return self._read(self._member, MemberNote)

    def note_member(self, note: MemberNote) -> None:
        """Note whose data it is, before the member does anything that counts."""
        self._write(self._member, note)

    def clear(self) -> None:
        """Remove data that is no member's, and make an empty folder for etcd."""
        self._member.unlink(missing_ok=True)
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(mode=0o700)
        sync_folder(self.path)

    def move_aside(self) -> None:
        """Keep the data of a member that was removed, in place of that of an earlier one."""
        for old in self.path.glob("removed-*"):
            shutil.rmtree(old, ignore_errors=True)
        kept = self.path / time.strftime("removed-%Y%m%dT%H%M%SZ", time.gmtime())
        self.data.rename(kept)
        self._member.unlink(missing_ok=True)
        sync_folder(self.path)
        logger.info("moved the data of the removed member to %s", kept)

    def _write(self, path: Path, note: MemberNote | BeginningNote) -> None:
        replace_file(path, msgspec.json.encode(note) + b"\n")

    def _read(self, path: Path, kind: type[Note]) -> Note:
        """A note. Raises ClusterRefused if it cannot be read, or if a newer version has written it."""
        try:
            note = msgspec.json.decode(path.read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError) as error:
            raise ClusterRefused(
                f"{path} cannot be read ({error}), so it is unknown whose data is in {self.data}: "
                f"move {self.path} away, and the node joins the cluster anew"
            ) from None
        if note.format > FORMAT:
            raise ClusterRefused(
                f"{path} has format {note.format}, but this version of ursula reads format {FORMAT}: "
                "start a newer version"
            )
        return note
