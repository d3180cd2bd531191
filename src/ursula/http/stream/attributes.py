"""The attributes of a stream: read and replaced as a whole."""

from ...model.attributes import NO_ATTRIBUTES
from ...model.commands import SetAttributes
from ...model.limits import ATTRIBUTES_BYTES_MAX
from ...model.media_type import JSON, media_type_of
from ...model.outcomes import AttributesSet, Refused
from ..body.read import BodyLimit
from ..errors import Problem
from ..exchange import Exchange
from ..syntax.headers import ignored_attributes, parse_attributes
from .append import AnyAnswer, refusal
from .read import settle

_LIMIT = BodyLimit(4 * ATTRIBUTES_BYTES_MAX, "attributes_invalid")
"""More than any attributes have, with room for spaces and for fields that are not kept."""


def get_attributes(exchange: Exchange) -> None:
    """GET on the attributes."""
    target = exchange.target
    group = exchange.app.node.group_of(target.bucket)
    if not settle(exchange, group, get_attributes):
        return
    found = group.describe(target.bucket, target.stream, exchange.wanted_incarnation())
    if isinstance(found, Refused):
        exchange.refused(found)
        return
    headers = [
        ("content-type", JSON),
        ("cache-control", "no-store"),
        ("stream-incarnation", exchange.incarnation(found.incarnation)),
    ]
    exchange.send(200, headers, found.attributes or NO_ATTRIBUTES)


def put_attributes(exchange: Exchange) -> None:
    """PUT on the attributes."""
    content_type = exchange.headers.get("content-type")
    if not content_type:
        raise Problem("content_type_missing", "attributes need Content-Type: application/json")
    if media_type_of(content_type) != JSON:
        raise Problem("attributes_invalid", "attributes need Content-Type: application/json")
    exchange.read_body(lambda body: _propose(exchange, body), _LIMIT)


def _propose(exchange: Exchange, body: bytes) -> None:
    target, given = exchange.target, parse_attributes(body)

    def on_outcome(outcome: AnyAnswer) -> None:
        if isinstance(outcome, AttributesSet):
            headers = [("stream-incarnation", exchange.incarnation(outcome.incarnation))]
            exchange.empty(204, headers + ignored_attributes(given.ignored))
        else:
            exchange.refused(refusal(outcome))

    command = SetAttributes(target.bucket, target.stream, given.stored, exchange.wanted_incarnation())
    exchange.app.node.group_of(target.bucket).propose(command, on_outcome, len(command.attributes))
