"""ursula create."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..output import emit_line, say
from .attributes import warn_of_ignored
from .session import ServerOptions, address_of, bucket_of, session, stream_of, typed

if TYPE_CHECKING:
    from ursula.client import Client, Created


def create(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A bucket, or bucket/stream, /v1/stream/path, or a full URL.",
            show_default=False,
        ),
    ],
    *,
    content_type: Annotated[
        str | None,
        typer.Option(
            "--content-type",
            "-t",
            metavar="TYPE",
            help="The type of the contents. With application/json, each value is a message. "
            "[dim]Default: application/octet-stream[/dim]",
            show_default=False,
        ),
    ] = None,
    ttl: Annotated[
        int | None,
        typer.Option(metavar="SECONDS", min=0, help="Expire it once it has not been used for this long."),
    ] = None,
    expires_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Expire it at this time, such as 2030-01-01T00:00:00Z."),
    ] = None,
    attrs: Annotated[
        str | None,
        typer.Option(metavar="JSON", help='Attributes, such as \'{"title": "Orders"}\'.'),
    ] = None,
    closed: Annotated[bool, typer.Option("--closed", help="Create it closed.")] = False,
    fork_of: Annotated[
        str | None,
        typer.Option(metavar="STREAM", help="Share the contents of another stream of the bucket."),
    ] = None,
    fork_offset: Annotated[
        str | None,
        typer.Option(metavar="OFFSET", help="Share them up to this offset. [dim]Default: the tail[/dim]"),
    ] = None,
    server: ServerOptions,
) -> None:
    """Create a bucket, or a stream and its bucket.

    A bucket or stream that already exists with these properties stays as it is.

    [bold]Examples[/bold]

      ursula create demo
      ursula create demo/orders --content-type application/json
      ursula create demo/session-1 --ttl 3600
      ursula create demo/copy --fork-of demo/orders
    """
    attributes = _attributes(attrs)
    hints = (
        {} if fork_of is None else {"stream_not_found": f"create it: ursula create {typed(fork_of, server)}"}
    )
    with session(server, name, hints) as client:
        bucket = bucket_of(name)
        if bucket is not None:
            is_new = client.bucket(bucket).create()
            emit_line(f"created bucket {bucket}" if is_new else f"bucket {bucket} exists")
            return
        created = _create_stream(
            client,
            name,
            content_type=content_type,
            ttl_seconds=ttl,
            expires_at=expires_at,
            attributes=attributes,
            closed=closed,
            forked_from=None if fork_of is None else address_of(fork_of).path,
            fork_offset=fork_offset,
        )
        warn_of_ignored(created.ignored_attributes)
        address = address_of(name)
        emit_line(f"created stream {address}" if created.is_new else f"stream {address} exists")


def _create_stream(client: "Client", name: str, **options: Any) -> "Created":
    from ursula.client import NotFound

    stream = stream_of(client, name)
    try:
        return stream.create(**options)
    except NotFound as missing:
        if missing.code != "bucket_not_found":
            raise
    bucket = address_of(name).bucket
    if client.bucket(bucket).create():
        say(f"created bucket {bucket}")
    return stream.create(**options)


def _attributes(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"--attrs is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise typer.BadParameter("--attrs is not a JSON object")
    return found
