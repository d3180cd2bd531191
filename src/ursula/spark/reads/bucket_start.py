"""Where a bucket begins, according to the store. Earlier rows belong to a deleted bucket of the same name.

For the driver only: reading the row of a bucket needs msgspec.
"""

import json
from functools import lru_cache
from typing import NamedTuple

import pyarrow.parquet as pq

from ...cold.objects.keys import manifests_prefix
from ..executor_store import ExecutorStore
from ..options import OptionError, S3Options

_CACHED_MAX = 256


class BucketStart(NamedTuple):
    """The position at which a bucket was created; None if there is no such bucket."""

    position: int | None


def find_bucket_start(root: str, s3: S3Options, group: int, bucket: str) -> BucketStart | None:
    """Where the bucket begins as of the last flush; None if the store has no manifest."""
    for retry in (True, False):
        names = ExecutorStore(root, s3).names(manifests_prefix(group).rstrip("/"))
        found = [name for name in names if _position(name) >= 0]
        if not found:
            return None
        try:
            return _start_in(root, s3, max(found, key=lambda name: (_position(name), name)), bucket)
        except FileNotFoundError:  # a newer one has replaced it since
            if not retry:
                raise
    return None


@lru_cache(_CACHED_MAX)
def _start_in(root: str, s3: S3Options, manifest: str, bucket: str) -> BucketStart:
    """The start according to a manifest: its newest state object with a row of the bucket decides."""
    from ...model.checkpoint.bucket_row import decode_bucket_row
    from ...model.stream.row import RowUnreadable

    store = ExecutorStore(root, s3)
    wanted = [("kind", "=", "bucket"), ("bucket", "=", bucket)]
    for facts in reversed(json.loads(store.read(manifest))["state"]):
        with store.open_file(facts["path"]) as file:
            rows = pq.read_table(file, columns=["row"], filters=wanted)["row"].to_pylist()
        if not rows:
            continue
        if rows[-1] is None:
            return BucketStart(None)
        try:
            return BucketStart(decode_bucket_row(rows[-1]).position)
        except RowUnreadable as error:
            raise OptionError(f"this version of ursula cannot read the store at {root}: {error}") from None
    return BucketStart(None)


def _position(manifest: str) -> int:
    digits = manifest.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and manifest.endswith(".json") else -1
