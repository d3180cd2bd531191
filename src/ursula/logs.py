"""Formats log lines: text for a person at a terminal, JSON lines for everything else.

Code logs through the standard library, with values next to the message rather than inside it:
`logger.info("listening", extra=fields(address=address))`.
"""

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TextIO

from ursula.printable import printable, printable_json
from ursula.times import format_time

COLOURS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "1;31"}


def fields(**values: object) -> dict[str, object]:
    """Values that accompany a message, for the `extra` of a logging call."""
    return {"fields": values}


def configure(level: str, format: str, stream: TextIO | None = None) -> None:
    """Send all logging of this process to `stream`, by default standard error."""
    target = sys.stderr if stream is None else stream
    terminal = target.isatty()
    handler = logging.StreamHandler(target)
    if format == "text" or (format == "auto" and terminal):
        handler.setFormatter(TextLine(coloured=terminal and "NO_COLOR" not in os.environ))
    else:
        handler.setFormatter(JsonLine())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())


class JsonLine(logging.Formatter):
    """One JSON object per record; a field cannot replace time, level, logger or message."""

    def format(self, record: logging.LogRecord) -> str:
        head = {
            "time": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        tail = _fields_of(record)
        if trace := _trace(self, record):
            tail["exception"] = trace
        try:
            return json.dumps({**head, **tail, **head}, default=str, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return json.dumps({**head, **{name: str(value) for name, value in tail.items()}, **head})


class TextLine(logging.Formatter):
    """Time, level, message and name=value pairs, then the exception on lines of its own."""

    def __init__(self, coloured: bool) -> None:
        super().__init__()
        self.coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        values = [
            f"{self._paint(name, '2')}={_one_word(value)}" for name, value in _fields_of(record).items()
        ]
        shown_level = self._paint(f"{level:<7}", COLOURS.get(level, "0"))
        line = " ".join([self._paint(time, "2"), shown_level, printable(record.getMessage()), *values])
        trace = _trace(self, record)
        return f"{line}\n{trace}" if trace else line

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self.coloured else text


def _instant(record: logging.LogRecord) -> str:
    return format_time(round(record.created * 1_000_000), "milliseconds")


def _fields_of(record: logging.LogRecord) -> dict[str, object]:
    found = getattr(record, "fields", None)
    return {str(name): value for name, value in found.items()} if isinstance(found, Mapping) else {}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    exception = formatter.formatException(record.exc_info) if record.exc_info else ""
    return "\n".join(part for part in (exception, record.stack_info) if part)


def _one_word(value: object) -> str:
    """A value as one word, which cannot be mistaken for the next one and does not break the line."""
    text = str(value)
    return text if re.fullmatch(r"[!#-<>-~]+", text) else printable_json(json.dumps(text, ensure_ascii=False))
