"""Everything a new reader needs in one request: the snapshot, then what was appended after it."""

from dataclasses import dataclass

from .errors import OutcomeUnknown, Retryable
from .json_text import decode
from .multipart import Part, PartReader
from .results import Message, is_json, offset_or_none
from .retry import Attempts
from .steps import Answer, Flow, Item, Request, Steps, open_answer, receive, sleep
from .target import StreamTarget


@dataclass(frozen=True, slots=True)
class Start:
    """Where a bootstrap begins and ends. Without a snapshot `snapshot_offset` is None and `data` empty."""

    snapshot_offset: str | None
    content_type: str
    data: bytes
    next_offset: str
    up_to_date: bool
    closed: bool


def bootstrap(target: StreamTarget) -> Flow[Start | Message]:
    """First the start with the snapshot, then each message after it, as they arrive.

    Go on with a tail from `next_offset` of the start, which the last message has too. A connection that is
    lost on the way is an error: begin again.
    """
    answer = yield from _opened(target)
    parts = PartReader(answer.headers.get("content-type", ""))
    start: Start | None = None
    held: Message | None = None  # only when the end has come is it known which message is the last
    while piece := (yield from receive()):
        for part in parts.feed(piece):
            if start is None:
                start = _start(answer, part)
                yield Item(start)
                continue
            if held is not None:
                yield Item(held)
            held = _message(part)
    if start is None or not parts.ended:
        raise OutcomeUnknown("connection_lost", "the bootstrap was cut off: begin again")
    if held is not None:
        yield Item(Message(held.value, start.next_offset))


def _opened(target: StreamTarget) -> Steps[Answer]:
    attempts = Attempts(target.patience)
    request = Request("GET", target.address.part("bootstrap"), repeatable=True)
    while True:
        try:
            return (yield from open_answer(request))
        except (OutcomeUnknown, Retryable) as failure:
            delay = attempts.delay_after(failure)
        yield from sleep(delay)


def _start(answer: Answer, part: Part) -> Start:
    return Start(
        snapshot_offset=offset_or_none(answer, "stream-snapshot-offset"),
        content_type=part.headers.get("content-type", ""),
        data=part.body,
        next_offset=answer.headers.get("stream-next-offset", ""),
        up_to_date=answer.flag("stream-up-to-date"),
        closed=answer.flag("stream-closed"),
    )


def _message(part: Part) -> Message:
    value = decode(part.body) if is_json(part.headers.get("content-type", "")) else part.body
    return Message(value, None)
