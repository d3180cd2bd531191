"""ursula delete."""

from typing import Annotated

import typer

from ..output import emit_line
from .session import ServerOptions, bucket_of, session, stream_of


def delete(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A stream as bucket/stream, or an empty bucket.", show_default=False
        ),
    ],
    *,
    server: ServerOptions,
) -> None:
    """Delete a stream and everything in it, or an empty bucket.

    [bold]Examples[/bold]

      ursula delete demo/hello
      ursula delete demo
    """
    with session(server, name) as client:
        bucket = bucket_of(name)
        if bucket is not None:
            client.bucket(bucket).delete()
            emit_line(f"deleted bucket {bucket}")
        else:
            target = stream_of(client, name)
            target.delete()
            emit_line(f"deleted stream {target.address}")
