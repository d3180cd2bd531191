"""Append batch: many appends in one request, each framed by its length."""

import struct
from typing import Any

import msgspec

from ...model.commands import Append
from ...model.limits import BATCH_BODY_BYTES_MAX, BATCH_FRAMES_MAX, JSON_MESSAGES_MAX
from ...model.outcomes import Appended, Refused
from ...model.text.media_type import JSON, media_type_of
from ..body import offload
from ..body.read import BodyLimit
from ..errors import STATUS, AnyErrorCode, Problem
from ..exchange import Exchange
from ..syntax.headers import parse_producer, wants_close
from ..syntax.tokens import format_offset
from .append import producer_headers, record_headers
from .json_body import split_body

_LENGTH = struct.Struct(">I")
_EXCLUDED = ("stream-seq", "if-match", "stream-record-match")


async def append_batch(exchange: Exchange) -> None:
    """POST on append-batch."""
    headers = exchange.headers
    parse_producer(headers)
    for name in _EXCLUDED:
        if name in headers:
            raise Problem("header_invalid", f"{name} is not allowed in a batch")
    if wants_close(headers):
        raise Problem("header_invalid", "a batch cannot close its stream")
    limit = BodyLimit(min(BATCH_BODY_BYTES_MAX, exchange.services.bodies.limit.bytes_max))
    await AppendBatch(exchange, await exchange.read_body(limit)).append()


class AppendBatch:
    """The appends of one request, and the problems of the frames that cannot be appended."""

    def __init__(self, exchange: Exchange, body: bytes) -> None:
        self._exchange = exchange
        content_type = exchange.headers.get("content-type")
        if not body:
            raise Problem("empty_body", "a batch needs at least one frame")
        if not content_type:
            raise Problem("content_type_missing", "an append needs a Content-Type")
        self._size = len(body)
        self._media_type = media_type_of(content_type)
        self._producer = parse_producer(exchange.headers)
        self._appends: list[tuple[bytes, ...]] = []
        self._measures: list[tuple[int, int]] = []  # for each append, the number of messages and of bytes
        self._problems: list[str | None] = []  # one per frame
        for frame in parse_frames(body):
            self._add(frame)
        if sum(map(len, self._appends)) > JSON_MESSAGES_MAX:
            raise Problem("body_too_large", f"a batch may have at most {JSON_MESSAGES_MAX} JSON messages")

    async def append(self) -> None:
        """Append all of them in one command, so that no other append can come between them."""
        exchange, target = self._exchange, self._exchange.target
        json_problem = next(filter(None, self._problems), None)
        if self._appends and self._producer is None:
            json_problem = None  # the valid frames are stored
        self._measures = [(len(append), sum(map(len, append))) for append in self._appends]
        command = Append(
            bucket=target.bucket,
            stream=target.stream,
            messages=tuple(message for append in self._appends for message in append),
            media_type=self._media_type,
            producer=self._producer,
            incarnation=exchange.requested_incarnation(),
            counts=tuple(map(len, self._appends)),
        )
        self._appends = []
        outcome = await offload.propose(exchange, command, self._size, json_problem)
        if isinstance(outcome, Refused) and self._is_reported_per_frame(outcome):
            self._answer_refused(outcome)
        else:
            self._answer_appended(exchange.expect(Appended, outcome))

    def _add(self, frame: bytes) -> None:
        problem = None
        if self._media_type != JSON:
            self._appends.append((frame,))
        else:
            messages, problem = split_body(frame, may_be_empty=False)
            if problem is None:
                self._appends.append(messages)
        self._problems.append(problem)

    def _is_reported_per_frame(self, outcome: Refused) -> bool:
        if self._producer is not None:
            return False
        return outcome.code in ("stream_closed", "content_type_mismatch", "invalid_json")

    def _answer_appended(self, outcome: Appended) -> None:
        exchange = self._exchange
        headers = exchange.state_headers(
            outcome.incarnation, outcome.next_offset, outcome.tail, outcome.closed
        )
        headers += producer_headers(outcome) + record_headers(outcome)
        is_minimal = "return=minimal" in exchange.headers.get("prefer", "").replace(" ", "").lower()
        if outcome.duplicate or (is_minimal and not any(self._problems)):
            exchange.reply_empty(204, headers)
            return
        measures = iter(self._measures)
        offset = outcome.tail - sum(size for _, size in self._measures)
        record = outcome.record_start
        items: list[dict[str, Any]] = []
        for problem in self._problems:
            if problem is not None:
                items.append(_refused_item("invalid_json", problem))
                continue
            count, size = next(measures)
            offset += size
            item: dict[str, Any] = {"status": 204, "stream_next_offset": format_offset(offset)}
            if record is not None:
                item["stream_record_start"] = record
                record += count
                item["stream_record_next"] = record
            items.append(item)
        self._answer(items, headers)

    def _answer_refused(self, outcome: Refused) -> None:
        code, message = outcome.code, outcome.message
        is_json = code == "invalid_json"
        headers: list[tuple[str, str]] = []
        if outcome.incarnation is not None and outcome.tail is not None:
            headers = self._exchange.state_headers(
                outcome.incarnation, outcome.tail, outcome.tail, outcome.closed
            )
        items = [
            _refused_item(code, (problem or message) if is_json else message) for problem in self._problems
        ]
        self._answer(items, headers)

    def _answer(self, items: list[dict[str, Any]], headers: list[tuple[str, str]]) -> None:
        self._exchange.reply(200, [*headers, ("content-type", JSON)], msgspec.json.encode(items))


def _refused_item(code: AnyErrorCode, message: str) -> dict[str, Any]:
    return {"status": STATUS[code], "error": {"code": code, "message": message}}


def parse_frames(body: bytes) -> list[bytes]:
    """The frames of a body: each is its length in four bytes, big-endian, followed by that many bytes."""
    frames: list[bytes] = []
    position, end = 0, len(body)
    while position < end:
        if end - position < _LENGTH.size:
            raise Problem("invalid_frames", "the body ends inside the length of a frame")
        (length,) = _LENGTH.unpack_from(body, position)
        position += _LENGTH.size
        if not length:
            raise Problem("invalid_frames", "a frame must have at least one byte")
        if end - position < length:
            raise Problem("invalid_frames", "the body ends inside a frame")
        if len(frames) == BATCH_FRAMES_MAX:
            raise Problem("body_too_large", f"a batch may have at most {BATCH_FRAMES_MAX} frames")
        frames.append(body[position : position + length])
        position += length
    return frames
