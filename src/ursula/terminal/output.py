"""The output of commands: results to standard output, everything else to standard error.

Names, titles and error texts come from other users. Characters that could move the cursor, hide text or fake
a line are escaped, on a terminal and in a pipe alike; JSON stays exact, since it has escapes of its own. The
contents of streams are written unchanged.
"""

import json
import sys
from typing import Any, NoReturn

import typer

from ursula.printable import printable, printable_json

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def counted(count: int, thing: str) -> str:
    """`1 stream`, `2 streams`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def size_text(count: int) -> str:
    """A number of bytes in a human-readable unit."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def emit(data: bytes) -> None:
    """Write bytes to standard output unchanged, and flush."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def emit_line(*fields: str) -> None:
    """Write a line to standard output, and flush; tabs separate the fields."""
    emit("\t".join(map(printable, fields)).encode() + b"\n")


def emit_json(value: Any, indent: int | None = 2) -> None:
    """Write a value as JSON to standard output, and flush."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    emit(printable_json(text).encode(errors="backslashreplace") + b"\n")


def emit_json_text(text: str) -> None:
    """Write JSON that came from elsewhere: unchanged to a pipe, with equal values to a terminal."""
    shown = printable_json(text) if sys.stdout.isatty() else text
    emit(shown.encode(errors="surrogateescape"))


def say(message: str) -> None:
    """Print a message for a person; programs that read our output do not see it."""
    print(f"ursula: {printable(message)}", file=sys.stderr)


def fail(message: str) -> NoReturn:
    """Print one line that explains the problem, and exit with code 1."""
    say(" ".join(message.splitlines()))
    raise typer.Exit(1)
