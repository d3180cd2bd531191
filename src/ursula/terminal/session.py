"""A server for the time of a command: how it is named, and how its errors are told."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from ursula.client import Client, Stream, StreamError

INTERRUPTED = 130
PATIENCE_SECONDS = 3.0
"""A person would rather be told soon."""

Url = Annotated[
    str,
    typer.Option("--url", envvar="STREAM_URL", metavar="URL", help="The server.", rich_help_panel="Server"),
]
Auth = Annotated[
    str | None,
    typer.Option(
        "--auth",
        envvar="STREAM_AUTH",
        metavar="TEXT",
        help="The Authorization header, as in 'Bearer abc'.",
        show_default=False,
        rich_help_panel="Server",
    ),
]
StreamName = Annotated[
    str,
    typer.Argument(
        metavar="STREAM", help="bucket/stream, /v1/stream/path, or a full URL.", show_default=False
    ),
]
BucketName = Annotated[
    str, typer.Argument(metavar="BUCKET", help="The name of a bucket.", show_default=False)
]
DEFAULT_URL = "http://127.0.0.1:4437"

HINTS = {
    "bucket_not_found": "create it: ursula create BUCKET",
    "stream_not_found": "create it: ursula create BUCKET/STREAM",
    "not_found": "create it: ursula create BUCKET/STREAM",
    "bucket_not_empty": "delete its streams first; ursula ls BUCKET shows them",
    "stream_exists": "ursula head BUCKET/STREAM shows how it is",
    "stream_closed": "it takes nothing more: append to another stream",
    "offset_trimmed": "read from the beginning (--offset -1), or ursula snapshot read",
    "invalid_offset": "an offset is -1, now, or what the server gave",
    "invalid_json": "each append is a JSON value; for one value per line use --lines",
    "body_too_large": "append it in parts, or line by line with --lines",
    "http_401": "say who you are with --auth or STREAM_AUTH",
    "http_403": "say who you are with --auth or STREAM_AUTH",
}
UNKNOWN_HINT = "it may have been done or not: look before you try again"


@contextmanager
def session(
    url: str, auth: str | None, name: str = "", hints: Mapping[str, str] | None = None
) -> Iterator["Client"]:
    """A client; the URL may be in the name. Errors end the command with one line and an exit code.

    `hints` say what to do about an error where this command knows better.
    """
    from ursula.client import Client, Patience, StreamError
    from ursula.client.address import split_url

    server = split_url(name)[0] or url
    if not server.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{server!r} is not a URL: it begins with http:// or https://")
    try:
        with Client(server, auth=auth, patience=Patience(give_up_seconds=PATIENCE_SECONDS)) as client:
            yield client
    except StreamError as error:
        fail(_told(error, server, {**HINTS, **(hints or {})}))
    except BrokenPipeError:
        # Whoever read our output has seen enough. Nothing more may be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
    except OSError as error:
        fail(f"{error.filename or 'standard output'}: {error.strerror}")
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def stream_of(client: "Client", name: str) -> "Stream":
    """The stream that an argument names."""
    from ursula.client import StreamAddress
    from ursula.client.address import split_url

    try:
        return client.stream(StreamAddress.parse(split_url(name)[1]))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def bucket_of(name: str) -> str | None:
    """The bucket that an argument names; None if it names a stream."""
    from ursula.client.address import split_url

    local = split_url(name)[1].strip("/")
    return None if "/" in local else local


def fail(message: str) -> NoReturn:
    """Say on one line what is wrong, and end with exit code 1."""
    say(" ".join(message.splitlines()))
    raise typer.Exit(1)


def say(message: str) -> None:
    """Tell the person something; programs that read our output do not see it."""
    print(f"ursula: {message}", file=sys.stderr)


def emit(data: bytes) -> None:
    """Write to standard output, at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def emit_line(text: str) -> None:
    """Write a line to standard output, at once."""
    emit(text.encode() + b"\n")


def _told(error: "StreamError", server: str, hints: Mapping[str, str]) -> str:
    if error.code == "unreachable":
        return f"{error.message} ({server}): start one with ursula serve, or name another with --url"
    hint = hints.get(error.code) or (UNKNOWN_HINT if error.maybe_written else None)
    return f"{error.message} ({error.code})" + (f": {hint}" if hint else "")
