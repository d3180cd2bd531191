"""Objects copied from one store to another: for an executor."""

import hashlib
from collections.abc import Iterable
from typing import BinaryIO, NamedTuple, cast

from .store import COPY_BYTES, StoreFiles


class Copy(NamedTuple):
    """An object that must be there with so many bytes, and this digest if it is known."""

    key: str
    size: int
    digest: str | None


class Failed(NamedTuple):
    """An object that could not be copied as it must be."""

    name: str
    problem: str


def copy_objects(source: StoreFiles, target: StoreFiles, objects: Iterable[Copy]) -> list[Failed]:
    """Copy objects; what is missing or damaged is told, and never gets its name at the target."""
    failed = []
    for one in objects:
        problem = _copy(source, target, one)
        if problem is not None:
            failed.append(Failed(one.key, problem))
    return failed


def _copy(source: StoreFiles, target: StoreFiles, one: Copy) -> str | None:
    try:
        with source.open(one.key) as file:
            target.put(_Checked(file, one), one.key)
    except FileNotFoundError:
        return "it is missing"
    except ValueError as error:
        return str(error)
    return None


class _Checked:
    """A file that fails at its end if it was not what it should be, before anyone takes it for whole."""

    def __init__(self, file: object, expected: Copy) -> None:
        self._file = cast(BinaryIO, file)
        self._expected = expected
        self._digest = hashlib.sha256()
        self._size = 0

    def read(self, size: int = COPY_BYTES) -> bytes:
        data = self._file.read(size)
        self._digest.update(data)
        self._size += len(data)
        if not data:
            self._check()
        return data

    def _check(self) -> None:
        expected = self._expected
        if self._size != expected.size:
            raise ValueError(f"it has {self._size} bytes instead of {expected.size}")
        if expected.digest not in (None, f"sha256:{self._digest.hexdigest()}"):
            raise ValueError("its digest is another than the one it was stored with")
