"""Copies objects from one store to another, for the jobs `backup` and `restore`."""

import hashlib
from collections.abc import Iterable
from typing import BinaryIO, NamedTuple, cast

from ..executor_store import COPY_BYTES, ExecutorStore


class ObjectToCopy(NamedTuple):
    """An object, and the size and digest that it must have; the digest may be unknown."""

    key: str
    size: int
    digest: str | None


class CopyFailure(NamedTuple):
    """An object that is missing or damaged."""

    name: str
    problem: str


def copy_objects(
    source: ExecutorStore, target: ExecutorStore, objects: Iterable[ObjectToCopy]
) -> list[CopyFailure]:
    """Copy objects. Missing and damaged ones are returned, and never get their name at the target."""
    failed = []
    for one in objects:
        problem = _copy(source, target, one)
        if problem is not None:
            failed.append(CopyFailure(one.key, problem))
    return failed


def _copy(source: ExecutorStore, target: ExecutorStore, one: ObjectToCopy) -> str | None:
    try:
        with source.open(one.key) as file:
            target.put(_CheckedFile(file, one), one.key)
    except FileNotFoundError:
        return "it is missing"
    except ValueError as error:
        return str(error)
    return None


class _CheckedFile:
    """A file that raises at its end if it is damaged, before a reader could take it for complete."""

    def __init__(self, file: object, expected: ObjectToCopy) -> None:
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
            raise ValueError("its digest differs from the one it was stored with")
