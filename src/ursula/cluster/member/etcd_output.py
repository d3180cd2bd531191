"""Turns the JSON lines that etcd writes to standard error into log lines of ours.

etcd warns of much that is harmless, such as a new connection, so its warnings become information here. It
repeats some of them many times a second, so each message is logged at most once a minute. The last lines are
kept, since they say why an etcd has ended.
"""

import logging
import re
import time
from collections import deque

import msgspec

LINES_KEPT = 12
LINE_CHARACTERS_MAX = 600
QUIET_SECONDS = 60.0
MESSAGES_REMEMBERED = 256

_LEVELS = {"warn": logging.INFO}
_USUAL = frozenset(("exceeded recommended request limit", "simple token is not cryptographically signed"))
"""Warnings at every start, caused by flags that are set on purpose."""

logger = logging.getLogger("ursula.etcd")


class EtcdOutput:
    """Takes the output of one process in pieces."""

    def __init__(self) -> None:
        self._rest = b""
        self._last: deque[str] = deque(maxlen=LINES_KEPT)
        self._logged_at: dict[str, float] = {}

    def feed(self, piece: bytes) -> None:
        """Take some output, which may end within a line."""
        *lines, rest = (self._rest + piece).split(b"\n")
        self._rest = rest[-LINE_CHARACTERS_MAX * 16 :]  # a line without an end must not grow forever
        for line in lines:
            if line.strip():
                self._take(line.decode(errors="replace"))

    def last_lines(self) -> str:
        """The last lines of the process, to be shown to a person."""
        return "\n".join([*self._last, *filter(None, [self._rest.decode(errors="replace")])])

    def _take(self, line: str) -> None:
        level, message, values = _parse(line)
        text = message + "".join(f" {name}={value}" for name, value in values.items())
        self._last.append(text[:LINE_CHARACTERS_MAX])
        if self._is_news(message):
            logger.log(level, "etcd: %s", text[:LINE_CHARACTERS_MAX])

    def _is_news(self, message: str) -> bool:
        now = time.monotonic()
        kind = re.sub(r"\d+", "0", message)
        if message in _USUAL or now - self._logged_at.get(kind, -QUIET_SECONDS) < QUIET_SECONDS:
            return False
        if len(self._logged_at) >= MESSAGES_REMEMBERED:
            self._logged_at.clear()
        self._logged_at[kind] = now
        return True


def _parse(line: str) -> tuple[int, str, dict[str, object]]:
    """The level, the message and the values of a line; what is not JSON may be a panic."""
    try:
        values = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.DecodeError:
        return logging.INFO if line.startswith("WARNING:") else logging.ERROR, line, {}
    level = _LEVELS.get(str(values.pop("level", "")), logging.ERROR)
    message = str(values.pop("msg", ""))
    for name in ("ts", "caller", "stacktrace"):
        values.pop(name, None)
    return level, message, values
