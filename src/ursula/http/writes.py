"""PUT, POST and DELETE: a request becomes a command, and its outcome an answer."""

from ..engine.failures import Failure, OutcomeUnknown, Unavailable
from ..model.commands import Append, Create, CreateBucket, Delete, ForkPoint, IfMatch
from ..model.json_messages import JsonInvalid, JsonTooLarge, split
from ..model.media_type import DEFAULT, JSON, media_type_of
from ..model.outcomes import AnyOutcome, Appended, BucketCreated, Created, Ended, Refused
from .errors import Problem
from .exchange import Exchange
from .headers import parse_lifetime, parse_producer, parse_stream_seq, wants_close
from .names import parse_bucket_name, parse_source
from .rsgi import HeaderList
from .tokens import format_offset, format_tag, parse_if_match, parse_incarnation, parse_number, parse_offset

AnyAnswer = AnyOutcome | Failure


class AppendRequest:
    """POST on a stream: append, close, or both."""

    __slots__ = (
        "_close",
        "_exchange",
        "_has_body",
        "_if_match",
        "_incarnation",
        "_media_type",
        "_producer",
        "_stream_seq",
    )

    def __init__(self, exchange: Exchange) -> None:
        headers = exchange.headers
        content_type = headers.get("content-type")
        self._exchange = exchange
        self._media_type = media_type_of(content_type) if content_type else None
        self._close = wants_close(headers)
        self._producer = parse_producer(headers)
        self._stream_seq = parse_stream_seq(headers)
        self._if_match = _if_match(exchange)
        self._incarnation = _incarnation(exchange)
        exchange.app.bodies.read(exchange, self._on_body)

    def _on_body(self, body: bytes) -> None:
        exchange = self._exchange
        self._has_body = bool(body)
        if not body and not self._close:
            raise Problem("empty_body", "an append needs a body, unless it closes the stream")
        if body and self._media_type is None:
            raise Problem("content_type_missing", "an append needs a Content-Type")
        messages, unsplit = _messages(body, self._media_type)
        if self._media_type == JSON and body and not messages and unsplit is None:
            unsplit = "an empty array holds no message"
        target = exchange.target
        command = Append(
            target.bucket,
            target.stream,
            messages,
            self._media_type,
            self._close,
            self._producer,
            self._stream_seq,
            self._if_match,
            self._incarnation,
        )
        group = exchange.app.node.group_of(target.bucket)
        group.propose(command, self._on_outcome, len(body), unsplit)

    def _on_outcome(self, outcome: AnyAnswer) -> None:
        exchange = self._exchange
        if not isinstance(outcome, Appended):
            exchange.refused(_refusal(outcome))
            return
        incarnation = exchange.incarnation(outcome.incarnation)
        headers = [
            ("stream-next-offset", format_offset(outcome.next_offset)),
            ("etag", format_tag(incarnation, outcome.tail, outcome.tail, outcome.closed)),
            ("stream-incarnation", incarnation),
        ]
        if outcome.closed:
            headers.append(("stream-closed", "true"))
        if outcome.epoch is None:
            exchange.empty(204, headers)
            return
        headers.append(("producer-epoch", str(outcome.epoch)))
        headers.append(("producer-seq", str(outcome.seq)))
        exchange.empty(200 if self._has_body and not outcome.duplicate else 204, headers)


class CreateRequest:
    """PUT on a stream: create it, or make sure that it is as asked."""

    def __init__(self, exchange: Exchange) -> None:
        headers = exchange.headers
        self._exchange = exchange
        self._content_type = headers.get("content-type") or None
        self._close = wants_close(headers)
        self._producer = parse_producer(headers)
        self._stream_seq = parse_stream_seq(headers)
        self._ttl_seconds, self._expires_at = parse_lifetime(headers)
        self._fork = _fork(exchange)
        self._if_match = _if_match(exchange)
        exchange.app.bodies.read(exchange, self._on_body)

    def _on_body(self, body: bytes) -> None:
        exchange, target = self._exchange, self._exchange.target
        group = exchange.app.node.group_of(target.bucket)
        content_type = self._content_type
        if content_type is None and self._fork is not None and body:
            source = group.describe(target.bucket, self._fork.source)
            if not isinstance(source, Refused):
                content_type = source.content_type
        messages, unsplit = _messages(body, media_type_of(content_type or DEFAULT))
        command = Create(
            target.bucket,
            target.stream,
            content_type,
            messages,
            self._close,
            self._ttl_seconds,
            self._expires_at,
            target.flat,
            self._fork,
            self._producer,
            self._stream_seq,
            self._if_match,
        )
        group.propose(command, self._on_outcome, len(body), unsplit)

    def _on_outcome(self, outcome: AnyAnswer) -> None:
        exchange = self._exchange
        if not isinstance(outcome, Created):
            exchange.refused(_refusal(outcome))
            return
        incarnation = exchange.incarnation(outcome.incarnation)
        headers: HeaderList = [
            ("content-type", outcome.content_type),
            ("stream-next-offset", format_offset(outcome.tail)),
            ("etag", format_tag(incarnation, outcome.tail, outcome.tail, outcome.closed)),
            ("stream-incarnation", incarnation),
        ]
        if outcome.closed:
            headers.append(("stream-closed", "true"))
        if outcome.new:
            headers.append(("location", exchange.app.location(exchange)))
        exchange.empty(201 if outcome.new else 200, headers)


def delete_stream(exchange: Exchange) -> None:
    """DELETE on a stream."""

    def on_outcome(outcome: AnyAnswer) -> None:
        if isinstance(outcome, Ended):
            exchange.empty(204, [("stream-incarnation", exchange.incarnation(outcome.incarnation))])
        else:
            exchange.refused(_refusal(outcome))

    target = exchange.target
    command = Delete(target.bucket, target.stream, _incarnation(exchange))
    exchange.app.node.group_of(target.bucket).propose(command, on_outcome)


def create_bucket(exchange: Exchange, name: str) -> None:
    """PUT on a bucket."""

    def on_outcome(outcome: AnyAnswer) -> None:
        if isinstance(outcome, BucketCreated):
            exchange.empty(201, [("location", exchange.app.location(exchange))])
        else:
            exchange.refused(_refusal(outcome))

    bucket = parse_bucket_name(name)
    exchange.app.node.group_of(bucket).propose(CreateBucket(bucket), on_outcome)


def _refusal(outcome: AnyAnswer) -> Refused | Failure:
    """An outcome that is not the success of its command is why that was not done."""
    if isinstance(outcome, Refused | Unavailable | OutcomeUnknown):
        return outcome
    raise TypeError(f"an outcome of another command: {outcome!r}")


def _messages(body: bytes, media_type: str | None) -> tuple[tuple[bytes, ...], str | None]:
    """The messages of a body, or why it has none that can be stored."""
    if not body:
        return (), None
    if media_type != JSON:
        return (body,), None
    try:
        return split(body), None
    except JsonTooLarge as error:
        raise Problem("body_too_large", str(error)) from None
    except JsonInvalid as error:
        return (), str(error)


def _if_match(exchange: Exchange) -> IfMatch | None:
    header = exchange.headers.get("if-match")
    return None if header is None else parse_if_match(header, exchange.app.generation)


def _incarnation(exchange: Exchange) -> str | None:
    header = exchange.headers.get("stream-incarnation")
    return None if header is None else parse_incarnation(header, exchange.app.generation)


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
