"""ursula append."""

import os
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, BinaryIO, Self

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from ..output import counted, emit_line, fail, say
from .session import ServerOptions, StreamName, session, stream_of

if TYPE_CHECKING:
    from ursula.client import Appended, Stream

PIECE_BYTES = 8 << 20
"""A larger input is sent in pieces of this size."""
UPLOAD_PATIENCE_SECONDS = 30.0
NOTHING = "nothing to append: the input is empty"


def append(
    stream: StreamName,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT",
            help="The text to append. [dim]Default: --file or standard input[/dim]",
            show_default=False,
        ),
    ] = None,
    *,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Append a file.", exists=True, dir_okay=False, readable=True
        ),
    ] = None,
    lines: Annotated[
        bool,
        typer.Option(
            "--lines",
            "-l",
            help="Append each line as its own message; on a JSON stream, each line is a value.",
        ),
    ] = False,
    close: Annotated[bool, typer.Option("--close", help="Close the stream afterwards.")] = False,
    server: ServerOptions,
) -> None:
    """Append to a stream, and print the offset after it.

    The input is one append. An input above 8 MiB is sent in pieces, and with
    --lines in batches of lines; a piece whose response was lost is not stored twice.

    [bold]Examples[/bold]

      ursula append demo/hello 'hello, world'
      ursula append demo/orders '{"order": 1}'
      ursula append demo/orders --file orders.ndjson --lines
      tar c photos | ursula append demo/backup --close
    """
    if text is not None and file is not None:
        raise typer.BadParameter("give either text or --file, not both")
    with session(server, stream) as client, _opened(text, file) as source:
        target = stream_of(client, stream)
        content_type = target.head().content_type
        if lines:
            _append_lines(target, source, content_type, close)
        else:
            _append_pieces(target, source, content_type, close)


@contextmanager
def _opened(text: str | None, file: Path | None) -> Iterator[BinaryIO]:
    if text is not None:
        yield BytesIO(text.encode(errors="surrogateescape"))
    elif file is not None:
        with file.open("rb") as source:
            yield source
    else:
        if sys.stdin.isatty():
            say("reading standard input; end it with Ctrl-D")
        yield sys.stdin.buffer


def _append_pieces(target: "Stream", source: BinaryIO, content_type: str, close: bool) -> None:
    from ursula.client.results import is_json

    piece = source.read(PIECE_BYTES)
    following = source.read(PIECE_BYTES)
    if not following:
        if not piece and not close:
            fail(NOTHING)
        done = target.append(piece, close=close) if piece else target.close()
        emit_line(done.next_offset)
        return
    if is_json(content_type):
        fail("this is too large for one JSON append: put each value on its own line and use --lines")
    with Upload(target, source, "byte") as upload:
        while piece:
            upload.send(piece, len(piece))
            upload.producer.flush()
            piece, following = following, source.read(PIECE_BYTES)
        next_offset = upload.finish(close)
    emit_line(next_offset)


def _append_lines(target: "Stream", source: BinaryIO, content_type: str, close: bool) -> None:
    from ursula.client.results import is_json

    json_mode = is_json(content_type)
    with Upload(target, source, "line") as upload:
        for number, line in enumerate(source, 1):
            value = line.strip() if json_mode else line
            if json_mode:
                _check_json(value, number)
            if value:
                upload.send(value, 1)
            upload.moved(len(line))
        next_offset = upload.finish(close)
    emit_line(next_offset)


def _check_json(text: bytes, line_number: int) -> None:
    try:
        if text:
            msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise NotSendable(f"line {line_number} is not JSON: {error}") from None


class NotSendable(Exception):
    """The input is invalid."""


class Upload:
    """A long input, sent by one producer so that nothing is stored twice. Counts how much is stored."""

    def __init__(self, target: "Stream", source: BinaryIO, unit: str) -> None:
        from ursula.client import Batching, Patience

        target.patience = Patience(give_up_seconds=UPLOAD_PATIENCE_SECONDS)
        self.producer = target.producer(batching=Batching(queue_bytes=2 * PIECE_BYTES))
        self._unit = unit
        self._stored = 0
        self._last: Future[Appended] | None = None
        size = _size(source)
        is_shown = sys.stderr.isatty() and (size is None or size > PIECE_BYTES)
        self._progress = Progress(
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not is_shown,
            transient=True,
        )
        self._task = self._progress.add_task("", total=size)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from ursula.client import StreamError

        self._progress.stop()
        if isinstance(error, NotSendable):
            self._store_queued()
        if self._stored and isinstance(error, StreamError | NotSendable):
            say(f"stored only the first {counted(self._stored, self._unit)} of the input")
        if isinstance(error, NotSendable):
            fail(str(error))

    def send(self, data: bytes, count: int) -> None:
        """Queue a part of the input with `count` units, which are counted once they are stored."""

        def stored(future: "Future[Appended]") -> None:
            if future.exception() is None:
                self._stored += count

        self._last = self.producer.send(data)
        self._last.add_done_callback(stored)
        if self._unit == "byte":
            self.moved(len(data))

    def moved(self, size: int) -> None:
        """Advance the progress bar by this many bytes of the input."""
        self._progress.update(self._task, advance=size)

    def finish(self, close: bool) -> str:
        """Wait until everything is stored, close the stream if asked to, and return the offset after it."""
        self.producer.flush()
        closed = self.producer.close_stream() if close else None
        self.producer.close()
        if closed is not None:
            return closed.next_offset
        if self._last is None:
            raise NotSendable(NOTHING)
        return self._last.result().next_offset

    def _store_queued(self) -> None:
        from ursula.client import StreamError

        with suppress(StreamError):
            self.producer.close()


def _size(source: BinaryIO) -> int | None:
    """The size of a regular file; None for anything else."""
    try:
        status = os.fstat(source.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
