"""A proxy that gives each new connection to the next node, so that clients of one address use all nodes."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle

PIECE_BYTES = 1 << 16


@contextmanager
def spread_over(ports: Sequence[int]) -> Iterator[str]:
    """The address of the proxy, until the block ends."""
    loop = asyncio.new_event_loop()
    ready: list[asyncio.Server] = []
    began = threading.Event()
    turns = cycle(ports)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", next(turns))
            await asyncio.gather(_copy(reader, other_writer), _copy(other_reader, writer))

    async def begin() -> None:
        ready.append(await asyncio.start_server(serve, "127.0.0.1", 0))
        began.set()

    def run() -> None:
        loop.run_until_complete(begin())
        loop.run_forever()

    thread = threading.Thread(target=run)
    thread.start()
    began.wait()
    try:
        yield f"http://127.0.0.1:{ready[0].sockets[0].getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(_end(ready[0]), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction. When it ends, so does the other: a client that hangs up must be noticed."""
    try:
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
