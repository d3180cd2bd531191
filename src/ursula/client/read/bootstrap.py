"""Everything a new reader needs in one request: the snapshot, then the messages after it."""

from dataclasses import dataclass

from ..connection.retry import perform
from ..connection.steps import Answer, Flow, Item, Request, open_answer, receive
from ..errors import OutcomeUnknown
from ..formats.json_text import decode
from ..formats.multipart import BodyPart, PartReader
from ..results import Message, is_json, offset_or_none
from ..target import StreamTarget


@dataclass(frozen=True, slots=True)
class Start:
    """The snapshot of a bootstrap, and the offset after its last message.

    Without a snapshot, `snapshot_offset` is None and `data` is empty.
    """

    snapshot_offset: str | None
    content_type: str
    data: bytes
    next_offset: str
    up_to_date: bool
    closed: bool


def bootstrap(target: StreamTarget) -> Flow[Start | Message]:
    """First the start with the snapshot, then each message after it, as they arrive.

    Continue with a tail from `next_offset` of the start, which the last message also has. If the connection
    is lost on the way, an error is raised: begin again.
    """
    request = Request("GET", target.address.part("bootstrap"), repeatable=True)
    answer = yield from perform(request, target.patience, open_answer)
    parts = PartReader(answer.headers.get("content-type", ""))
    start: Start | None = None
    last: Message | None = None  # only the end of the body shows which message is the last
    while piece := (yield from receive()):
        for part in parts.feed(piece):
            if start is None:
                start = _start(answer, part)
                yield Item(start)
                continue
            if last is not None:
                yield Item(last)
            last = _message(part)
    if start is None or not parts.ended:
        raise OutcomeUnknown("connection_lost", "the connection was lost during the bootstrap: begin again")
    if last is not None:
        yield Item(Message(last.value, start.next_offset))


def _start(answer: Answer, part: BodyPart) -> Start:
    return Start(
        snapshot_offset=offset_or_none(answer, "stream-snapshot-offset"),
        content_type=part.headers.get("content-type", ""),
        data=part.body,
        next_offset=answer.headers.get("stream-next-offset", ""),
        up_to_date=answer.flag("stream-up-to-date"),
        closed=answer.flag("stream-closed"),
    )


def _message(part: BodyPart) -> Message:
    value = decode(part.body) if is_json(part.headers.get("content-type", "")) else part.body
    return Message(value, None)
