"""Length-prefixed framing: a 4-byte big-endian length, then that many bytes.

A convention for keeping many messages in one stream of bytes. The server knows nothing of it, so a read may
end inside a frame: a reader takes pieces as they arrive and returns complete payloads.
"""

import struct
from collections.abc import Iterable

_LENGTH = struct.Struct(">I")

PAYLOAD_BYTES_MAX = 2**32 - 1


def frame(payload: bytes) -> bytes:
    """A payload, prefixed with its length."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a frame may have at most {PAYLOAD_BYTES_MAX} bytes, not {len(payload)}")
    return _LENGTH.pack(len(payload)) + payload


def frames(payloads: Iterable[bytes]) -> bytes:
    """Several payloads, each prefixed with its length."""
    return b"".join(map(frame, payloads))


class FrameReader:
    """Takes pieces of framed bytes, cut anywhere, and returns the complete payloads."""

    def __init__(self, payload_bytes_max: int = PAYLOAD_BYTES_MAX) -> None:
        self._payload_bytes_max = payload_bytes_max
        self._pieces: list[bytes] = []
        self._held = 0
        self._wanted = _LENGTH.size

    @property
    def pending_bytes(self) -> int:
        """Bytes of an incomplete frame. If this is not 0 at the end, the last frame was cut off."""
        return self._held

    def feed(self, piece: bytes) -> list[bytes]:
        """The payloads that this piece completes."""
        self._pieces.append(piece)
        self._held += len(piece)
        # Pieces are joined only when a frame is complete, so that a large one is not copied again and again.
        if self._held < self._wanted:
            return []
        data = b"".join(self._pieces)
        payloads = []
        start = 0
        while len(data) - start >= (wanted := self._frame_bytes(data, start)):
            payloads.append(data[start + _LENGTH.size : start + wanted])
            start += wanted
        self._pieces = [data[start:]]
        self._held = len(data) - start
        self._wanted = wanted
        return payloads

    def _frame_bytes(self, data: bytes, start: int) -> int:
        if len(data) - start < _LENGTH.size:
            return _LENGTH.size
        (length,) = _LENGTH.unpack_from(data, start)
        if length > self._payload_bytes_max:
            raise ValueError(f"a frame of {length} bytes exceeds the limit of {self._payload_bytes_max}")
        return _LENGTH.size + int(length)
