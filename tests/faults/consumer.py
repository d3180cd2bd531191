"""A consumer of a feed, as a process of its own that can be killed. Standard library only: it starts fast.

    python consumer.py HOST PORT BUCKET KIND FILE

What it has taken is in its file: lines of the feed, and after each stretch of them a line with "=" and
the position to go on from. A stretch without that line was never taken. It ends when the server is gone.
"""

import http.client
import os
import random
import sys
import time
from collections.abc import Iterator

KINDS = ("catch-up", "long-poll", "sse")
MARK = b"="
MAX_BYTES = (1, 500, 20_000, 1_000_000)
PAUSE_SECONDS = (0, 0, 0, 0.004)
"""Slow enough to be killed with something read and not yet taken."""

Stretch = tuple[bytes, str]


class Gone(Exception):
    """The server is gone."""


def restore(path: str) -> tuple[int, str]:
    """Open the file, drop what was not taken whole, and say where to go on."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    data = b"\n" + os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    end, position, at = 0, "-1", len(data)
    while (at := data.rfind(b"\n" + MARK, 0, at)) >= 0:
        line, newline, _ = data[at + 1 :].partition(b"\n")
        if newline:
            end, position = at + len(line) + 1, line[1:].decode()
            break
    os.ftruncate(descriptor, end)
    os.lseek(descriptor, end, os.SEEK_SET)
    return descriptor, position


def take(descriptor: int, lines: bytes, position: str) -> None:
    """Keep a stretch."""
    time.sleep(random.choice(PAUSE_SECONDS))
    block = lines + MARK + position.encode() + b"\n"
    while block:
        block = block[os.write(descriptor, block) :]


def polled(connection: http.client.HTTPConnection, path: str, live: bool, position: str) -> Iterator[Stretch]:
    """Stretches that are asked for one by one."""
    while True:
        query = f"offset={position}&max_bytes={random.choice(MAX_BYTES)}"
        if live:
            query += "&live=long-poll&timeout=1"
        connection.request("GET", f"{path}?{query}")
        response = connection.getresponse()
        body = response.read()
        if response.status == 503:
            time.sleep(0.02)
            continue
        if response.status not in (200, 204):
            raise ValueError(f"{query}: {response.status} {body!r}")
        position = response.headers["stream-next-offset"]
        yield body, position
        if not live and response.headers["stream-up-to-date"] == "true":
            time.sleep(0.01)


def followed(connection: http.client.HTTPConnection, path: str, start: str) -> Iterator[Stretch]:
    """Stretches that come as events."""
    position = start
    while True:
        headers = {"last-event-id": position} if position != "-1" else {}
        connection.request("GET", f"{path}?offset=-1&live=sse", headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            body = response.read()
            if response.status != 503:
                raise ValueError(f"{position}: {response.status} {body!r}")
            time.sleep(0.02)
            continue
        for lines, position in events(response):
            yield lines, position


def events(response: http.client.HTTPResponse) -> Iterator[Stretch]:
    """The data of each control event's predecessor, with the event's id."""
    kept = b""
    name, data, identity = b"", b"", b""
    while line := response.readline():
        if not line.endswith(b"\n"):
            raise Gone
        field, _, value = line.rstrip(b"\n").partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value
        elif field == b"data":
            data += value + b"\n"
        elif field == b"id":
            identity = value
        elif line == b"\n" and name:
            if name == b"control":
                yield kept, identity.decode()
                kept = b""
            else:
                kept += data
            name, data, identity = b"", b"", b""


def main(host: str, port: str, bucket: str, kind: str, path: str) -> None:
    """Consume until the server is gone."""
    descriptor, position = restore(path)
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    feed = f"/{bucket}"
    if kind == "sse":
        stretches = followed(connection, feed, position)
    else:
        stretches = polled(connection, feed, kind == "long-poll", position)
    try:
        for lines, position in stretches:
            take(descriptor, lines, position)
    except (OSError, http.client.HTTPException, Gone):
        return


if __name__ == "__main__":
    main(*sys.argv[1:])
