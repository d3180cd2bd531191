"""POST on a stream: append, close, or both."""

from typing import NamedTuple

from ...engine.failures import Failure
from ...model.commands import Append, IfMatch, Producer
from ...model.outcomes import AnyOutcome, Appended, Created
from ...model.text.media_type import JSON, media_type_of
from ..body import offload
from ..errors import Problem
from ..exchange import Exchange
from ..syntax.headers import parse_producer, parse_record_match, parse_stream_seq, wants_close
from ..syntax.tokens import parse_if_match
from ..wire.headers import HeaderList
from .json_body import split_body
from .read import RECORD_EXTENSION


class Conditions(NamedTuple):
    """The conditions that the headers of an append may set."""

    close: bool = False
    producer: Producer | None = None
    stream_seq: str | None = None
    if_match: IfMatch | None = None
    incarnation: str | None = None
    record_match: int | None = None


UNCONDITIONAL = Conditions()


def append(exchange: Exchange) -> None:
    """Check the headers, read the body, and append it."""
    AppendRequest(exchange).begin()


class AppendRequest:
    """One append. It continues in callbacks: a task for each would cost more than the append."""

    __slots__ = ("_conditions", "_exchange", "_has_body", "_media_type")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._has_body = False
        headers = exchange.headers
        content_type = headers.get("content-type")
        self._media_type = media_type_of(content_type) if content_type else None
        # Most appends have only a content type among the headers that the server interprets.
        self._conditions = (
            _parse_conditions(exchange) if len(headers) > 1 or not content_type else UNCONDITIONAL
        )

    def begin(self) -> None:
        """Read the body, and continue with it."""
        self._exchange.services.bodies.when_read(self._exchange, self._on_body_read)

    def _on_body_read(self, body: bytes) -> None:
        """Propose the append."""
        exchange = self._exchange
        self._has_body = bool(body)
        messages, json_problem = self._messages(body)
        bucket, stream = exchange.target.bucket, exchange.target.stream
        if self._conditions is UNCONDITIONAL:
            command = Append(bucket, stream, messages, self._media_type)
        else:
            close, producer, stream_seq, if_match, incarnation, record_match = self._conditions
            command = Append(
                bucket,
                stream,
                messages,
                self._media_type,
                close=close,
                producer=producer,
                stream_seq=stream_seq,
                if_match=if_match,
                incarnation=incarnation,
                record_match=record_match,
            )
        if offload.is_large(command, len(body), json_problem):
            exchange.spawn(self._append_large(command, len(body)))
        else:
            exchange.group.propose(command, self._on_outcome, len(body), json_problem)

    def _messages(self, body: bytes) -> tuple[tuple[bytes, ...], str | None]:
        """The messages of a body, or why there are none to store."""
        if not body:
            if not self._conditions.close:
                raise Problem("empty_body", "an append needs a body, unless it closes the stream")
            return (), None
        if self._media_type is None:
            raise Problem("content_type_missing", "an append needs a Content-Type")
        if self._media_type != JSON:
            return (body,), None
        return split_body(body, may_be_empty=False)

    async def _append_large(self, command: Append, size: int) -> None:
        outcome = await offload.propose(self._exchange, command, size, None)
        answer_append(self._exchange, outcome, self._has_body)

    def _on_outcome(self, outcome: AnyOutcome | Failure) -> None:
        self._exchange.guard(answer_append, self._exchange, outcome, self._has_body)


def answer_append(exchange: Exchange, outcome: AnyOutcome | Failure, has_body: bool) -> None:
    """Respond with the end of the stream, or with the reason why nothing was appended."""
    appended = exchange.expect(Appended, outcome)
    headers = exchange.state_headers(
        appended.incarnation, appended.next_offset, appended.tail, appended.closed
    )
    if appended.record_next is not None:
        headers += record_headers(appended)
    if appended.epoch is None:
        exchange.reply_empty(204, headers)
        return
    headers += producer_headers(appended)
    exchange.reply_empty(200 if has_body and not appended.duplicate else 204, headers)


def _parse_conditions(exchange: Exchange) -> Conditions:
    headers = exchange.headers
    return Conditions(
        close=wants_close(headers),
        producer=parse_producer(headers),
        stream_seq=parse_stream_seq(headers),
        if_match=if_match_of(exchange),
        incarnation=exchange.requested_incarnation(),
        record_match=parse_record_match(headers),
    )


def if_match_of(exchange: Exchange) -> IfMatch | None:
    """The precondition of the request: the versions of the stream that it allows."""
    header = exchange.headers.get("if-match")
    return None if header is None else parse_if_match(header, exchange.services.generation)


def producer_headers(outcome: Appended) -> HeaderList:
    """The headers that report the state of the producer."""
    if outcome.epoch is None:
        return []
    return [("producer-epoch", str(outcome.epoch)), ("producer-seq", str(outcome.seq))]


def record_headers(outcome: Appended | Created) -> HeaderList:
    """The headers that report which records the messages of a write to a JSON stream became."""
    if outcome.record_next is None:
        return []
    return [
        RECORD_EXTENSION,
        ("stream-record-start", str(outcome.record_start)),
        ("stream-record-next", str(outcome.record_next)),
    ]
