"""ursula close and delete."""

from typing import Annotated

import typer

from .output import emit_line
from .session import DEFAULT_URL, Auth, StreamName, Url, bucket_of, session, stream_of


def close(stream: StreamName, *, url: Url = DEFAULT_URL, auth: Auth = None) -> None:
    """Close a stream: it can be read, and nothing can be appended any more.

    [bold]Examples[/bold]

      ursula close demo/hello
    """
    with session(url, auth, stream) as client:
        target = stream_of(client, stream)
        target.close()
        emit_line(f"closed stream {target.address}")


def delete(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A stream as bucket/stream, or an empty bucket.", show_default=False
        ),
    ],
    *,
    url: Url = DEFAULT_URL,
    auth: Auth = None,
) -> None:
    """Delete a stream and all it holds, or an empty bucket.

    [bold]Examples[/bold]

      ursula delete demo/hello
      ursula delete demo
    """
    with session(url, auth, name) as client:
        bucket = bucket_of(name)
        if bucket is not None:
            client.bucket(bucket).delete()
            emit_line(f"deleted bucket {bucket}")
        else:
            target = stream_of(client, name)
            target.delete()
            emit_line(f"deleted stream {target.address}")
