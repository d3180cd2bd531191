"""ursula close."""

from ..output import emit_line
from .session import ServerOptions, StreamName, session, stream_of


def close(stream: StreamName, *, server: ServerOptions) -> None:
    """Close a stream: it can still be read, but nothing more can be appended.

    [bold]Examples[/bold]

      ursula close demo/hello
    """
    with session(server, stream) as client:
        target = stream_of(client, stream)
        target.close()
        emit_line(f"closed stream {target.address}")
