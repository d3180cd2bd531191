"""POST /cluster/replace-segments: a segment that a job has merged replaces the ones it was made from."""

import msgspec

from ...cold.objects.store import ObjectMissing, StoreFailed
from ...engine.failures import SegmentsReplaced, SegmentUnfit
from ...model.outcomes import Done, Ignored
from ..body.read import BodyLimit
from ..errors import Problem
from ..exchange import Exchange

_LIMIT = BodyLimit(4 * 1024 * 1024)
_BODY_HELP = 'the body must be {"group": number, "old": [paths of live neighbours], "new": [one path]}'


class ReplaceRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The segments of a group to replace, and their replacement."""

    group: int
    old: list[str]
    new: list[str]


async def replace(exchange: Exchange) -> None:
    """Replace segments with one that was made from them."""
    request = await exchange.read_json(ReplaceRequest, _BODY_HELP, _LIMIT)
    node = exchange.services.node
    if not 0 <= request.group < node.group_count:
        raise Problem("invalid_parameter", f"there is no group {request.group}")
    if not request.old or len(request.new) != 1:
        raise Problem("invalid_parameter", _BODY_HELP)
    try:
        outcome = await node.replace_segments(request.group, request.old, request.new[0])
    except SegmentsReplaced as error:
        raise Problem("segments_replaced", str(error)) from None
    except SegmentUnfit as error:
        raise Problem("invalid_segment", str(error)) from None
    except ObjectMissing as error:
        raise Problem("object_not_found", str(error)) from None
    except StoreFailed as error:
        raise Problem("store_unavailable", f"the segment could not be read: {error}") from error
    if isinstance(outcome, Ignored):
        raise Problem("segments_replaced", "the old segments are no longer live neighbours: plan again")
    exchange.reply_json(200, {"position": exchange.expect(Done, outcome).position})
