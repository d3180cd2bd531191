"""Memory of SSE connections on which nothing happens."""

import asyncio
from collections.abc import Callable

from ..client import create_streams
from ..memory import settled
from ..results import Row
from ..rounds import Plan
from ..servers import OURS, Kind, Server, started

CONNECTIONS = 10_000
STREAMS = 100
CONNECTING_MAX = 200


def measure(plan: Plan) -> list[Row]:
    """Resident memory above that of the idle server, for each connection."""
    row = Row("idle-sse", f"idle SSE connections: {CONNECTIONS:,} on {STREAMS} streams")
    each = row.figure("memory per connection", "KB")
    empty = row.figure("idle server", "MB")

    def once(kind: Kind) -> None:
        with started(kind) as server:
            create_streams(server, STREAMS)
            before = settled(server.process)
            asyncio.run(_hold(server, lambda: each.add(kind.name, _above(server, before))))
            empty.add(kind.name, before / 1e6)

    plan.at_most(3).interleave(row, (OURS,), once)
    row.value_at_most(each, 8)
    return [row]


def _above(server: Server, before: int) -> float:
    return (settled(server.process) - before) / CONNECTIONS / 1e3


async def _hold(server: Server, look: Callable[[], None]) -> None:
    """Have all connections open while something is measured."""
    limit = asyncio.Semaphore(CONNECTING_MAX)

    async def connect(number: int) -> asyncio.StreamWriter:
        path = f"{server.path(f's{number % STREAMS}')}?offset=now&live=sse"
        async with limit:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            return writer

    writers = await asyncio.gather(*(connect(number) for number in range(CONNECTIONS)))
    await asyncio.to_thread(look)
    for writer in writers:
        writer.close()
