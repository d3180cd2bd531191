"""The ceiling: our embedded server with its event loop and scheduler, and an app that stores nothing.

It reads the body and answers 204 with the headers of an append. What an append costs above this is ours.
"""

import asyncio
import gc
import signal
import sys

from ursula.config import Address
from ursula.http.cors import Cors
from ursula.http.loop import CoalescingLoop
from ursula.http.rsgi import HeaderList, Watcher
from ursula.http.server import _listen, _Server

CONNECTIONS = 16_384

_ANSWER: HeaderList = [
    *Cors(("*",)).headers(None),
    ("stream-next-offset", "00000000000000000256"),
    ("etag", '"1-0-1099511627777-0:256:256"'),
    ("stream-incarnation", "1-0-1099511627777-0"),
]


def handle(watcher: Watcher) -> None:
    """Read the body and answer."""
    proto = watcher.proto
    proto().add_done_callback(lambda _: proto.response_empty(204, _ANSWER))


async def serve(port: int) -> None:
    """Serve until SIGTERM."""
    server = _Server(handle, _listen(Address("127.0.0.1", port)), CONNECTIONS)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
    gc.freeze()
    gc.disable()
    await server.serve()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=CoalescingLoop) as runner:
        runner.run(serve(int(sys.argv[1])))
