"""What jobs left behind that were killed: files that nobody names. Whatever else lies there is left alone."""

import re
import time
from collections.abc import Collection

from ..cold.objects.ulid import milliseconds_of
from ..spark.store import StoreFiles

UNFINISHED_SECONDS = 24 * 60 * 60
"""No file takes so long to write."""

_ULID = "[0-9A-HJKMNP-TV-Z]{26}"
_WHOLE = re.compile(rf"(\d{{20}})/{_ULID}\.parquet")
_UNFINISHED = re.compile(rf"{_ULID}(-{_ULID}\.parquet)?")


def folder_of_run(folder: str, number: int) -> str:
    """Where the files of one job lie."""
    return f"{folder}/{number:020d}"


def remove_files(store: StoreFiles, folder: str, number: int, named: Collection[str]) -> int:
    """Remove files of jobs up to this number that are not named; how many there were.

    Files of a later job are left alone: whoever was taken over, and does not know it yet, can do no harm.
    """
    found = {path: _WHOLE.fullmatch(path.removeprefix(f"{folder}/")) for path in store.names(folder)}
    ours = [path for path, match in found.items() if match is not None and int(match[1]) <= number]
    left = [path for path in ours if path not in named]
    for path in left:
        store.remove(path)
    for emptied in {path.rpartition("/")[0] for path in left}:
        store.remove_empty(emptied)
    return len(left)


def remove_unfinished(store: StoreFiles, folder: str) -> int:
    """Remove files in a folder that were begun long ago, by whatever job; how many there were."""
    before = (time.time() - UNFINISHED_SECONDS) * 1000
    names = [path.removeprefix(f"{folder}/") for path in store.names(folder, recursive=False)]
    left = [name for name in names if _UNFINISHED.fullmatch(name) and milliseconds_of(name[:26]) < before]
    for name in left:
        store.remove(f"{folder}/{name}")
    return len(left)
