"""ursula ls."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from ..output import emit_json, emit_line
from .session import ServerOptions, bucket_of, session

if TYPE_CHECKING:
    from ursula.client import BucketInfo, ListedStream


def list_names(
    bucket: Annotated[
        str | None,
        typer.Argument(
            metavar="BUCKET",
            help="The bucket whose streams to list; without it, all buckets are listed.",
            show_default=False,
        ),
    ] = None,
    *,
    prefix: Annotated[
        str,
        typer.Option(metavar="TEXT", help="Only streams whose names begin with this.", show_default=False),
    ] = "",
    long: Annotated[
        bool, typer.Option("--long", "-l", help="Also print status, tail offset and type.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
    server: ServerOptions,
) -> None:
    """List the streams of a bucket, or all buckets, one per line.

    [bold]Examples[/bold]

      ursula ls
      ursula ls demo --prefix session-
      ursula ls demo --json | jq -r 'select(.status == "open") | .stream_id'
    """
    with session(server, bucket or "") as client:
        if bucket is None:
            for found in client.buckets():
                _print_bucket(found, long, as_json)
            return
        name = bucket_of(bucket)
        if name is None:
            raise typer.BadParameter(f"{bucket!r} is not a bucket; use --prefix to select streams in one")
        for stream in client.bucket(name).streams(prefix=prefix):
            _print_stream(stream, long, as_json)


def _print_bucket(bucket: "BucketInfo", long: bool, as_json: bool) -> None:
    if as_json:
        emit_json(dataclasses.asdict(bucket), indent=None)
    elif long:
        emit_line(bucket.bucket_id, str(bucket.streams))
    else:
        emit_line(bucket.bucket_id)


def _print_stream(stream: "ListedStream", long: bool, as_json: bool) -> None:
    if as_json:
        emit_json(dataclasses.asdict(stream), indent=None)
    elif long:
        emit_line(stream.stream_id, stream.status, stream.tail_offset, stream.content_type)
    else:
        emit_line(stream.stream_id)
