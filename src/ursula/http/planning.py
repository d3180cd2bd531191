"""GET /cluster/plan: where the history of a bucket lies, for readers that fetch it themselves."""

from typing import cast

import msgspec

from ..engine.segment_storing import live_segment
from ..model.hot_steps import hot_steps
from ..model.outcomes import FeedPage, Refused
from .errors import Problem
from .exchange import Exchange
from .feed import check_rewound
from .names import Target
from .query import parse_query
from .reads import settle_group
from .tokens import parse_offset

_JSON = [("content-type", "application/json"), ("cache-control", "no-store")]


def get_plan(exchange: Exchange) -> None:
    """Which segments and which hot steps have what happened in a bucket after a position, up to now."""
    given = parse_query(exchange.scope.query_string)
    bucket = given.get("bucket")
    if not bucket:
        raise Problem("invalid_parameter", "bucket says whose history it is")
    after = parse_offset(given["after"]) if "after" in given else None
    if after is not None and after < 0:
        raise Problem("invalid_parameter", "after must be a position; without it, the plan is for everything")
    exchange.target = Target(bucket, "", False)
    group = exchange.app.node.group_of(bucket)
    if not settle_group(exchange, group, get_plan):
        return
    check_rewound(exchange, group, after)
    page = group.read_feed(bucket, after, None, 0)
    if not isinstance(page, FeedPage):
        exchange.refused(cast(Refused, page))
        return
    state = group.state
    found = state.buckets[bucket]
    begin = found.position - 1 if after is None else after
    plan = {
        "cluster": exchange.app.node.cluster,
        "generation": exchange.app.node.generation,
        "group": group.number,
        "position": max(page.tail, state.stored_to),
        "root": exchange.app.node.store.root,
        "segments": [live_segment(segment) for segment in state.segments.all_after(begin)],
        "hot": [step._asdict() for step in hot_steps(found, max(begin, state.stored_to))],
    }
    exchange.send(200, _JSON, msgspec.json.encode(plan))
