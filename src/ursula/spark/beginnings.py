"""Where a bucket begins, as the store knows it: what lies before was of another bucket of the same name.

For the driver: it takes msgspec to read the row of a bucket.
"""

import json
from functools import lru_cache
from typing import NamedTuple

import pyarrow.parquet as pq

from .options import OptionError, S3Options
from .store import StoreFiles

BUCKET_ROW_VERSION = 1
_CACHED_MAX = 256


class Beginning(NamedTuple):
    """The position at which a bucket was made; None if it is not there."""

    position: int | None


def beginning_of(root: str, s3: S3Options, group: int, bucket: str) -> Beginning | None:
    """Where the bucket begins as of the last flush; None if the store has no manifest that tells."""
    folder = f"manifests/g{group}"
    for again in (True, False):
        names = StoreFiles(root, s3).names(folder)
        found = [name for name in names if _position(name) >= 0]
        if not found:
            return None
        try:
            return _beginning_in(root, s3, max(found, key=lambda name: (_position(name), name)), bucket)
        except FileNotFoundError:  # a newer one took its place meanwhile
            if not again:
                raise
    return None


@lru_cache(_CACHED_MAX)
def _beginning_in(root: str, s3: S3Options, manifest: str, bucket: str) -> Beginning:
    """What a manifest says: its newest object that tells of the bucket is right."""
    import msgspec

    store = StoreFiles(root, s3)
    wanted = [("kind", "=", "bucket"), ("bucket", "=", bucket)]
    for facts in reversed(json.loads(store.read(manifest))["state"]):
        with store.open_file(facts["path"]) as file:
            rows = pq.read_table(file, columns=["row"], filters=wanted)["row"].to_pylist()
        if not rows:
            continue
        if rows[-1] is None:
            return Beginning(None)
        version, position, _ = msgspec.msgpack.decode(rows[-1], type=tuple[int, int, int])
        if version != BUCKET_ROW_VERSION:
            raise OptionError(f"the store at {root} was written by a newer version of ursula")
        return Beginning(position)
    return Beginning(None)


def _position(manifest: str) -> int:
    digits = manifest.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and manifest.endswith(".json") else -1
