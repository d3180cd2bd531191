"""Buckets: made, described, listed, removed; with an offset, GET is the feed."""

import msgspec

from ...model.commands import CreateBucket, DeleteBucket
from ...model.limits import LIST_PAGE_MAX
from ...model.outcomes import BucketCreated, BucketDeleted, Listed, Refused
from ..exchange import Exchange
from ..stream.append import AnyAnswer, refusal
from ..stream.read import settle_group
from ..syntax.names import parse_bucket_name
from ..syntax.query import parse_count, parse_query
from .feed import get_feed

_JSON = [("content-type", "application/json"), ("cache-control", "no-store")]


def create_bucket(exchange: Exchange) -> None:
    """PUT on a bucket."""

    def on_outcome(outcome: AnyAnswer) -> None:
        if isinstance(outcome, BucketCreated):
            exchange.empty(201, [("location", exchange.app.location(exchange))])
        else:
            exchange.refused(refusal(outcome))

    bucket = parse_bucket_name(exchange.target.bucket)
    exchange.app.node.group_of(bucket).propose(CreateBucket(bucket), on_outcome)


def delete_bucket(exchange: Exchange) -> None:
    """DELETE on a bucket, which must be empty."""

    def on_outcome(outcome: AnyAnswer) -> None:
        if isinstance(outcome, BucketDeleted):
            exchange.empty(204, [])
        else:
            exchange.refused(refusal(outcome))

    bucket = exchange.target.bucket
    exchange.app.node.group_of(bucket).propose(DeleteBucket(bucket), on_outcome)


def get_bucket(exchange: Exchange) -> None:
    """GET on a bucket: what it is; with an offset, what happened in it."""
    query = exchange.request.query_string
    if query and {"offset", "live"} & parse_query(query).keys():
        get_feed(exchange)
        return
    group = exchange.app.node.group_of(exchange.target.bucket)
    if not settle_group(exchange, group, get_bucket):
        return
    found = group.describe_bucket(exchange.target.bucket)
    if isinstance(found, Refused):
        exchange.refused(found)
        return
    exchange.send(200, _JSON, msgspec.json.encode({"bucket_id": found.name, "streams": found.stream_count}))


def list_streams(exchange: Exchange) -> None:
    """GET on the streams of a bucket: a page of them, sorted by id."""
    bucket = exchange.target.bucket
    group = exchange.app.node.group_of(bucket)
    if not settle_group(exchange, group, list_streams):
        return
    given = parse_query(exchange.request.query_string)
    prefix = given.get("prefix", "")
    limit = parse_count(given, "limit", LIST_PAGE_MAX, 1, LIST_PAGE_MAX)
    page = group.list_streams(bucket, prefix, given.get("after", ""), limit)
    if isinstance(page, Refused):
        exchange.refused(page)
        return
    answer = {
        "bucket_id": bucket,
        "prefix": prefix,
        "stream_count": len(page.streams),
        "streams": [_listed(stream) for stream in page.streams],
        "next_cursor": page.streams[-1].name if page.streams else None,
        "has_more": page.has_more,
    }
    exchange.send(200, _JSON, msgspec.json.encode(answer))


def _listed(stream: Listed) -> dict[str, object]:
    return {
        "stream_id": stream.name,
        "status": "closed" if stream.closed else "open",
        "content_type": stream.content_type,
        "tail_offset": stream.tail,
        "created_at_ms": stream.created_at // 1000,
        "last_write_at_ms": stream.last_write_at // 1000,
    }
