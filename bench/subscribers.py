"""Subscribers of many streams, one each, and a writer that appends to one stream after the other."""

import asyncio
import time
from statistics import quantiles
from typing import NamedTuple

import uvloop

from .failure import Failed
from .servers import Server

WRITERS = 16
CONNECTING_MAX = 100
PATIENCE_SECONDS = 10.0
MARK = b"sent-"
MARK_DIGITS = 20


class Delivery(NamedTuple):
    """How long events took from the writer to their subscriber."""

    p50_ms: float
    p99_ms: float
    lost: int


class _Subscriber(asyncio.Protocol):
    """Reads events, and notes when each came."""

    def __init__(self, request: bytes, received: dict[int, float]) -> None:
        self._request = request
        self._received = received
        self._rest = b""
        self.ready = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if not self.ready.done():
            self.ready.set_result(data.startswith(b"HTTP/1.1 200"))
        data = self._rest + data
        at = data.find(MARK)
        while at >= 0 and len(data) >= at + len(MARK) + MARK_DIGITS:
            number = int(data[at + len(MARK) : at + len(MARK) + MARK_DIGITS])
            self._received.setdefault(number, now)
            at = data.find(MARK, at + len(MARK))
        self._rest = data[-len(MARK) - MARK_DIGITS :] if at < 0 else data[at:]

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_result(False)


def measure_subscribers(
    server: Server,
    prefix: str,
    streams: int,
    per_second: int,
    seconds: float,
    writes_to: Server | None = None,
) -> Delivery:
    """Follow every stream by SSE, append to them in turn, and see when each event arrives.

    The appends may go to another node of the same cluster.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(server, writes_to or server, prefix, streams, per_second, seconds))


async def _measure(
    server: Server, writes_to: Server, prefix: str, streams: int, per_second: int, seconds: float
) -> Delivery:
    loop = asyncio.get_running_loop()
    received: dict[int, float] = {}
    limit = asyncio.Semaphore(CONNECTING_MAX)

    async def subscribe(number: int) -> asyncio.BaseTransport:
        path = f"{server.path(f'{prefix}{number}')}?offset=now&live=sse"
        request = f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
        async with limit:
            transport, protocol = await loop.create_connection(
                lambda: _Subscriber(request, received), "127.0.0.1", server.port
            )
            if not await asyncio.wait_for(protocol.ready, 60):
                raise Failed(f"{server.kind.label} refused a subscriber")
            return transport

    transports = await asyncio.gather(*(subscribe(number) for number in range(streams)))
    sent: dict[int, float] = {}
    total = max(1, int(per_second * seconds))
    opening = (asyncio.open_connection("127.0.0.1", writes_to.port) for _ in range(WRITERS))
    writers = await asyncio.gather(*opening)
    begun = time.perf_counter()  # with all connections open: events that are late then come in one burst

    async def write(first: int) -> None:
        reader, writer = writers[first]
        for number in range(first, total, WRITERS):
            await asyncio.sleep(max(0.0, begun + number / per_second - time.perf_counter()))
            path = writes_to.path(f"{prefix}{number % streams}")
            body = MARK + f"{number:0{MARK_DIGITS}d}".encode()
            head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: text/plain\r\n"
            sent[number] = time.perf_counter()
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            await reader.readuntil(b"\r\n\r\n")
        writer.close()

    await asyncio.gather(*(write(first) for first in range(WRITERS)))
    give_up_at = time.perf_counter() + PATIENCE_SECONDS
    while len(received) < total and time.perf_counter() < give_up_at:
        await asyncio.sleep(0.01)
    for transport in transports:
        transport.close()
    latencies = sorted((received[number] - sent[number]) * 1e3 for number in received if number in sent)
    if len(latencies) < 2:
        raise Failed(f"{server.kind.label} delivered no events")
    cuts = quantiles(latencies, n=100)
    return Delivery(cuts[49], cuts[98], total - len(latencies))
