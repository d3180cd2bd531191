"""ursula undelete."""

import dataclasses
from typing import Annotated

import typer

from ..output import emit_json, emit_line
from .session import ServerOptions, StreamName, address_of, session

HINTS = {
    "stream_exists": "delete or fork the stream that has the name now, then try again",
    "stream_not_found": "it never existed, or the server no longer keeps it (cold.keep_replaced)",
}
"""Hints that differ from those of the other commands."""


def undelete(
    stream: StreamName,
    *,
    incarnation: Annotated[
        str | None,
        typer.Option(
            "--incarnation",
            "-i",
            metavar="TEXT",
            help="Which one, if several streams had the name. [dim]Default: the last[/dim]",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    server: ServerOptions,
) -> None:
    """Bring back a stream that was deleted or has expired, with all of its contents.

    This works for as long as the server keeps it (cold.keep_replaced), and
    while no other stream has its name.

    [bold]Examples[/bold]

      ursula undelete demo/hello
      ursula undelete demo/hello --incarnation 1-0-1099511627779-0
    """
    with session(server, stream, HINTS) as client:
        address = address_of(stream)
        found = client.undelete(address.bucket, address.stream, incarnation)
        if as_json:
            emit_json(dataclasses.asdict(found))
        else:
            emit_line(f"stream {address} is back, up to {found.tail_offset}")
