"""Buckets: create, describe, list, delete. With an offset, GET reads the feed."""

from ...model.commands import CreateBucket, DeleteBucket
from ...model.limits import LIST_PAGE_MAX
from ...model.outcomes import BucketCreated, BucketDeleted, BucketDescription, Listed, Listing
from ..exchange import Exchange
from ..syntax.names import parse_bucket_name
from ..syntax.query import parse_count, parse_query
from .feed import get_feed


async def create_bucket(exchange: Exchange) -> None:
    """PUT on a bucket."""
    bucket = parse_bucket_name(exchange.target.bucket)
    exchange.expect(BucketCreated, await exchange.group.propose_and_wait(CreateBucket(bucket)))
    exchange.reply_empty(201, [("location", exchange.location())])


async def delete_bucket(exchange: Exchange) -> None:
    """DELETE on a bucket, which must be empty."""
    exchange.expect(
        BucketDeleted, await exchange.group.propose_and_wait(DeleteBucket(exchange.target.bucket))
    )
    exchange.reply_empty(204, [])


async def get_bucket(exchange: Exchange) -> None:
    """GET on a bucket: its description; with an offset, its feed."""
    query = exchange.request.query_string
    if query and {"offset", "live"} & parse_query(query).keys():
        await get_feed(exchange)
        return
    bucket = exchange.target.bucket
    found = await exchange.find(BucketDescription, lambda: exchange.group.describe_bucket(bucket))
    exchange.reply_json(200, {"bucket_id": found.name, "streams": found.stream_count})


async def list_streams(exchange: Exchange) -> None:
    """GET on the streams of a bucket: a page of them, sorted by id."""
    bucket = exchange.target.bucket
    given = parse_query(exchange.request.query_string)
    prefix = given.get("prefix", "")
    limit = parse_count(given, "limit", LIST_PAGE_MAX, 1, LIST_PAGE_MAX)
    after = given.get("after", "")
    page = await exchange.find(Listing, lambda: exchange.group.list_streams(bucket, prefix, after, limit))
    answer = {
        "bucket_id": bucket,
        "prefix": prefix,
        "stream_count": len(page.streams),
        "streams": [_listed(stream) for stream in page.streams],
        "next_cursor": page.streams[-1].name if page.streams else None,
        "has_more": page.has_more,
    }
    exchange.reply_json(200, answer)


def _listed(stream: Listed) -> dict[str, object]:
    return {
        "stream_id": stream.name,
        "status": "closed" if stream.closed else "open",
        "content_type": stream.content_type,
        "tail_offset": stream.tail,
        "created_at_ms": stream.created_at // 1000,
        "last_write_at_ms": stream.last_write_at // 1000,
    }
