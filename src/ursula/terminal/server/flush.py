"""ursula flush."""

import dataclasses
from typing import Annotated

import typer

from ..output import emit_json, emit_line
from .session import ServerOptions, session


def flush(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    server: ServerOptions,
) -> None:
    """Have the server flush everything that is only in its memory and log to the store, and wait for it.

    The server flushes by itself from time to time. Flush now before you copy
    the store, or before you move the server.

    [bold]Examples[/bold]

      ursula flush
      ursula flush --json | jq .groups[0].position
    """
    with session(server) as client:
        groups = client.flush()
        if as_json:
            emit_json({"groups": [dataclasses.asdict(group) for group in groups]})
            return
        for group in groups:
            emit_line(f"group {group.group} is stored up to {group.position}")
