"""The attributes of a stream, which are read and replaced as a whole."""

from ...model.commands import SetAttributes
from ...model.limits import ATTRIBUTES_BYTES_MAX
from ...model.outcomes import AttributesSet
from ...model.text.attributes import NO_ATTRIBUTES
from ...model.text.media_type import JSON, media_type_of
from ..body.read import BodyLimit
from ..errors import Problem
from ..exchange import JSON_HEADERS, Exchange
from ..syntax.headers import ignored_attributes, parse_attributes

_LIMIT = BodyLimit(4 * ATTRIBUTES_BYTES_MAX, "attributes_invalid")
"""More than valid attributes can have, with room for spaces and for fields that are not stored."""


async def get_attributes(exchange: Exchange) -> None:
    """GET on the attributes."""
    found = await exchange.describe()
    headers = [*JSON_HEADERS, ("stream-incarnation", exchange.incarnation(found.incarnation))]
    exchange.reply(200, headers, found.attributes or NO_ATTRIBUTES)


async def put_attributes(exchange: Exchange) -> None:
    """PUT on the attributes."""
    content_type = exchange.headers.get("content-type")
    if not content_type:
        raise Problem("content_type_missing", "attributes need Content-Type: application/json")
    if media_type_of(content_type) != JSON:
        raise Problem("attributes_invalid", "attributes need Content-Type: application/json")
    given = parse_attributes(await exchange.read_body(_LIMIT))
    target = exchange.target
    command = SetAttributes(target.bucket, target.stream, given.stored, exchange.requested_incarnation())
    outcome = await exchange.group.propose_and_wait(command, len(command.attributes))
    done = exchange.expect(AttributesSet, outcome)
    headers = [("stream-incarnation", exchange.incarnation(done.incarnation))]
    exchange.reply_empty(204, headers + ignored_attributes(given.ignored))
