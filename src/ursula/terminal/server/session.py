"""A connection to a server while a command runs: its options, the names it can resolve, and its errors."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from ..output import INTERRUPTED, fail

if TYPE_CHECKING:
    from ursula.client import Client, Stream, StreamAddress, StreamError

DEFAULT_URL = "http://127.0.0.1:4437"
URL_VARIABLES = ["URSULA_URL", "STREAM_URL"]
AUTH_VARIABLES = ["URSULA_AUTH", "STREAM_AUTH"]
"""In the order in which they are tried. The second ones are those of the official Durable Streams CLI."""

PATIENCE_SECONDS = 3.0
"""People prefer an early error to a long wait."""


@dataclass(frozen=True)
class ServerOptions:
    """The server that a command talks to: an option group of every command that talks to one."""

    url: Annotated[
        str,
        typer.Option(
            "--url",
            "--endpoint",
            envvar=URL_VARIABLES,
            metavar="URL",
            help="The server.",
            rich_help_panel="Server",
        ),
    ] = DEFAULT_URL
    auth: Annotated[
        str | None,
        typer.Option(
            "--auth",
            envvar=AUTH_VARIABLES,
            metavar="TEXT",
            help="The Authorization header, as in 'Bearer abc'.",
            show_default=False,
            rich_help_panel="Server",
        ),
    ] = field(default=None, repr=False)


StreamName = Annotated[
    str,
    typer.Argument(
        metavar="STREAM", help="bucket/stream, /v1/stream/path, or a full URL.", show_default=False
    ),
]
BucketName = Annotated[
    str, typer.Argument(metavar="BUCKET", help="The name of a bucket.", show_default=False)
]

HINTS = {
    "bucket_not_found": "create it: ursula create {bucket}",
    "stream_not_found": "create it: ursula create {name}",
    "not_found": "create it: ursula create {name}",
    "bucket_not_empty": "delete them first; ursula ls {bucket} lists them",
    "stream_exists": "ursula head {name} shows what it is",
    "stream_closed": "nothing more can be appended: append to another stream",
    "offset_trimmed": "read from the beginning (--offset -1), or ursula snapshot read",
    "invalid_offset": "an offset is -1, now, or one that the server returned",
    "invalid_json": "each append is a JSON value; for one value per line use --lines",
    "body_too_large": "append it in parts, or line by line with --lines",
    "http_401": "authenticate with --auth or URSULA_AUTH",
    "http_403": "authenticate with --auth or URSULA_AUTH",
}
"""What to do about an error; `{name}` and `{bucket}` stand for the argument of the command."""
NAMELESS_HINTS = {"not_found": "this is not an Ursula server, or an older one: name another with --url"}
"""What to do about an error if the command has no stream or bucket as its argument."""
UNKNOWN_HINT = "it may or may not have been done: check before you try again"
_WITHOUT_BODY = {"not_found", "gone"}
"""Codes that the client derives from a response to HEAD, which has no body with a code."""


@contextmanager
def session(
    server: ServerOptions, name: str = "", hints: Mapping[str, str] | None = None
) -> Iterator["Client"]:
    """A client; the URL may be in the name. Errors end the command with one line and an exit code.

    `hints` replace the general ones where a command has better advice.
    """
    from ursula.client import Client, Patience, StreamError
    from ursula.client.address import split_url

    url = split_url(name)[0] or server.url
    if not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{url!r} is not a URL: it must begin with http:// or https://")
    try:
        with Client(url, auth=server.auth, patience=Patience(give_up_seconds=PATIENCE_SECONDS)) as client:
            try:
                yield client
            except StreamError as error:
                explained = _explained(client, name, error)
                known = {**HINTS, **({} if name else NAMELESS_HINTS), **(hints or {})}
                hint = _filled(known.get(explained.code, ""), name, server)
                fail(_message(explained, url, name, hint))
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Nothing more may be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
    except OSError as error:
        fail(f"{error.filename or 'standard output'}: {error.strerror}")
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def stream_of(client: "Client", name: str) -> "Stream":
    """The stream that an argument names."""
    return client.stream(address_of(name))


def address_of(name: str) -> "StreamAddress":
    """The bucket and the stream that an argument names."""
    from ursula.client import StreamAddress
    from ursula.client.address import split_url

    try:
        return StreamAddress.parse(split_url(name)[1])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def bucket_of(name: str) -> str | None:
    """The bucket that an argument names; None if it names a stream."""
    from ursula.client.address import split_url

    local = split_url(name)[1].strip("/")
    return None if "/" in local else local


def typed(name: str, server: ServerOptions) -> str:
    """A name as a user would type it in another command for the same server."""
    from ursula.client.address import split_url

    default = next(filter(None, map(os.environ.get, URL_VARIABLES)), DEFAULT_URL)
    is_complete = split_url(name)[0] is not None or server.url == default
    return shlex.quote(name) if is_complete else f"{shlex.quote(name)} --url {shlex.quote(server.url)}"


def _filled(hint: str, name: str, server: ServerOptions) -> str:
    """A hint with the real names in it."""
    from ursula.client.address import split_url

    url, local = split_url(name)
    bucket = local.strip("/").partition("/")[0]
    whole = bucket if url is None else f"{url}/{bucket}"
    return hint.replace("{bucket}", typed(whole, server)).replace("{name}", typed(name, server))


def _explained(client: "Client", name: str, error: "StreamError") -> "StreamError":
    """The reason why a HEAD failed, which a GET of the same stream returns."""
    from ursula.client import StreamError

    if error.code not in _WITHOUT_BODY or not name or bucket_of(name) is not None:
        return error
    try:
        stream_of(client, name).read("now")
    except StreamError as explained:
        return explained
    return error


def _message(error: "StreamError", url: str, name: str, hint: str) -> str:
    if error.code == "unreachable":
        return f"{error.message} ({url}): start one with ursula serve, or name another with --url"
    hint = hint or (UNKNOWN_HINT if error.maybe_written else "")
    text = f"{error.message} ({error.code})" + (f": {hint}" if hint else "")
    subject = name or url
    is_named = subject in (error.message if error.code in _WITHOUT_BODY else text)
    return text if is_named else f"{subject}: {text}"
