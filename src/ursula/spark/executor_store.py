"""The store as executors use it: through pyarrow, in a folder or in S3.

The server has a store of its own (`ursula.cold.objects.store`), which needs libraries that executors lack.
"""

import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import fs

from ..cold.objects.checksum import has_checksum
from ..cold.objects.fsync import sync_folder
from ..cold.objects.keys import live_key
from ..cold.objects.ulid import new_ulid
from ..cold.segment.footer import Footer
from .options import OptionError, S3Options

TAIL_BYTES = 256 << 10
COPY_BYTES = 8 << 20
_S3 = "s3://"


class Readable(Protocol):
    """Anything with a read method."""

    def read(self, size: int = ..., /) -> bytes:
        """The next bytes; none at the end."""


def absolute(root: str) -> str:
    """The absolute path of a folder: tasks run in other folders. S3 addresses are returned as they are."""
    return root if root.startswith(_S3) else os.path.abspath(root.removeprefix("file://"))


class OpenSegment:
    """A segment whose footer has been read."""

    def __init__(self, file: pa.NativeFile, footer: Footer, is_remote: bool) -> None:
        self.file = file
        self.footer = footer
        self.is_remote = is_remote


class ExecutorStore:
    """The objects below the root of a store."""

    def __init__(self, root: str, s3: S3Options, unfinished: str = "tmp") -> None:
        """If the store is a folder, objects being written are in `unfinished` below the root."""
        self.root = root
        self._unfinished = unfinished
        self.is_remote = root.startswith(_S3)
        if not self.is_remote:
            self._files: fs.FileSystem = fs.LocalFileSystem()
            self._base = root.removeprefix("file://").rstrip("/")
            return
        self._base = root.removeprefix(_S3).rstrip("/")
        if not self._base:
            raise OptionError(f"{root} names no bucket: write s3://bucket/prefix")
        scheme, slashes, host = (s3.endpoint or "").rpartition("://")
        given = {
            "access_key": s3.access_key_id,
            "secret_key": s3.secret_access_key,
            "session_token": s3.session_token,
            "region": s3.region,
            "endpoint_override": host or None,
            "scheme": scheme if slashes else None,
        }
        self._files = fs.S3FileSystem(**{name: text for name, text in given.items() if text is not None})

    def segment(self, path: str) -> OpenSegment:
        """Open a segment; FileNotFoundError if it is gone, ValueError if it is damaged."""
        file = self.open_file(path)
        size = file.size()
        tail = file.read_at(min(size, TAIL_BYTES), max(0, size - TAIL_BYTES))
        wanted = Footer.size_in(tail)
        if len(tail) < wanted <= size:
            tail = file.read_at(wanted, size - wanted)
        return OpenSegment(file, Footer.parse(path, tail, None), self.is_remote)

    def open(self, path: str) -> pa.NativeFile:
        """An object, to read from its beginning; FileNotFoundError if it is gone."""
        return self._files.open_input_stream(f"{self._base}/{path}")

    def open_file(self, path: str) -> pa.NativeFile:
        """An object, to read at any place; FileNotFoundError if it is gone."""
        return self._files.open_input_file(f"{self._base}/{path}")

    def read(self, path: str) -> bytes:
        """The bytes of an object."""
        with self.open(path) as file:
            return bytes(file.read())

    def put_file(self, file: Path, path: str) -> None:
        """Store a local file as an object."""
        with file.open("rb") as source:
            self.put(source, path)

    def put(self, source: Readable, path: str) -> None:
        """Store an object. It gets its name once it is complete and durable."""
        target = f"{self._base}/{path}"
        if self.is_remote:
            with tempfile.TemporaryFile() as whole:  # an upload cannot be abandoned once it has begun
                shutil.copyfileobj(source, whole, COPY_BYTES)
                whole.seek(0)
                with self._files.open_output_stream(target) as sink:
                    shutil.copyfileobj(whole, sink, COPY_BYTES)
            return
        unfinished = Path(self._base) / self._unfinished / f"{new_ulid()}-{Path(path).name}"
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        try:
            with unfinished.open("xb") as file:
                shutil.copyfileobj(source, file, COPY_BYTES)
                file.flush()
                os.fsync(file.fileno())
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            unfinished.rename(target)
            sync_folder(Path(target).parent)
        finally:
            unfinished.unlink(missing_ok=True)

    def move(self, path: str, target: str) -> None:
        """Rename an object; does nothing if an earlier call has already done so."""
        before, after = (f"{self._base}/{name}" for name in (path, target))
        if self._files.get_file_info(before).type == fs.FileType.NotFound:
            return
        if not self.is_remote:
            Path(after).parent.mkdir(parents=True, exist_ok=True)
        self._files.move(before, after)
        if not self.is_remote:
            sync_folder(Path(after).parent)

    def remove(self, path: str) -> None:
        """Remove an object."""
        self._files.delete_file(f"{self._base}/{path}")

    def remove_empty(self, folder: str) -> None:
        """Remove a folder if it is empty."""
        if not self.is_remote:
            with suppress(OSError):
                Path(f"{self._base}/{folder}").rmdir()

    def names(self, folder: str, recursive: bool = True) -> list[str]:
        """All objects below a folder, sorted; none if there is no such folder."""
        selector = fs.FileSelector(f"{self._base}/{folder}", allow_not_found=True, recursive=recursive)
        files = (info for info in self._files.get_file_info(selector) if info.type == fs.FileType.File)
        return sorted(info.path.removeprefix(f"{self._base}/") for info in files)

    def generations(self) -> list[dict[str, Any]]:
        """All generations of this store, oldest first."""
        selector = fs.FileSelector(f"{self._base}/generations", allow_not_found=True)
        paths = [info.path for info in self._files.get_file_info(selector)]
        found = [self._document(path) for path in paths if path.endswith(".json")]
        if not found:
            raise OptionError(f"there is no store at {self.root}: it has no generation")
        return sorted(found, key=lambda document: int(document["generation"]))

    def live_list(self, group: int) -> dict[str, Any]:
        """The live list of a group."""
        try:
            return self._document(f"{self._base}/{live_key(group)}")
        except FileNotFoundError:
            message = f"the store at {self.root} is empty so far: the server flushes from time to time"
            raise OptionError(message) from None

    def all_live(self) -> list[dict[str, Any]]:
        """The live lists of all groups."""
        return [self.live_list(group) for group in range(self.generations()[-1]["groups"])]

    def _document(self, path: str) -> dict[str, Any]:
        with self._files.open_input_file(path) as file:
            data = bytes(file.read())
        try:
            has_checksum(data)  # objects of old versions have none
            document: dict[str, Any] = json.loads(data)
        except ValueError as error:
            name = path.removeprefix(f"{self._base}/")
            raise ValueError(f"the object {name} in the store at {self.root} is damaged: {error}") from None
        return document
