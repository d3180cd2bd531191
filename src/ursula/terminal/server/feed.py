"""ursula feed."""

from typing import Annotated

import typer

from ..output import emit_json_text
from .session import BucketName, ServerOptions, bucket_of, session


def feed(
    bucket: BucketName,
    *,
    offset: Annotated[
        str,
        typer.Option(
            "--offset",
            "-o",
            metavar="POSITION",
            help="Begin after this position; -1 is the beginning, now is the end.",
        ),
    ] = "-1",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Then print new events as they arrive.")
    ] = False,
    server: ServerOptions,
) -> None:
    """Print everything that happened in a bucket, as one JSON object per line.

    To continue later, use the position of the last line as --offset.

    [bold]Examples[/bold]

      ursula feed demo
      ursula feed demo --offset now --follow | jq -c '[.stream, .kind, .value]'
    """
    name = bucket_of(bucket)
    if name is None:
        raise typer.BadParameter(f"{bucket!r} is not a bucket")
    with session(server, bucket) as client:
        if follow:
            client.bucket(name).info()  # so that a wrong name or server is reported immediately
        for entry in client.bucket(name).feed(offset, live="sse" if follow else None):
            emit_json_text("".join(f"{row.text}\n" for row in entry.rows))
