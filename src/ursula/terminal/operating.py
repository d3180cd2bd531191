"""ursula undelete and flush."""

import dataclasses
from typing import Annotated

import typer

from .output import emit_json, emit_line
from .session import DEFAULT_URL, Auth, StreamName, Url, address_of, session


def undelete(
    stream: StreamName,
    *,
    incarnation: Annotated[
        str | None,
        typer.Option(
            "--incarnation",
            "-i",
            metavar="TEXT",
            help="Which one, if several had that name. [dim]Default: the last[/dim]",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    url: Url = DEFAULT_URL,
    auth: Auth = None,
) -> None:
    """Bring back a stream that was deleted or has expired, as it was.

    That is possible as long as the server keeps it (cold.keep_replaced), and
    no other stream has its name.

    [bold]Examples[/bold]

      ursula undelete demo/hello
      ursula undelete demo/hello --incarnation 1-0-1099511627779-0
    """
    with session(url, auth, stream, HINTS) as client:
        address = address_of(stream)
        found = client.undelete(address.bucket, address.stream, incarnation)
        if as_json:
            emit_json(dataclasses.asdict(found))
        else:
            emit_line(f"stream {address} is back, up to {found.tail_offset}")


def flush(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    url: Url = DEFAULT_URL,
    auth: Auth = None,
) -> None:
    """Have the server store everything that is only in its memory and log, and wait until it is.

    It does so by itself from time to time; before a copy of the store is made,
    or the server is moved, it may be wanted now.

    [bold]Examples[/bold]

      ursula flush
      ursula flush --json | jq .groups[0].position
    """
    with session(url, auth) as client:
        groups = client.flush()
        if as_json:
            emit_json({"groups": [dataclasses.asdict(group) for group in groups]})
            return
        for group in groups:
            emit_line(f"group {group.group} is stored up to {group.position}")


HINTS = {
    "stream_exists": "delete or fork the stream that has the name now, then try again",
    "stream_not_found": "it never was, or the server no longer keeps it (cold.keep_replaced)",
}
"""What to do where that is not what it is for every other command."""
