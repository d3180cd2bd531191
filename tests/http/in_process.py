"""The HTTP layer and a node in memory, in a thread of the test: for what no setting reaches yet."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop
from tests.http.raw import Place

from ursula.config import Address, LogKind, Settings
from ursula.engine.node import Node
from ursula.http.app import App, Before
from ursula.http.live.connections import LiveConnections
from ursula.http.server import listen, services_of
from ursula.http.wire.server import WireServer


@contextmanager
def serving(
    tmp_path: Path,
    before: Before | None = None,
    tls: ssl.SSLContext | None = None,
    *,
    unread_bytes: int = Settings().limits.unread_bytes,
    send_buffer_bytes: int | None = None,
) -> Iterator[Place]:
    """A server until the block ends. `send_buffer_bytes`: how much the system takes for a client to read."""
    listener = listen(Address("127.0.0.1", 0))
    if send_buffer_bytes is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    loop = uvloop.new_event_loop()
    stopping = asyncio.Event()
    ready = threading.Event()

    async def serve() -> None:
        settings = Settings()
        node = Node(LogKind.MEMORY, None, settings.limits.log_segment_bytes)
        wire = WireServer(listener, 100, unread_bytes, settings.http.keep_alive)
        services = services_of(settings, node, wire, "nowhere.test", LiveConnections())
        app = App(services, before)
        tasks = [
            asyncio.create_task(node.run()),
            asyncio.create_task(wire.serve(app.handle, services.cors.lines(None), tls)),
        ]
        while not node.recovered:
            await asyncio.sleep(0.01)
        ready.set()
        await stopping.wait()
        tasks[1].cancel()
        await wire.stop(1)
        await node.stop()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(30)
        yield Place(*listener.getsockname()[:2])
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(30)
        assert not thread.is_alive()
        loop.close()
