"""POST /cluster/undelete: bring back a stream that was deleted or has expired, as it was."""

import re

import msgspec

from ...model.commands import Undelete
from ...model.outcomes import Undeleted
from ..body.read import BodyLimit
from ..errors import Problem
from ..exchange import Exchange
from ..syntax.names import Target

_INCARNATION = re.compile(r"(?:([0-9]{1,20})-)?([0-9]{1,20}-[0-9]{1,20}-[0-9]{1,20})")
_NO_SUCH_INCARNATION = ""
_LIMIT = BodyLimit(64 * 1024)
_BODY_HELP = 'the body must be {"bucket": text, "stream": text, and optionally "incarnation": text}'


class UndeleteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The stream to bring back: the last one with that name, or the one with that incarnation."""

    bucket: str
    stream: str
    incarnation: str | None = None


async def undelete(exchange: Exchange) -> None:
    """Bring a stream back."""
    request = await exchange.read_json(UndeleteRequest, _BODY_HELP, _LIMIT)
    if not request.bucket:
        raise Problem("invalid_bucket_id", "the name of the bucket is empty")
    if not request.stream:
        raise Problem("invalid_stream_id", "the name of the stream is empty")
    exchange.target = Target(request.bucket, request.stream, False)
    command = Undelete(request.bucket, request.stream, _parse_incarnation(exchange, request.incarnation))
    done = exchange.expect(Undeleted, await exchange.group.propose_and_wait(command))
    answer = {
        "bucket_id": request.bucket,
        "stream_id": request.stream,
        "incarnation": exchange.incarnation(done.incarnation),
        "tail_offset": done.tail,
        "closed": done.closed,
    }
    headers = exchange.state_headers(done.incarnation, done.tail, done.tail, done.closed)
    exchange.reply_json(200, answer, headers)


def _parse_incarnation(exchange: Exchange, text: str | None) -> str | None:
    """An incarnation as in the headers, or as in the feed, where clients find those of deleted streams.

    It identifies a stream and is not a precondition, so one from before a restore is still valid.
    """
    if text is None:
        return None
    found = _INCARNATION.fullmatch(text)
    if found is None:
        raise Problem(
            "invalid_parameter", "incarnation must have the form of Stream-Incarnation, or that of the feed"
        )
    is_later = found[1] is not None and int(found[1]) > exchange.services.generation
    return _NO_SUCH_INCARNATION if is_later else found[2]
