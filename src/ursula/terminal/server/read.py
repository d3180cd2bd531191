"""ursula read, tail and head."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from ..output import emit, emit_json, emit_line
from .session import ServerOptions, StreamName, session, stream_of

if TYPE_CHECKING:
    from ursula.client import Chunk, Stream, StreamInfo

LAST_RECORDS = 10
LAST_BYTES = 1024
OFFSET_DIGITS = 20


def read(
    stream: StreamName,
    *,
    offset: Annotated[
        str, typer.Option("--offset", "-o", metavar="OFFSET", help="Where to begin; -1 is the beginning.")
    ] = "-1",
    server: ServerOptions,
) -> None:
    """Print the contents of a stream, from an offset to the tail.

    Bytes are printed unchanged, JSON values one per line.

    [bold]Examples[/bold]

      ursula read demo/hello
      ursula read demo/orders | jq .order
      ursula read demo/orders --offset 00000000000000000042
    """
    with session(server, stream) as client:
        for chunk in stream_of(client, stream).read_all(offset):
            _print_chunk(chunk)


def tail(
    stream: StreamName,
    *,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Then print new data as it arrives, until the stream is closed."),
    ] = False,
    size: Annotated[
        int | None,
        typer.Option(
            "--bytes",
            "-c",
            metavar="NUMBER",
            min=0,
            help=f"Begin this many bytes before the end; not for JSON. [dim]Default: {LAST_BYTES}[/dim]",
            show_default=False,
        ),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(
            "--records",
            "-n",
            metavar="NUMBER",
            min=0,
            help=f"Begin this many JSON values before the end. [dim]Default: {LAST_RECORDS}[/dim]",
            show_default=False,
        ),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option("--offset", "-o", metavar="OFFSET", help="Begin at this offset; -1 is the beginning."),
    ] = None,
    server: ServerOptions,
) -> None:
    """Print the last part of a stream; with --follow, then new data as it arrives.

    If the connection is lost, it reconnects and continues where it was.

    [bold]Examples[/bold]

      ursula tail demo/hello
      ursula tail demo/orders --records 3
      ursula tail -f demo/orders | jq .order
      ursula tail -f demo/hello --offset -1
    """
    if sum(given is not None for given in (size, records, offset)) > 1:
        raise typer.BadParameter("give only one of --bytes, --records and --offset")
    with session(server, stream) as client:
        target = stream_of(client, stream)
        info = target.head()
        if offset is None:
            offset = _print_last(target, info, size, records)
        elif not follow:
            for chunk in target.read_all(offset):
                _print_chunk(chunk)
        if follow:
            for message in target.tail(offset, decode=False):
                emit_value(message.value)


def _print_last(target: "Stream", info: "StreamInfo", size: int | None, records: int | None) -> str:
    """Print the last part of a stream; return the offset after it."""
    from ursula.client.results import is_json

    if is_json(info.content_type):
        if size is not None:
            raise typer.BadParameter("for a JSON stream, use --records instead of --bytes")
        chunk = target.last_lines(LAST_RECORDS if records is None else records)
        emit(chunk.data)
        offset = chunk.next_offset
    else:
        if records is not None:
            raise typer.BadParameter("only a JSON stream has records: use --bytes")
        start = int(info.next_offset) - (LAST_BYTES if size is None else size)
        offset = str(max(start, int(info.earliest_offset or 0))).zfill(OFFSET_DIGITS)
    for rest in target.read_all(offset):
        _print_chunk(rest)
        offset = rest.next_offset
    return offset


def _print_chunk(chunk: "Chunk") -> None:
    from ursula.client.formats.json_text import elements
    from ursula.client.results import is_json

    if not is_json(chunk.content_type):
        emit(chunk.data)
    elif texts := elements(chunk.data):
        emit(b"".join(map(_json_line, texts)))


def emit_value(value: bytes | str) -> None:
    """Print bytes unchanged, or the text of a JSON value as a line."""
    emit(_json_line(value) if isinstance(value, str) else value)


def _json_line(text: str) -> bytes:
    # Line breaks can only be between the tokens of a JSON text, where a space means the same.
    return text.replace("\r", " ").replace("\n", " ").encode() + b"\n"


def head(
    stream: StreamName,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    server: ServerOptions,
) -> None:
    """Show the properties of a stream: its type, its tail, whether it is closed.

    [bold]Examples[/bold]

      ursula head demo/hello
      ursula head demo/hello --json | jq -r .next_offset
    """
    with session(server, stream) as client:
        fields = dataclasses.asdict(stream_of(client, stream).head())
        if as_json:
            emit_json(fields)
            return
        for name, value in fields.items():
            if value is not None:
                shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
                emit_line(f"{name.replace('_', ' '):<16}{shown}")
