"""A proxy that gives each request to the next node, so that clients of one address use all nodes.

It passes on bytes as they are, and reads them only to learn where a response ends. The next request of that
connection then goes to the next node. What it cannot read as HTTP, or comes before a response has ended, goes
to the same node as before.
"""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle

import h11

PIECE_BYTES = 1 << 16

ports_behind: dict[str, Sequence[int]] = {}
"""The nodes behind the addresses of all proxies of this process, for those who must ask each of them."""


@contextmanager
def spread_over(ports: Sequence[int]) -> Iterator[str]:
    """The address of the proxy, until the block ends."""
    loop = asyncio.new_event_loop()
    ready: list[asyncio.Server] = []
    began = threading.Event()
    turns = cycle(ports)
    serving: set[asyncio.Task[None] | None] = (
        set()
    )  # asyncio itself lets go of one whose client sends no more

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the next node that runs."""
        for _ in ports[1:]:
            with suppress(ConnectionError):
                return await asyncio.open_connection("127.0.0.1", next(turns))
        return await asyncio.open_connection("127.0.0.1", next(turns))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange: _Exchange | None = None
        task = asyncio.current_task()
        serving.add(task)
        try:
            while piece := await reader.read(PIECE_BYTES):
                if exchange is None or exchange.is_over:
                    if exchange is not None:
                        exchange.abandon()
                    exchange = _Exchange(*await connect(), writer)
                await exchange.send(piece)
            if exchange is not None:
                await exchange.finish()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            if exchange is not None:
                exchange.abandon()
            writer.close()
            serving.discard(task)

    async def begin() -> None:
        ready.append(await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1000))
        began.set()

    def run() -> None:
        loop.run_until_complete(begin())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    began.wait()
    url = f"http://127.0.0.1:{ready[0].sockets[0].getsockname()[1]}"
    ports_behind[url] = ports
    try:
        yield url
    finally:
        del ports_behind[url]
        asyncio.run_coroutine_threadsafe(_end(ready[0]), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Exchange:
    """What goes between a client and one node: usually a request and its response."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        self._writer = writer
        self._requests: h11.Connection | None = h11.Connection(h11.SERVER)
        self._responses: h11.Connection | None = None
        self._copying = asyncio.create_task(self._copy_back(reader, client))

    @property
    def is_over(self) -> bool:
        """Whether there was one request, and its response has ended without closing the connection."""
        requests, responses = self._requests, self._responses
        return (
            requests is not None
            and responses is not None
            and requests.their_state is responses.their_state is h11.DONE
            and requests.trailing_data == responses.trailing_data == (b"", False)
        )

    async def send(self, piece: bytes) -> None:
        """Pass on what the client sent."""
        try:
            if self._requests is not None:
                self._read_request(self._requests, piece)
        except h11.ProtocolError:
            self._requests = None
        self._writer.write(piece)
        await self._writer.drain()

    async def finish(self) -> None:
        """Pass on that the client sends no more, and then the rest of the response."""
        self._writer.write_eof()
        await self._copying

    def abandon(self) -> None:
        """Hang up on the node."""
        self._copying.cancel()
        self._writer.close()

    def _read_request(self, requests: h11.Connection, piece: bytes) -> None:
        requests.receive_data(piece)
        while (event := requests.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                self._responses = h11.Connection(h11.CLIENT)
                self._responses.send(h11.Request(method=event.method, target="/", headers=[("Host", "any")]))
            elif isinstance(event, h11.EndOfMessage):
                return

    async def _copy_back(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(PIECE_BYTES):
                self._read_response(piece)
                client.write(piece)
                await client.drain()
            client.write_eof()
        except OSError:
            client.transport.abort()

    def _read_response(self, piece: bytes) -> None:
        responses = self._responses
        if responses is None or responses.their_state is h11.DONE:
            self._requests = None  # an answer that nobody asked for
            return
        try:
            responses.receive_data(piece)
            while (event := responses.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.EndOfMessage):
                    return
        except h11.ProtocolError:
            self._requests = None


async def _end(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
