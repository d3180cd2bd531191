"""GET /cluster/plan: where to find the history of a bucket, for readers that fetch it themselves."""

from ...engine.reads.bucket_plan import Plan
from ..bucket.feed import check_rewound
from ..errors import Problem
from ..exchange import Exchange
from ..syntax.names import Target
from ..syntax.query import parse_query
from ..syntax.tokens import parse_offset


async def get_plan(exchange: Exchange) -> None:
    """The segments and hot ranges with everything that happened in a bucket after a position, up to now."""
    given = parse_query(exchange.request.query_string)
    bucket = given.get("bucket")
    if not bucket:
        raise Problem("invalid_parameter", "the parameter bucket is missing: which bucket is the plan for?")
    after = parse_offset(given["after"]) if "after" in given else None
    if after is not None and after < 0:
        raise Problem("invalid_parameter", "after must be a position; without it, the plan covers everything")
    exchange.target = Target(bucket, "", False)
    node, group = exchange.services.node, exchange.group
    await exchange.settle()
    check_rewound(exchange, group, after)
    found = exchange.expect(Plan, group.plan(bucket, after))
    answer = {
        "cluster": node.cluster,
        "generation": node.generation,
        "group": group.number,
        "after": found.after,
        "position": found.position,
        "root": node.store_root,
        "segments": found.segments,
        "hot": [step._asdict() for step in found.hot],
    }
    exchange.reply_json(200, answer)
