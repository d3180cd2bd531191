"""POST /cluster/undelete: a stream that was deleted or has expired is back, as it was."""

import re

import msgspec

from ...model.commands import Undelete
from ...model.outcomes import Undeleted
from ..body.read import BodyLimit
from ..errors import Problem
from ..exchange import Exchange
from ..syntax.names import Target

_INCARNATION = re.compile(r"(?:([0-9]{1,20})-)?([0-9]{1,20}-[0-9]{1,20}-[0-9]{1,20})")
_OF_NO_STREAM = ""
_LIMIT = BodyLimit(64 * 1024)
_SHAPE = 'the body is {"bucket": text, "stream": text, "incarnation": text, which may be left out}'


class UndeleteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which stream: the last one of that name, or the one with that incarnation."""

    bucket: str
    stream: str
    incarnation: str | None = None


async def undelete(exchange: Exchange) -> None:
    """Bring a stream back."""
    wanted = await exchange.read_json(UndeleteRequest, _SHAPE, _LIMIT)
    if not wanted.bucket:
        raise Problem("invalid_bucket_id", "a bucket has a name")
    if not wanted.stream:
        raise Problem("invalid_stream_id", "a stream has a name")
    exchange.target = Target(wanted.bucket, wanted.stream, False)
    command = Undelete(wanted.bucket, wanted.stream, _incarnation(exchange, wanted.incarnation))
    done = exchange.expect(Undeleted, await exchange.group.ask(command))
    answer = {
        "bucket_id": wanted.bucket,
        "stream_id": wanted.stream,
        "incarnation": exchange.incarnation(done.incarnation),
        "tail_offset": done.tail,
        "closed": done.closed,
    }
    headers = exchange.state_headers(done.incarnation, done.tail, done.tail, done.closed)
    exchange.reply_json(200, answer, headers)


def _incarnation(exchange: Exchange, text: str | None) -> str | None:
    """As headers have it, or as the feed does: where else is one found whose stream is gone?

    It names a stream and is no precondition, so one that was noted before a restore still counts.
    """
    if text is None:
        return None
    found = _INCARNATION.fullmatch(text)
    if found is None:
        raise Problem("invalid_parameter", "incarnation is as Stream-Incarnation or the feed has it")
    is_later = found[1] is not None and int(found[1]) > exchange.services.generation
    return _OF_NO_STREAM if is_later else found[2]
