"""Bodies of any size that are written to a file as they arrive: snapshots, and rows of bulk writes."""

import asyncio

from ...cold.blobs import BlobWriter
from ..exchange import Exchange
from .read import BodyLimit

WRITE_BYTES = 1024 * 1024
"""How much of a body is buffered before it is written to the file."""


async def receive(exchange: Exchange, limit: BodyLimit) -> BlobWriter:
    """Receive the body into a file that has no name yet."""
    services = exchange.services
    writer = await asyncio.to_thread(services.node.blobs.create)
    try:
        gathered: list[bytes] = []
        size = 0
        async for part in services.bodies.parts(exchange, limit, services.bodies.timeout_seconds):
            gathered.append(part)
            size += len(part)
            if size >= WRITE_BYTES:
                await asyncio.to_thread(writer.write, b"".join(gathered))
                gathered, size = [], 0
        await asyncio.to_thread(writer.write, b"".join(gathered))
    except BaseException:
        await asyncio.to_thread(writer.discard)
        raise
    return writer
