"""Follow a stream: the messages it has, then new ones as they arrive, until it is closed."""

from dataclasses import dataclass

from ..connection.steps import Answer, Flow, Item, Request
from ..formats.event_stream import Control
from ..results import Chunk, Message, is_json, media_type, messages
from ..target import StreamTarget
from .chunks import read_chunk
from .live import LONG_POLL_SECONDS, SILENCE_SECONDS, Live, Wait, follow_live


@dataclass
class TailProgress:
    """How far a tail has read, and in which incarnation of the stream."""

    offset: str
    decoding: bool
    content_type: str = ""
    incarnation: str = ""
    cursor: str | None = None
    up_to_date: bool = False
    closed: bool = False


class TailStatus:
    """What a tail reports besides its messages."""

    def __init__(self, progress: TailProgress) -> None:
        self._progress = progress

    @property
    def offset(self) -> str:
        """Where another tail can resume: an offset of the server, after the messages returned so far."""
        return self._progress.offset

    @property
    def up_to_date(self) -> bool:
        """Whether every message that the stream had as of the last response was returned."""
        return self._progress.up_to_date

    @property
    def closed(self) -> bool:
        """Whether every message was returned and the stream is closed, so that nothing can follow."""
        return self._progress.closed


def follow_stream(
    target: StreamTarget, progress: TailProgress, live: Live | None, wait: Wait
) -> Flow[Message]:
    """Every message from an offset on, as it arrives, until the stream is closed or the wait is over.

    Without `live`, server-sent events are used where they carry every byte unchanged. In `text/*` they would
    lose carriage returns, so such streams are polled.
    """
    source = _TailSource(target, progress, wait)
    patience = wait.patience(target.live_patience)
    while not progress.up_to_date:
        chunk = yield from read_chunk(target, progress.offset, None, progress.incarnation, patience)
        progress.content_type = chunk.content_type
        yield from source.take_chunk(chunk)
    wait.restart()
    if live is None:
        live = "long-poll" if media_type(progress.content_type).startswith("text/") else "sse"
    yield from follow_live(source, live, patience, wait)


class _TailSource:
    """The stream that a tail follows."""

    def __init__(self, target: StreamTarget, progress: TailProgress, wait: Wait) -> None:
        self._target = target
        self._progress = progress
        self._wait = wait

    @property
    def closed(self) -> bool:
        return self._progress.closed

    def live_request(self, live: Live, limit: float | None) -> Request:
        progress = self._progress
        params = {"offset": progress.offset, "live": live}
        if progress.cursor is not None:
            params["cursor"] = progress.cursor
        if live == "long-poll":
            seconds = LONG_POLL_SECONDS if limit is None else min(LONG_POLL_SECONDS, max(1, int(limit)))
            params["timeout"] = str(seconds)
        return Request(
            "GET",
            self._target.path,
            params,
            {"stream-incarnation": progress.incarnation} if progress.incarnation else {},
            repeatable=True,
            wait_seconds=SILENCE_SECONDS,
            longest_seconds=limit,
        )

    def take_answer(self, answer: Answer) -> Flow[Message]:
        yield from self.take_chunk(Chunk.of(answer, self._target.path))

    def take_chunk(self, chunk: Chunk) -> Flow[Message]:
        self._progress.incarnation = chunk.incarnation or self._progress.incarnation
        self._progress.cursor = chunk.cursor or self._progress.cursor
        yield from self._take(chunk.data, chunk.next_offset, chunk.up_to_date, chunk.closed)

    def take_events(self, data: list[bytes], control: Control) -> Flow[Message]:
        self._progress.cursor = control.cursor or self._progress.cursor
        yield from self._take(b"".join(data), control.next_offset, control.up_to_date, control.closed)

    def _take(self, data: bytes, next_offset: str, up_to_date: bool, closed: bool) -> Flow[Message]:
        """Pass on the messages. The progress reaches the next offset only with the last of them."""
        progress = self._progress
        found = messages(data, is_json(progress.content_type), next_offset, progress.decoding)
        for message in found[:-1]:
            progress.up_to_date = False
            yield Item(message)
        progress.offset = next_offset
        progress.closed = closed
        progress.up_to_date = up_to_date or closed
        if found:
            yield Item(found[-1])
            self._wait.restart()
