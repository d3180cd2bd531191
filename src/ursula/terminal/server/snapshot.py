"""ursula snapshot."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ..option_groups import with_option_groups
from ..output import emit, emit_line, fail
from .session import ServerOptions, StreamName, session, stream_of, typed

app = typer.Typer(help="Publish and read snapshots of a stream.", no_args_is_help=True)


@app.callback()
def snapshot() -> None:
    """Publish and read snapshots: summaries of a stream up to an offset, which can replace older data."""


@app.command()
@with_option_groups
def publish(
    stream: StreamName,
    *,
    offset: Annotated[
        str,
        typer.Option(
            "--offset",
            "-o",
            metavar="OFFSET",
            help="The snapshot covers everything before this offset.",
            show_default=False,
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            readable=True,
            help="The snapshot. [dim]Default: standard input[/dim]",
            show_default=False,
        ),
    ] = None,
    content_type: Annotated[
        str, typer.Option("--content-type", "-t", metavar="TYPE", help="The type of the snapshot.")
    ] = "application/octet-stream",
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data before the offset readable.")] = False,
    server: ServerOptions,
) -> None:
    """Publish a snapshot, and trim the data before it.

    [bold]Examples[/bold]

      ursula snapshot publish demo/hello --offset 00000000000000000042 --file state.json
      ./summarize | ursula snapshot publish demo/hello --offset 00000000000000000042 --keep
    """
    with session(server, stream) as client, _as_file(file) as path:
        target = stream_of(client, stream)
        published = target.publish_snapshot(offset, path, content_type=content_type, trim=not keep)
        emit_line(f"{published.offset} {published.digest}")


@contextmanager
def _as_file(file: Path | None) -> Iterator[Path]:
    if file is not None:
        yield file
        return
    # A request may have to be repeated, and a pipe can be read only once.
    with tempfile.NamedTemporaryFile(prefix="ursula-snapshot-") as spooled:
        shutil.copyfileobj(sys.stdin.buffer, spooled)
        spooled.flush()
        yield Path(spooled.name)


@app.command("read")
@with_option_groups
def read_snapshot(
    stream: StreamName,
    *,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="OFFSET",
            help="The offset of the snapshot. [dim]Default: the newest[/dim]",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help="Where to save it. [dim]Default: standard output[/dim]"
        ),
    ] = None,
    server: ServerOptions,
) -> None:
    """Print the newest snapshot of a stream, or save it to a file.

    [bold]Examples[/bold]

      ursula snapshot read demo/hello > state.json
      ursula snapshot read demo/hello --output state.json
    """
    with session(server, stream) as client:
        target = stream_of(client, stream)
        if output is not None:
            found = target.save_snapshot(output, offset)
        else:
            found = target.latest_snapshot() if offset is None else target.read_snapshot(offset)
        if found is None:
            fail(f"{stream} has no snapshot: make one with ursula snapshot publish {typed(stream, server)}")
        emit(found.data)
