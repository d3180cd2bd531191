"""A long stream of bytes that cannot be compressed, written once and read in several ways."""

import hashlib
import http.client
import random

from .client import append_in_order, read_whole
from .failure import Failed
from .servers import Server

NAME = "long"
STREAM_BYTES = 256 << 20
MESSAGE_BYTES = 64 << 10


class LongStream:
    """What is written, and a check that it is what comes back."""

    def __init__(self) -> None:
        draw = random.Random(1)
        messages = range(0, STREAM_BYTES, MESSAGE_BYTES)
        self.content = b"".join(draw.randbytes(MESSAGE_BYTES) for _ in messages)
        self._digest = hashlib.sha256(self.content).hexdigest()

    def write(self, server: Server) -> None:
        """Make the stream."""
        whole = memoryview(self.content)
        starts = range(0, STREAM_BYTES, MESSAGE_BYTES)
        append_in_order(server, NAME, (bytes(whole[at : at + MESSAGE_BYTES]) for at in starts))

    def expect(self, connection: http.client.HTTPConnection, server: Server) -> None:
        """Read all of it, not timed: what was written must come back, and lies in the page cache then."""
        whole = read_whole(connection, server.path(NAME), digest=True)
        if whole.digest != self._digest:
            raise Failed(f"the stream that was read is not the one that was written ({whole.bytes} bytes)")
