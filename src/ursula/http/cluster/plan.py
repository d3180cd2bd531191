"""GET /cluster/plan: where the history of a bucket lies, for readers that fetch it themselves."""

import msgspec

from ...engine.planning import plan
from ...model.outcomes import Refused
from ..bucket.feed import check_rewound
from ..errors import Problem
from ..exchange import Exchange
from ..stream.read import settle_group
from ..syntax.names import Target
from ..syntax.query import parse_query
from ..syntax.tokens import parse_offset

_JSON = [("content-type", "application/json"), ("cache-control", "no-store")]


def get_plan(exchange: Exchange) -> None:
    """Which segments and which hot steps have what happened in a bucket after a position, up to now."""
    given = parse_query(exchange.request.query_string)
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
    found = plan(group.state, bucket, after)
    if isinstance(found, Refused):
        exchange.refused(found)
        return
    node = exchange.app.node
    answer = {
        "cluster": node.cluster,
        "generation": node.generation,
        "group": group.number,
        "after": found.after,
        "position": found.position,
        "root": node.store.root,
        "segments": found.segments,
        "hot": [step._asdict() for step in found.hot],
    }
    exchange.send(200, _JSON, msgspec.json.encode(answer))
