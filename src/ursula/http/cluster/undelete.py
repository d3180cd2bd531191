"""POST /cluster/undelete: a stream that was deleted or has expired is back, as it was."""

import re

import msgspec

from ...model.commands import Undelete
from ...model.outcomes import Undeleted
from ..body.read import BodyLimit
from ..errors import Problem
from ..exchange import Exchange
from ..stream.append import AnyAnswer, refusal
from ..syntax.names import Target

_INCARNATION = re.compile(r"(?:([0-9]{1,20})-)?([0-9]{1,20}-[0-9]{1,20}-[0-9]{1,20})")
_OF_NO_STREAM = ""
_LIMIT = BodyLimit(64 * 1024)
_SHAPE = 'the body is {"bucket": text, "stream": text, "incarnation": text, which may be left out}'


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """Which stream: the last one of that name, or the one with that incarnation."""

    bucket: str
    stream: str
    incarnation: str | None = None


def undelete(exchange: Exchange) -> None:
    """Bring a stream back."""
    exchange.read_body(lambda body: _propose(exchange, body), _LIMIT)


def _propose(exchange: Exchange, body: bytes) -> None:
    try:
        wanted = msgspec.json.decode(body, type=Wanted)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Problem("invalid_json", f"{_SHAPE}: {error}") from None
    if not wanted.bucket:
        raise Problem("invalid_bucket_id", "a bucket has a name")
    if not wanted.stream:
        raise Problem("invalid_stream_id", "a stream has a name")
    exchange.target = Target(wanted.bucket, wanted.stream, False)
    command = Undelete(wanted.bucket, wanted.stream, _incarnation(exchange, wanted.incarnation))
    exchange.app.node.group_of(wanted.bucket).propose(command, lambda outcome: _on_outcome(exchange, outcome))


def _incarnation(exchange: Exchange, text: str | None) -> str | None:
    """As headers have it, or as the feed does: where else is one found whose stream is gone?

    It names a stream and is no precondition, so one that was noted before a restore still counts.
    """
    if text is None:
        return None
    found = _INCARNATION.fullmatch(text)
    if found is None:
        raise Problem("invalid_parameter", "incarnation is as Stream-Incarnation or the feed has it")
    is_later = found[1] is not None and int(found[1]) > exchange.app.generation
    return _OF_NO_STREAM if is_later else found[2]


def _on_outcome(exchange: Exchange, outcome: AnyAnswer) -> None:
    if not isinstance(outcome, Undeleted):
        exchange.refused(refusal(outcome))
        return
    answer = {
        "bucket_id": exchange.target.bucket,
        "stream_id": exchange.target.stream,
        "incarnation": exchange.incarnation(outcome.incarnation),
        "tail_offset": outcome.tail,
        "closed": outcome.closed,
    }
    headers = exchange.state_headers(outcome.incarnation, outcome.tail, outcome.tail, outcome.closed)
    headers += [("content-type", "application/json"), ("cache-control", "no-store")]
    exchange.send(200, headers, msgspec.json.encode(answer))
