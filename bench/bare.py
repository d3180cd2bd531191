"""The ceiling: our HTTP layer with a handler that answers like an append and stores nothing.

`python -m bench.bare PORT`. What an append costs above this is its own work.
"""

import asyncio
import contextlib
import gc
import signal
import sys

import uvloop

from ursula.config import Address
from ursula.http.server import listen
from ursula.http.syntax.cors import CorsPolicy
from ursula.http.wire.headers import HeaderList
from ursula.http.wire.request import Request
from ursula.http.wire.server import WireServer

CONNECTIONS = 16_384
UNREAD_BYTES = 256 << 20
KEEP_ALIVE_SECONDS = 75.0

_COMMON = CorsPolicy(("*",)).lines(None)
_ANSWER: HeaderList = [
    ("stream-next-offset", "00000000000000000256"),
    ("etag", '"1-0-1099511627777-0:256:256"'),
    ("stream-incarnation", "1-0-1099511627777-0"),
]


def handle(request: Request) -> None:
    """Answer; the body is there already."""
    request.send(204, _COMMON, _ANSWER, None)


async def serve(port: int) -> None:
    """Serve until SIGTERM."""
    wire = WireServer(listen(Address("127.0.0.1", port)), CONNECTIONS, UNREAD_BYTES, KEEP_ALIVE_SECONDS)
    serving = asyncio.create_task(wire.serve(handle, _COMMON))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    gc.freeze()
    gc.disable()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
