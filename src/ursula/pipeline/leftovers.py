"""What jobs left behind that were killed: files that nobody names. Whatever else lies there is left alone."""

import re
import time
from collections.abc import Collection

from ..cold.ulid import milliseconds_of
from ..spark.store import StoreFiles

UNFINISHED_SECONDS = 24 * 60 * 60
"""No file takes so long to write."""

_ULID = "[0-9A-HJKMNP-TV-Z]{26}"
_WHOLE = re.compile(rf"{_ULID}/{_ULID}\.parquet")
_UNFINISHED = re.compile(rf"{_ULID}(-{_ULID}\.parquet)?")


def remove_files(store: StoreFiles, folder: str, named: Collection[str]) -> int:
    """Remove files of jobs below a folder that are not named; how many. Who calls it works there alone."""
    names = [path for path in store.names(folder) if _WHOLE.fullmatch(path.removeprefix(f"{folder}/"))]
    left = [path for path in names if path not in named]
    for path in left:
        store.remove(path)
    for emptied in {path.rpartition("/")[0] for path in left}:
        store.remove_empty(emptied)
    return len(left)


def remove_unfinished(store: StoreFiles, folder: str) -> int:
    """Remove files in a folder that were begun long ago, by whatever job; how many there were."""
    before = (time.time() - UNFINISHED_SECONDS) * 1000
    names = [path.removeprefix(f"{folder}/") for path in store.names(folder)]
    left = [name for name in names if _UNFINISHED.fullmatch(name) and milliseconds_of(name[:26]) < before]
    for name in left:
        store.remove(f"{folder}/{name}")
    return len(left)
