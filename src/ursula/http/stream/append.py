"""PUT, POST and DELETE: a request becomes a command, and its outcome an answer."""

from typing import TYPE_CHECKING, NamedTuple

from ...engine.failures import Failure, OutcomeUnknown, Unavailable
from ...model.commands import Append, Create, Delete, ForkPoint, IfMatch, PlainAppend, Producer
from ...model.json_messages import JsonInvalid, JsonTooLarge, split
from ...model.media_type import DEFAULT, JSON, media_type_of
from ...model.outcomes import AnyOutcome, Appended, Created, Ended, Refused
from ..body.offload import propose
from ..errors import Problem
from ..exchange import Exchange
from ..syntax.headers import (
    OURS,
    ignored_attributes,
    parse_attributes_header,
    parse_lifetime,
    parse_producer,
    parse_record_match,
    parse_stream_seq,
    wants_close,
)
from ..syntax.names import parse_source, parse_stream_path
from ..syntax.tokens import parse_if_match, parse_number, parse_offset
from ..wire.headers import HeaderList
from ..wire.request import Request
from .read import RECORD_EXTENSION

if TYPE_CHECKING:
    from ..app import App

AnyAnswer = AnyOutcome | Failure

_UNUSUAL = (OURS - {"content-type"}) | {"content-encoding", "transfer-encoding"}
"""Headers without which an append is a plain one."""


class Conditions(NamedTuple):
    """What a writer may say beside the body of an append."""

    close: bool = False
    producer: Producer | None = None
    stream_seq: str | None = None
    if_match: IfMatch | None = None
    incarnation: str | None = None
    record_match: int | None = None


UNCONDITIONAL = Conditions()


class AppendRequest(Exchange):
    """POST on a stream: append, close, or both."""

    __slots__ = ("_conditions", "_has_body", "_media_type")

    @classmethod
    def at_once(cls, app: "App", request: Request) -> bool:
        """Append a small body to a stream; False, and nothing is done, if that needs a closer look.

        The short way of the usual append, of which only the content type is to be known. It decides nothing
        by itself: whatever is unusual takes the long way from its beginning.
        """
        headers, bodies, body = request.headers, app.bodies, request.whole_body
        if not body or not _UNUSUAL.isdisjoint(headers):
            return False
        try:
            (content_type,) = headers["content-type"]
            media_type = media_type_of(content_type)
            target = parse_stream_path(request.path)
            messages = (body,) if media_type != JSON else split(body)
        except Exception:  # who looks closer finds it too, and knows what to say
            return False
        size, bucket = len(body), target.bucket
        if target.part or not media_type or not messages or not bodies.has_room(size):
            return False
        kind = PlainAppend if media_type != JSON else Append
        command = kind(bucket, target.stream, messages, media_type)
        exchange = cls(app, request)
        exchange.target = target
        if not app.node.group_of(bucket).join(command, exchange._on_outcome, size):
            return False
        bodies.held_bytes += size
        exchange.held_bytes = size
        return True

    def begin(self) -> None:
        """Check the headers and ask for the body."""
        headers = self.headers
        content_type = headers.get("content-type")
        self._media_type = media_type_of(content_type) if content_type else None
        # The usual append has no header of ours but its content type.
        self._conditions = self._parse(headers) if len(headers) > 1 or not content_type else UNCONDITIONAL
        self.app.bodies.read(self)

    def _parse(self, headers: dict[str, str]) -> Conditions:
        return Conditions(
            wants_close(headers),
            parse_producer(headers),
            parse_stream_seq(headers),
            _if_match(self),
            self.wanted_incarnation(),
            parse_record_match(headers),
        )

    def on_body(self, body: bytes) -> None:
        """Propose the append."""
        media_type, conditions = self._media_type, self._conditions
        self._has_body = bool(body)
        unsplit = None
        if not body:
            if not conditions.close:
                raise Problem("empty_body", "an append needs a body, unless it closes the stream")
            messages: tuple[bytes, ...] = ()
        elif media_type is None:
            raise Problem("content_type_missing", "an append needs a Content-Type")
        elif media_type != JSON:
            messages = (body,)
        else:
            messages, unsplit = _split(body)
            if not messages and unsplit is None:
                unsplit = "an empty array holds no message"
        target = self.target
        bucket, stream = target.bucket, target.stream
        if conditions is UNCONDITIONAL:
            command = Append(bucket, stream, messages, media_type)
        else:
            close, producer, stream_seq, if_match, incarnation, record_match = conditions
            command = Append(
                bucket,
                stream,
                messages,
                media_type,
                close,
                producer,
                stream_seq,
                if_match,
                incarnation,
                (),
                record_match,
            )
        propose(self, command, self._on_outcome, len(body), unsplit)

    def _on_outcome(self, outcome: AnyAnswer) -> None:
        if type(outcome) is not Appended:
            self.refused(refusal(outcome))
            return
        headers = self.state_headers(outcome.incarnation, outcome.next_offset, outcome.tail, outcome.closed)
        if outcome.record_next is not None:
            headers += record_headers(outcome)
        if outcome.epoch is None:
            self.empty(204, headers)
            return
        headers += producer_headers(outcome)
        self.empty(200 if self._has_body and not outcome.duplicate else 204, headers)


class CreateRequest(Exchange):
    """PUT on a stream: create it, or make sure that it is as asked."""

    __slots__ = ("_attributes", "_fork", "_lifetime")

    def begin(self) -> None:
        """Check the headers and ask for the body."""
        parse_producer(self.headers)
        parse_stream_seq(self.headers)
        self._lifetime = parse_lifetime(self.headers)
        self._fork = _fork(self)
        self._attributes = parse_attributes_header(self.headers)
        self.app.bodies.read(self)

    def on_body(self, body: bytes) -> None:
        """Propose the creation."""
        headers, (bucket, stream, flat, *_) = self.headers, self.target
        content_type = headers.get("content-type") or None
        unsplit = None
        if content_type is None and self._fork is not None and body:
            source = self.app.node.group_of(bucket).describe(bucket, self._fork.source)
            if not isinstance(source, Refused):
                content_type = source.content_type
            else:  # it may be there by the time this is decided, and be of a type that needs splitting
                unsplit = "the source was made at this very moment: send the request again"
        messages: tuple[bytes, ...] = (body,) if body else ()
        if body and media_type_of(content_type or DEFAULT) == JSON:
            messages, unsplit = _split(body)
        ttl_seconds, expires_at = self._lifetime
        command = Create(
            bucket,
            stream,
            content_type,
            messages,
            wants_close(headers),
            ttl_seconds,
            expires_at,
            flat,
            self._fork,
            parse_producer(headers),
            parse_stream_seq(headers),
            _if_match(self),
            self.wanted_incarnation(),
            self._attributes and self._attributes.stored,
        )
        propose(self, command, self._on_outcome, len(body), unsplit)

    def _on_outcome(self, outcome: AnyAnswer) -> None:
        if not isinstance(outcome, Created):
            self.refused(refusal(outcome))
            return
        headers = self.state_headers(outcome.incarnation, outcome.tail, outcome.tail, outcome.closed)
        headers.append(("content-type", outcome.content_type))
        headers += record_headers(outcome)
        if self._attributes is not None:
            headers += ignored_attributes(self._attributes.ignored)
        if outcome.new:
            headers.append(("location", self.app.location(self)))
        self.empty(201 if outcome.new else 200, headers)


def delete_stream(exchange: Exchange) -> None:
    """DELETE on a stream."""

    def on_outcome(outcome: AnyAnswer) -> None:
        if isinstance(outcome, Ended):
            exchange.empty(204, [("stream-incarnation", exchange.incarnation(outcome.incarnation))])
        else:
            exchange.refused(refusal(outcome))

    target = exchange.target
    command = Delete(target.bucket, target.stream, exchange.wanted_incarnation())
    exchange.app.node.group_of(target.bucket).propose(command, on_outcome)


def producer_headers(outcome: Appended) -> HeaderList:
    """What a producer is told of itself."""
    if outcome.epoch is None:
        return []
    return [("producer-epoch", str(outcome.epoch)), ("producer-seq", str(outcome.seq))]


def record_headers(outcome: Appended | Created) -> HeaderList:
    """Which ordinals the messages of a write to a JSON stream have."""
    if outcome.record_next is None:
        return []
    return [
        RECORD_EXTENSION,
        ("stream-record-start", str(outcome.record_start)),
        ("stream-record-next", str(outcome.record_next)),
    ]


def refusal(outcome: AnyAnswer) -> Refused | Failure:
    """An outcome that is not the success of its command is why that was not done."""
    if isinstance(outcome, Refused | Unavailable | OutcomeUnknown):
        return outcome
    raise TypeError(f"an outcome of another command: {outcome!r}")


def _split(body: bytes) -> tuple[tuple[bytes, ...], str | None]:
    """The messages of a JSON body, or why it has none that can be stored."""
    try:
        return split(body), None
    except JsonTooLarge as error:
        raise Problem("body_too_large", str(error)) from None
    except JsonInvalid as error:
        return (), str(error)


def _if_match(exchange: Exchange) -> IfMatch | None:
    header = exchange.headers.get("if-match")
    return None if header is None else parse_if_match(header, exchange.app.generation)


def _fork(exchange: Exchange) -> ForkPoint | None:
    headers = exchange.headers
    source, offset_text = headers.get("stream-forked-from"), headers.get("stream-fork-offset")
    sub_text = headers.get("stream-fork-sub-offset")
    if source is None:
        if offset_text is not None or sub_text is not None:
            raise Problem("header_invalid", "a fork offset needs Stream-Forked-From")
        return None
    sub_offset = 0 if sub_text is None else parse_number(sub_text)
    if sub_offset is None or sub_offset >= 2**63:
        raise Problem("invalid_offset", "Stream-Fork-Sub-Offset must be a whole number")
    if sub_offset and offset_text is None:
        raise Problem("invalid_offset", "Stream-Fork-Sub-Offset needs Stream-Fork-Offset")
    offset = None if offset_text is None else parse_offset(offset_text)
    if offset is not None and offset < 0:
        offset = 0 if offset == -1 else None
    return ForkPoint(parse_source(source, exchange.target), offset, sub_offset)
