"""Creating and deleting buckets."""

from typing import TYPE_CHECKING

from ..bucket import Bucket
from ..commands import CreateBucket, DeleteBucket
from ..outcomes import BucketCreated, BucketDeleted
from ..store_view.dirty_rows import RowKind
from .bulk_write import forget_ingest

if TYPE_CHECKING:
    from ..state import State


def change_create_bucket(state: "State", command: CreateBucket, plan: None, index: int) -> BucketCreated:
    """Create an empty bucket."""
    add_bucket(state, command.bucket)
    return BucketCreated(command.bucket)


def add_bucket(state: "State", name: str) -> Bucket:
    """Add a bucket that does not exist."""
    state.dirty_rows.note((RowKind.BUCKET, name, ""))
    unparked = state.residency.unparked
    bucket = state.buckets[name] = Bucket(name, state.position, state.at, state.gauge, unparked)
    state.bucket_names.add(name)
    return bucket


def change_delete_bucket(state: "State", command: DeleteBucket, bucket: Bucket, index: int) -> BucketDeleted:
    """Remove an empty bucket and its bulk writes."""
    state.dirty_rows.note((RowKind.BUCKET, bucket.name, ""))
    for key in [key for key in state.ingests if key[0] == bucket.name]:
        forget_ingest(state, key)
    del state.buckets[bucket.name]
    state.bucket_names.remove(bucket.name)
    return BucketDeleted(bucket.name)
