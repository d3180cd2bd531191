"""The fast path of an append in HTTP: from a parsed request to the next batch in one step, back in one write.

Most requests are appends of one small body, with only a content type among the headers that the server
interprets. This path skips everything that they do not need: an `Exchange` and its list of headers, the
dictionary of interpreted headers, conditions, and the decision ahead of the log. It decides nothing by
itself. If anything is unusual (a header with a meaning, an encoded body, an odd content type, invalid JSON,
no room, a stream that is not simply open), it returns False without side effects, and `append` handles the
request from the beginning. An outcome other than `Appended` is answered by an `Exchange` like any other.

The append of a producer takes the same path in HTTP, and differs in the engine only: it is decided ahead of
the log (`Group.propose`), since a retry that is a duplicate must not be logged.

`tests/http/test_fast_append.py` sends the same requests on both paths and compares the responses, header by
header; `tests/http/test_append.py` and the conformance suite go through here wherever a request is plain.
The other parts are `engine/group/fast_append.py` and `model/change/fast_append.py`.
"""

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from ...engine.failures import Failure
from ...model.commands import Append, PlainAppend, Producer
from ...model.outcomes import AnyOutcome, Appended
from ...model.text.json_messages import JsonInvalid, JsonTooLarge, split
from ...model.text.media_type import JSON, media_type_of
from ..errors import Problem
from ..exchange import Exchange
from ..observe.request_stats import STREAM
from ..syntax.headers import OURS, parse_producer
from ..syntax.names import Target
from ..wire.headers import RequestHeaders, render
from ..wire.request import Request
from .append import answer_append, record_headers

if TYPE_CHECKING:
    from ..services import Services

_PRODUCER = {"producer-id", "producer-epoch", "producer-seq"}
_UNUSUAL = (OURS - {"content-type"} - _PRODUCER) | {"content-encoding", "transfer-encoding"}
"""An append with none of these headers is a usual one."""


class AppendPlan(NamedTuple):
    """The parsed head of a usual append. It is kept with the head, for the next request with the same one."""

    target: Target
    media_type: str
    is_json: bool
    producer: Producer | None


def plan_append(headers: RequestHeaders, target: Target) -> AppendPlan | None:
    """The plan for requests with these headers; None if they need the slow path."""
    content_types = headers.get("content-type", ())
    if len(content_types) != 1 or not _UNUSUAL.isdisjoint(headers):
        return None
    media_type = media_type_of(content_types[0])
    if not media_type:
        return None
    producer = None
    if not _PRODUCER.isdisjoint(headers):
        given = {name: values[0] for name in _PRODUCER if len(values := headers.get(name, [])) == 1}
        try:
            producer = parse_producer(given) if len(given) == len(_PRODUCER) else None
        except Problem:  # `append` finds it too, and reports it
            producer = None
        if producer is None:
            return None
    return AppendPlan(target, media_type, media_type == JSON, producer)


def append_fast(services: "Services", request: Request, plan: AppendPlan) -> bool:
    """Append a small body to a stream. Returns False, with nothing done, if it needs the slow path."""
    body, bodies = request.whole_body, services.bodies
    if not body:
        return False
    target, media_type, is_json, producer = plan
    size, bucket = len(body), target.bucket
    if not bodies.has_room(size):
        return False
    if is_json:
        try:
            messages = split(body)
        except (JsonInvalid, JsonTooLarge):  # `append` finds it too, and reports it
            return False
    else:
        messages = (body,)
    reply = _Reply(services, request, target, size)
    if producer is not None:
        bodies.held_bytes += size
        command = Append(bucket, target.stream, messages, media_type, producer=producer)
        services.node.group_of(bucket).propose(command, reply.send, size)
        return True
    command = (Append if is_json else PlainAppend)(bucket, target.stream, messages, media_type)
    if not services.node.group_of(bucket).append_fast(command, reply.send, size):
        return False
    bodies.held_bytes += size
    return True


class _Reply:
    """Answers a fast append once its outcome is known."""

    __slots__ = ("_began_at", "_request", "_services", "_size", "_target")

    def __init__(self, services: "Services", request: Request, target: Target, size: int) -> None:
        self._began_at = perf_counter()
        self._services = services
        self._request = request
        self._target = target
        self._size = size

    def send(self, outcome: AnyOutcome | Failure) -> None:
        """Answer the request."""
        services, request = self._services, self._request
        services.bodies.held_bytes -= self._size
        if type(outcome) is not Appended or outcome.closed:
            self._send_by_exchange(outcome)
            return
        if outcome.epoch is not None:
            self._send_to_producer(outcome)
            return
        name, tail = f"{services.generation}-{outcome.incarnation}", outcome.tail
        records = "" if outcome.record_next is None else _record_lines(outcome)
        cors = services.cors.open or services.cors.lines(request.headers.first("origin"))
        request.send_no_content(
            f"{cors}stream-next-offset: {outcome.next_offset:020d}\r\n"
            f'etag: "{name}:{tail}:{tail}"\r\nstream-incarnation: {name}\r\n{records}'
        )
        services.stats.note(STREAM, "POST", 204, perf_counter() - self._began_at)

    def _send_to_producer(self, outcome: Appended) -> None:
        """Respond to a producer, whose responses have a status and two headers of their own."""
        services, request = self._services, self._request
        name, tail = f"{services.generation}-{outcome.incarnation}", outcome.tail
        status = 204 if outcome.duplicate else 200
        headers = [
            ("stream-next-offset", f"{outcome.next_offset:020d}"),
            ("etag", f'"{name}:{tail}:{tail}"'),
            ("stream-incarnation", name),
            *(() if outcome.record_next is None else record_headers(outcome)),
            ("producer-epoch", str(outcome.epoch)),
            ("producer-seq", str(outcome.seq)),
        ]
        cors = services.cors.open or services.cors.lines(request.headers.first("origin"))
        request.send(status, cors, headers, None)
        services.stats.note(STREAM, "POST", status, perf_counter() - self._began_at)

    def _send_by_exchange(self, outcome: AnyOutcome | Failure) -> None:
        """Respond to an unexpected outcome: say, the stream was closed in the meantime."""
        cors = self._services.cors.lines(self._request.headers.first("origin"))
        exchange = Exchange(self._services, self._request, STREAM, self._target, cors)
        exchange.began_at = self._began_at
        exchange.guard(answer_append, exchange, outcome, True)


def _record_lines(outcome: Appended) -> str:
    return render(record_headers(outcome))
