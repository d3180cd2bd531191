"""ursula feed."""

from typing import Annotated

import typer

from .output import emit_json_text
from .session import DEFAULT_URL, Auth, BucketName, Url, bucket_of, session


def feed(
    bucket: BucketName,
    *,
    offset: Annotated[
        str,
        typer.Option(
            "--offset", "-o", metavar="POSITION", help="Begin after it; -1 is the beginning, now the end."
        ),
    ] = "-1",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    url: Url = DEFAULT_URL,
    auth: Auth = None,
) -> None:
    """Print everything that happened in a bucket, a JSON object on each line.

    To go on later, use the position of the last line as --offset.

    [bold]Examples[/bold]

      ursula feed demo
      ursula feed demo --offset now --follow | jq -c '[.stream, .kind, .value]'
    """
    name = bucket_of(bucket)
    if name is None:
        raise typer.BadParameter(f"{bucket!r} is not a bucket")
    with session(url, auth, bucket) as client:
        if follow:
            client.bucket(name).info()  # so that a wrong name or server is told at once
        for entry in client.bucket(name).feed(offset, live="sse" if follow else None):
            emit_json_text("".join(f"{row.text}\n" for row in entry.rows))
