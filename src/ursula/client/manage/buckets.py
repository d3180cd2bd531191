"""Create, describe, delete and list buckets, and list the streams in them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..address import bucket_path
from ..connection.retry import Patience, perform
from ..connection.steps import Flow, Item, Request, Steps
from ..errors import Refused
from ..formats.json_text import decode
from ..results import padded_offset
from ..target import BucketTarget


@dataclass(frozen=True, slots=True)
class BucketInfo:
    """A bucket, and how many streams it has."""

    bucket_id: str
    streams: int


@dataclass(frozen=True, slots=True)
class ListedStream:
    """A stream as a listing shows it."""

    stream_id: str
    status: str
    content_type: str
    tail_offset: str
    created_at_ms: int
    last_write_at_ms: int | None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "ListedStream":
        """Read a row of the listing."""
        return cls(
            stream_id=fields["stream_id"],
            status=fields["status"],
            content_type=fields["content_type"],
            tail_offset=padded_offset(fields["tail_offset"]),
            created_at_ms=fields["created_at_ms"],
            last_write_at_ms=fields["last_write_at_ms"],
        )


def create_bucket(target: BucketTarget) -> Steps[bool]:
    """Create the bucket. Returns whether it is new."""
    request = Request("PUT", bucket_path(target.name), repeatable=True)
    try:
        yield from perform(request, target.patience)
    except Refused as refusal:
        if refusal.code == "bucket_exists":
            return False
        raise
    return True


def bucket_info(target: BucketTarget) -> Steps[BucketInfo]:
    """The bucket's name, and how many streams it has."""
    request = Request("GET", bucket_path(target.name), repeatable=True)
    fields = decode((yield from perform(request, target.patience)).body)
    return BucketInfo(fields["bucket_id"], fields["streams"])


def delete_bucket(target: BucketTarget) -> Steps[None]:
    """Delete the bucket, which must be empty."""
    yield from perform(Request("DELETE", bucket_path(target.name)), target.patience)


def list_streams(
    target: BucketTarget, *, prefix: str = "", after: str = "", page_size: int = 1000
) -> Flow[ListedStream]:
    """The streams of the bucket in the order of their ids, fetched page by page."""
    path = bucket_path(target.name, "streams")
    while True:
        params = {"prefix": prefix, "after": after, "limit": str(page_size)}
        given = {name: value for name, value in params.items() if value}
        request = Request("GET", path, given, repeatable=True)
        page = decode((yield from perform(request, target.patience)).body)
        for fields in page["streams"]:
            yield Item(ListedStream.of(fields))
        if not page["has_more"]:
            return
        after = page["next_cursor"]


def list_buckets(patience: Patience, page_size: int = 1000) -> Flow[BucketInfo]:
    """All buckets in the order of their names, fetched page by page."""
    after = ""
    while True:
        params = {"limit": str(page_size)} | ({"after": after} if after else {})
        request = Request("GET", "/cluster/buckets", params, repeatable=True)
        page = decode((yield from perform(request, patience)).body)
        for fields in page["buckets"]:
            yield Item(BucketInfo(fields["bucket_id"], fields["streams"]))
        if not page["has_more"]:
            return
        after = page["next_cursor"]
