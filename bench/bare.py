"""The ceiling: Granian embedded, with an app that reads the body, answers like an append, and stores nothing.

`python -m bench.bare PORT` is an RSGI app as Granian's users write them. With `--our-loop` the same is done
on our event loop and by callbacks, as our server does it: what an append costs above that is its own work.
"""

import asyncio
import gc
import signal
import sys

import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server

from ursula.config import Address
from ursula.http.cors import Cors
from ursula.http.loop import CoalescingLoop
from ursula.http.rsgi import Future, HeaderList, Protocol_, Scope, Watcher
from ursula.http.server import _listen, _Server

CONNECTIONS = 16_384

_ANSWER: HeaderList = [
    *Cors(("*",)).headers(None),
    ("stream-next-offset", "00000000000000000256"),
    ("etag", '"1-0-1099511627777-0:256:256"'),
    ("stream-incarnation", "1-0-1099511627777-0"),
]


async def app(scope: Scope, proto: Protocol_) -> None:
    """Read the body and answer."""
    await proto()
    proto.response_empty(204, _ANSWER)


def handle(watcher: Watcher, body: Future | None) -> None:
    """The same, by callbacks; the body is there already, but for what creates the streams."""
    watcher.proto.response_empty(204, _ANSWER)


async def serve(port: int, our_loop: bool) -> None:
    """Serve until SIGTERM."""
    if our_loop:
        server: Server = _Server(handle, _listen(Address("127.0.0.1", port)), CONNECTIONS)
    else:
        server = Server(
            app,
            port=port,
            interface=Interfaces.RSGI,
            http=HTTPModes.http1,
            websockets=False,
            backlog=4096,
            backpressure=CONNECTIONS,
            log_enabled=False,
        )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
    gc.freeze()
    gc.disable()
    await server.serve()


if __name__ == "__main__":
    port, our_loop = int(sys.argv[1]), sys.argv[2:] == ["--our-loop"]
    with asyncio.Runner(loop_factory=CoalescingLoop if our_loop else uvloop.new_event_loop) as runner:
        runner.run(serve(port, our_loop))
