"""ursula attrs."""

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from ..option_groups import with_option_groups
from ..output import emit_json, say
from .session import ServerOptions, StreamName, session, stream_of

app = typer.Typer(help="Read and write the attributes of a stream.", no_args_is_help=True)


@app.callback()
def attributes() -> None:
    """Read and write the attributes of a stream: a title, and metadata of your own."""


@app.command("get")
@with_option_groups
def get_attributes(stream: StreamName, *, server: ServerOptions) -> None:
    """Print the attributes of a stream as JSON.

    [bold]Examples[/bold]

      ursula attrs get demo/hello
    """
    with session(server, stream) as client:
        found = stream_of(client, stream).attributes()
        emit_json(found)


@app.command("set")
@with_option_groups
def set_attributes(
    stream: StreamName,
    attributes: Annotated[
        str, typer.Argument(metavar="JSON", help="An object with title and metadata.", show_default=False)
    ],
    *,
    server: ServerOptions,
) -> None:
    """Replace all attributes of a stream.

    [bold]Examples[/bold]

      ursula attrs set demo/hello '{"title": "Hello", "metadata": {"owner": "ann"}}'
    """
    try:
        given = json.loads(attributes)
    except ValueError as error:
        raise typer.BadParameter(f"the attributes are not JSON: {error}") from None
    with session(server, stream) as client:
        warn_of_ignored(stream_of(client, stream).set_attributes(given))


def warn_of_ignored(names: Sequence[str]) -> None:
    """Name the attributes that the server did not store."""
    if names:
        say(f"warning: these attributes are not stored: {', '.join(names)}")


@app.command("clear")
@with_option_groups
def clear_attributes(stream: StreamName, *, server: ServerOptions) -> None:
    """Remove all attributes of a stream.

    [bold]Examples[/bold]

      ursula attrs clear demo/hello
    """
    with session(server, stream) as client:
        stream_of(client, stream).clear_attributes()
