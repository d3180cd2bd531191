"""Removes files that killed jobs left behind: those that no entry of the lease names. Other files stay."""

import re
import time
from collections.abc import Collection

from ..cold.objects.ulid import milliseconds_of
from ..spark.executor_store import ExecutorStore

UNFINISHED_SECONDS = 24 * 60 * 60
"""Writing a file never takes this long."""

_ULID = "[0-9A-HJKMNP-TV-Z]{26}"
_WHOLE = re.compile(rf"(\d{{20}})/{_ULID}\.parquet")
_UNFINISHED = re.compile(rf"{_ULID}(-{_ULID}\.parquet)?")


def folder_of_run(folder: str, number: int) -> str:
    """The folder with the files of one job."""
    return f"{folder}/{number:020d}"


def remove_files(store: ExecutorStore, folder: str, number: int, named: Collection[str]) -> int:
    """Remove files of jobs up to this number that are not in `named`; returns how many there were.

    Files of a later job stay, so a job that has lost its lease and does not know it yet can do no harm.
    """
    found = {path: _WHOLE.fullmatch(path.removeprefix(f"{folder}/")) for path in store.names(folder)}
    ours = [path for path, match in found.items() if match is not None and int(match[1]) <= number]
    left = [path for path in ours if path not in named]
    for path in left:
        store.remove(path)
    for emptied in {path.rpartition("/")[0] for path in left}:
        store.remove_empty(emptied)
    return len(left)


def remove_unfinished(store: ExecutorStore, folder: str) -> int:
    """Remove files that any job began to write long ago; returns how many there were."""
    before = (time.time() - UNFINISHED_SECONDS) * 1000
    names = [path.removeprefix(f"{folder}/") for path in store.names(folder, recursive=False)]
    left = [name for name in names if _UNFINISHED.fullmatch(name) and milliseconds_of(name[:26]) < before]
    for name in left:
        store.remove(f"{folder}/{name}")
    return len(left)
