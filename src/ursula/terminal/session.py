"""A server for the time of a command: how it is named, and how its errors are told."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from .output import fail

if TYPE_CHECKING:
    from ursula.client import Client, Stream, StreamAddress, StreamError

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
    "bucket_not_found": "create it: ursula create {bucket}",
    "stream_not_found": "create it: ursula create {name}",
    "not_found": "create it: ursula create {name}",
    "bucket_not_empty": "delete them first; ursula ls {bucket} shows them",
    "stream_exists": "ursula head {name} shows how it is",
    "stream_closed": "it takes nothing more: append to another stream",
    "offset_trimmed": "read from the beginning (--offset -1), or ursula snapshot read",
    "invalid_offset": "an offset is -1, now, or what the server gave",
    "invalid_json": "each append is a JSON value; for one value per line use --lines",
    "body_too_large": "append it in parts, or line by line with --lines",
    "http_401": "say who you are with --auth or STREAM_AUTH",
    "http_403": "say who you are with --auth or STREAM_AUTH",
}
"""What to do about an error; `{name}` and `{bucket}` stand for what the command was about."""
NAMELESS_HINTS = {"not_found": "this is no Ursula server, or an older one: name another with --url"}
"""What to do where a command is about no stream or bucket."""
UNKNOWN_HINT = "it may have been done or not: look before you try again"
_WITHOUT_BODY = {"not_found", "gone"}
"""Codes that the client makes up for an answer to HEAD, which has no body to say more."""


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
            try:
                yield client
            except StreamError as error:
                told = _explained(client, name, error)
                known = {**HINTS, **({} if name else NAMELESS_HINTS), **(hints or {})}
                fail(_told(told, server, name, _filled(known.get(told.code, ""), name, url)))
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


def typed(name: str, url: str) -> str:
    """A name as another command for the same server would be given it."""
    from ursula.client.address import split_url

    is_complete = split_url(name)[0] is not None or url == os.environ.get("STREAM_URL", DEFAULT_URL)
    return shlex.quote(name) if is_complete else f"{shlex.quote(name)} --url {shlex.quote(url)}"


def _filled(hint: str, name: str, url: str) -> str:
    """A hint with the real names in it."""
    from ursula.client.address import split_url

    server, local = split_url(name)
    bucket = local.strip("/").partition("/")[0]
    whole = bucket if server is None else f"{server}/{bucket}"
    return hint.replace("{bucket}", typed(whole, url)).replace("{name}", typed(name, url))


def _explained(client: "Client", name: str, error: "StreamError") -> "StreamError":
    """Why a HEAD failed: a GET of the same stream says it."""
    from ursula.client import StreamError

    if error.code not in _WITHOUT_BODY or not name or bucket_of(name) is not None:
        return error
    try:
        stream_of(client, name).read("now")
    except StreamError as explained:
        return explained
    return error


def _told(error: "StreamError", server: str, name: str, hint: str) -> str:
    if error.code == "unreachable":
        return f"{error.message} ({server}): start one with ursula serve, or name another with --url"
    hint = hint or (UNKNOWN_HINT if error.maybe_written else "")
    text = f"{error.message} ({error.code})" + (f": {hint}" if hint else "")
    subject = name or server
    is_named = subject in (error.message if error.code in _WITHOUT_BODY else text)
    return text if is_named else f"{subject}: {text}"
