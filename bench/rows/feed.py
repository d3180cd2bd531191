"""Reading a bucket's feed from its beginning to its end."""

import base64
import http.client
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from ..client import OCTETS, Request, read_speed, read_whole, send_all
from ..failure import Failed
from ..results import Row
from ..rounds import Plan
from ..servers import OURS, Kind, Server, started

STREAMS = 100
MESSAGES = 20_000
MESSAGE_BYTES = 1024
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class _Content:
    """Messages of one content type, in a bucket of its own."""

    name: str
    bucket: str
    headers: dict[str, str]
    field: str
    """Where a row of the feed has the message."""
    message: Callable[[int], bytes]
    value: Callable[[bytes], Any]
    """A message as a row of the feed has it."""


def _binary(number: int) -> bytes:
    return random.Random(number).randbytes(MESSAGE_BYTES)


def _json(number: int) -> bytes:
    head = b'{"number":%d,"text":"' % number
    return head + b"x" * (MESSAGE_BYTES - len(head) - 2) + b'"}'


def _base64(message: bytes) -> str:
    return base64.b64encode(message).decode()


CONTENTS = (
    _Content("binary", "feed-binary", OCTETS, "value_base64", _binary, _base64),
    _Content("JSON", "feed-json", JSON, "value", _json, msgspec.json.decode),
)


def measure(plan: Plan) -> list[Row]:
    """Megabytes per second of one reader, counted as they are sent."""
    row = Row("feed", f"catch-up of a bucket's feed of {MESSAGES:,} messages of 1 KiB by one client")
    row.note(
        f"{STREAMS} streams; MB of responses; an untimed first read checks that each message is there once"
    )
    speeds = [row.figure(f"read, {content.name}", "MB/s") for content in CONTENTS]
    cpus = [row.figure(f"server CPU per MB, {content.name}", "ms") for content in CONTENTS]
    sizes = [row.figure(f"responses, {content.name}", "MB", drawn=False) for content in CONTENTS]

    def once(kind: Kind) -> None:
        with started(kind) as server:
            for content, speed, cpu, size in zip(CONTENTS, speeds, cpus, sizes, strict=True):
                messages = _prepare(server, content)
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
                size.add(kind.name, _expect(connection, content, messages) / 1e6)
                before = server.process.cpu_seconds()
                done = read_speed(connection, f"/{content.bucket}", plan.seconds)
                used = server.process.cpu_seconds() - before
                speed.add(kind.name, done.megabytes_per_second)
                cpu.add(kind.name, used * 1e3 / done.megabytes)
                connection.close()

    plan.interleave(row, (OURS,), once)
    for speed in speeds:
        row.value_at_least(speed, 20)
    return [row]


def _prepare(server: Server, content: _Content) -> list[bytes]:
    """Streams in turn get messages."""
    paths = [server.path(f"{content.bucket}/s{number}") for number in range(STREAMS)]
    send_all(server, (Request("PUT", path, b"", content.headers) for path in paths))
    messages = [content.message(number) for number in range(MESSAGES)]
    requests = (
        Request("POST", paths[number % STREAMS], message, content.headers)
        for number, message in enumerate(messages)
    )
    send_all(server, requests)
    return messages


def _expect(connection: http.client.HTTPConnection, content: _Content, messages: list[bytes]) -> int:
    """Every message must be there once; the size of what was read."""
    answers: list[bytes] = []
    whole = read_whole(connection, f"/{content.bucket}", keep=answers)
    rows = msgspec.json.Decoder().decode_lines(b"".join(answers))
    found = [row[content.field] for row in rows if row["kind"] == "append"]
    wanted = [content.value(message) for message in messages]
    if _sorted(found) != _sorted(wanted):
        raise Failed(f"the feed has {len(found)} messages of {len(wanted)}, or others")
    return whole.bytes


def _sorted(values: list[Any]) -> list[bytes]:
    """In an order that does not depend on who came first."""
    return sorted(map(msgspec.json.encode, values))
