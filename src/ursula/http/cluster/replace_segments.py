"""POST /cluster/replace-segments: what a job outside has put together takes the place of its parts."""

import msgspec

from ...cold.store import ObjectMissing, StoreFailed
from ...engine.replacing import SegmentsReplaced, SegmentUnfit, replace_segments
from ...model.outcomes import Done, Ignored
from ..body.read import BodyLimit
from ..errors import Problem
from ..exchange import Exchange
from ..stream.append import refusal

_LIMIT = BodyLimit(4 * 1024 * 1024)
_JSON = [("content-type", "application/json"), ("cache-control", "no-store")]
_SHAPE = 'the body is {"group": number, "old": [paths of live neighbours], "new": [one path]}'


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """Which segments of a group become which."""

    group: int
    old: list[str]
    new: list[str]


def replace(exchange: Exchange) -> None:
    """Let a segment stand for others that it was made from."""
    exchange.read_body(lambda body: _begin(exchange, body), _LIMIT)


def _begin(exchange: Exchange, body: bytes) -> None:
    try:
        wanted = msgspec.json.decode(body, type=Wanted)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Problem("invalid_json", f"{_SHAPE}: {error}") from None
    if not 0 <= wanted.group < exchange.app.node.group_count:
        raise Problem("invalid_parameter", f"there is no group {wanted.group}")
    if not wanted.old or len(wanted.new) != 1:
        raise Problem("invalid_parameter", _SHAPE)
    exchange.app.spawn(exchange, _replace(exchange, wanted))


async def _replace(exchange: Exchange, wanted: Wanted) -> None:
    node = exchange.app.node
    try:
        outcome = await replace_segments(node.store, node.groups[wanted.group], wanted.old, wanted.new[0])
    except SegmentsReplaced as error:
        raise Problem("segments_replaced", str(error)) from None
    except SegmentUnfit as error:
        raise Problem("invalid_segment", str(error)) from None
    except ObjectMissing as error:
        raise Problem("object_not_found", str(error)) from None
    except StoreFailed as error:
        raise Problem("store_unavailable", f"the segment could not be read: {error}") from error
    if isinstance(outcome, Ignored):
        raise Problem("segments_replaced", "the old segments are not live neighbours any more: plan again")
    if not isinstance(outcome, Done):
        exchange.refused(refusal(outcome))
        return
    exchange.send(200, _JSON, msgspec.json.encode({"position": outcome.position}))
