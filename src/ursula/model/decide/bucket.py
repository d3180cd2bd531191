"""The decisions to create and to delete a bucket."""

from typing import TYPE_CHECKING

from ..bucket import Bucket
from ..commands import CreateBucket, DeleteBucket
from ..outcomes import Refused
from .refusals import bucket_not_found

if TYPE_CHECKING:
    from ..state import State


def decide_create_bucket(state: "State", command: CreateBucket) -> Refused | None:
    """Refused if the bucket exists; otherwise None."""
    if command.bucket in state.buckets:
        return Refused("bucket_exists", f"the bucket {command.bucket!r} exists")
    return None


def decide_delete_bucket(state: "State", command: DeleteBucket) -> Bucket | Refused:
    """The bucket to delete, which must be empty."""
    bucket = state.buckets.get(command.bucket)
    if bucket is None:
        return bucket_not_found(command.bucket)
    if not bucket.is_empty:
        count = len(bucket.names)
        streams = "1 stream" if count == 1 else f"{count} streams"
        return Refused("bucket_not_empty", f"the bucket is not empty: it has {streams}")
    return bucket
