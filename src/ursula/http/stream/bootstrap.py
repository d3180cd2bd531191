"""Bootstrap: the snapshot and everything after it in one multipart response.

A small response is assembled in memory. A large one goes through a file, which is read at the client's pace:
bytes that are sent stay in memory until the client has read them.
"""

import asyncio
import secrets
import shutil
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import BinaryIO

from ...engine.interface import GroupApi
from ...engine.reads.deferred import Deferred
from ...model.limits import READ_BYTES_DEFAULT
from ...model.outcomes import Description, Page, Refused
from ...model.text.media_type import DEFAULT
from ..errors import Problem
from ..exchange import Exchange
from ..store_problems import fetch_deferred
from ..syntax.query import parse_query
from ..syntax.tokens import format_offset
from ..wire.headers import HeaderList
from .snapshot import open_snapshot, read_snapshot

IN_MEMORY_BYTES_MAX = READ_BYTES_DEFAULT
COPY_BYTES = 256 * 1024
COPY_MESSAGES = 4096


class StreamChangedDuringRead(Exception):
    """Data that was still to be read has been trimmed or replaced in the meantime."""


async def get_bootstrap(exchange: Exchange) -> None:
    """GET on bootstrap."""
    if "live" in parse_query(exchange.request.query_string):
        raise Problem("invalid_parameter", "bootstrap cannot be live: continue with a live read from its end")
    target, group = exchange.target, exchange.group
    found = await exchange.describe()
    group.note_read(target.bucket, target.stream)
    while True:
        try:
            await Bootstrap(exchange, group, found).send()
            return
        except StreamChangedDuringRead:
            found = exchange.expect(Description, exchange.described())


class Bootstrap:
    """One response, for a stream as it was described."""

    def __init__(self, exchange: Exchange, group: GroupApi, found: Description) -> None:
        self._exchange = exchange
        self._group = group
        self._found = found
        self._snapshot = found.snapshot
        self._start = found.snapshot.offset if found.snapshot is not None else found.earliest
        self._boundary = secrets.token_hex(16)

    async def send(self) -> None:
        """Assemble the response and send it."""
        snapshot_bytes = self._snapshot.size if self._snapshot is not None else 0
        size = snapshot_bytes + self._found.tail - self._start
        if size > IN_MEMORY_BYTES_MAX or not await self._send_from_memory(snapshot_bytes):
            await self._send_from_file()

    async def _send_from_memory(self, size: int) -> bool:
        """Respond, unless the part heads, which may be longer than the messages, make it too large."""
        parts = [self._head()]
        if self._snapshot is not None:
            parts.append(await read_snapshot(self._exchange.services.node.blobs, self._snapshot))
        async with aclosing(self._parts()) as pages:
            async for messages in pages:
                size += sum(map(len, messages))
                if size > IN_MEMORY_BYTES_MAX:
                    return False
                parts.extend(messages)
        parts.append(self._end())
        self._exchange.reply(200, self._headers(), b"".join(parts))
        return True

    async def _send_from_file(self) -> None:
        services = self._exchange.services
        blobs = services.node.blobs
        blob = await open_snapshot(blobs, self._snapshot) if self._snapshot is not None else None
        path = services.spools / f"bootstrap-{secrets.token_hex(8)}"
        try:
            with await asyncio.to_thread(_create, path) as file:
                await asyncio.to_thread(file.write, self._head())
                if blob is not None:
                    await asyncio.to_thread(_copy, blob.path, file)
                async for messages in self._parts():
                    await asyncio.to_thread(file.write, b"".join(messages))
                await asyncio.to_thread(file.write, self._end())
            self._exchange.reply_file(200, self._headers(), str(path), 0, path.stat().st_size)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Problem("unavailable", f"there is no room to assemble the response: {reason}") from error
        finally:
            _forget(path)  # an open file stays readable without its name

    async def _parts(self) -> AsyncGenerator[list[bytes], None]:
        """The messages after the snapshot as parts, a page at a time; other requests may write in between."""
        target, found = self._exchange.target, self._found
        head = self._part_head(found.content_type)
        offset = self._start
        while offset < found.tail:
            bytes_max = min(COPY_BYTES, found.tail - offset)
            page: Page | Refused | Deferred[Page] = self._group.read(
                target.bucket,
                target.stream,
                offset,
                bytes_max,
                whole=True,
                incarnation=found.incarnation,
            )
            if isinstance(page, Deferred):
                page = await fetch_deferred(page)
            if isinstance(page, Refused):
                raise StreamChangedDuringRead
            for first in range(0, len(page.chunks), COPY_MESSAGES):
                some = page.chunks[first : first + COPY_MESSAGES]
                yield [piece for message in some for piece in (head, message)]
            offset = page.next_offset

    def _headers(self) -> HeaderList:
        exchange, found = self._exchange, self._found
        offset = "none" if self._snapshot is None else format_offset(self._snapshot.offset)
        headers = [
            ("content-type", f"multipart/mixed; boundary={self._boundary}"),
            ("cache-control", "no-store"),
            ("stream-next-offset", format_offset(found.tail)),
            ("stream-snapshot-offset", offset),
            ("stream-incarnation", exchange.incarnation(found.incarnation)),
        ]
        if exchange.doubt is None:
            headers.append(("stream-up-to-date", "true"))
            if found.closed:
                headers.append(("stream-closed", "true"))
        return headers

    def _head(self) -> bytes:
        content_type = DEFAULT if self._snapshot is None else self._snapshot.content_type
        return self._part_head(content_type)[2:]

    def _part_head(self, content_type: str) -> bytes:
        return f"\r\n--{self._boundary}\r\nContent-Type: {content_type}\r\n\r\n".encode()

    def _end(self) -> bytes:
        return f"\r\n--{self._boundary}--\r\n".encode()


def _copy(path: Path, into: BinaryIO) -> None:
    """Copy a snapshot that existed a moment ago."""
    try:
        with path.open("rb") as blob:
            shutil.copyfileobj(blob, into, COPY_BYTES)
    except FileNotFoundError as error:
        raise StreamChangedDuringRead from error  # it was replaced, and its blob is already deleted


def _create(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("xb")


def _forget(path: Path) -> None:
    with suppress(OSError):  # the next start of the server removes it
        path.unlink()
