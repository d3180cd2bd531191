"""The heads of requests, and a cache of those that clients send over and over.

A client that appends to a stream, or polls it, sends the same head each time, byte for byte. llhttp parses it
the same way each time: so a head that was parsed before is looked up instead. Only heads that are plain in
every respect are kept: HTTP/1.1, keep-alive, a body of known and small length or none, nothing to negotiate.
A head must come twice before it is kept, so that those that differ each time (a producer's sequence number)
neither fill the cache nor push others out of it.
"""

from typing import Any
from urllib.parse import unquote

from .headers import RequestHeaders

KNOWN_HEADS_MAX = 4096
KNOWN_HEAD_BYTES_MAX = 1024
SEEN_ONCE_MAX = 8192

_NEVER_KNOWN = frozenset(("transfer-encoding", "expect", "upgrade", "connection", "proxy-connection"))


class Head:
    """What the head of a request says."""

    __slots__ = (
        "body_length",
        "expects_continue",
        "headers",
        "is_old",
        "keep_alive",
        "memo",
        "method",
        "path",
        "query_string",
    )

    def __init__(
        self, method: str, target: str, headers: RequestHeaders, is_old: bool, keep_alive: bool
    ) -> None:
        self.method = method
        path, _, self.query_string = target.partition("?")
        self.path = unquote(path) if "%" in path else path
        self.headers = headers
        self.is_old = is_old
        self.keep_alive = keep_alive and not is_old
        self.body_length: int | None = 0
        self.expects_continue = False
        self.memo: Any = None
        """What the handler of requests has found out from the head alone."""
        length = headers.first("content-length")
        if length is not None:
            self.body_length = int(length)  # the parser has checked it
        elif "transfer-encoding" in headers:
            self.body_length = None
        if "expect" in headers:
            expected = headers.first("expect") or ""
            self.expects_continue = not is_old and expected.lower() == "100-continue"


class KnownHeads:
    """Heads by their bytes."""

    def __init__(self, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        self._heads: dict[bytes, Head] = {}
        self._seen_once: set[int] = set()
        self.get = self._heads.get

    def note(self, raw: bytes, head: Head) -> None:
        """A head was parsed that began at the beginning of a message, and ends with its bytes."""
        if len(raw) > KNOWN_HEAD_BYTES_MAX or not self._is_plain(head):
            return
        mark = hash(raw)
        if mark not in self._seen_once:
            if len(self._seen_once) >= SEEN_ONCE_MAX:
                self._seen_once.clear()
            self._seen_once.add(mark)
            return
        if len(self._heads) >= KNOWN_HEADS_MAX:
            self._heads.clear()
        self._heads[raw] = head

    def _is_plain(self, head: Head) -> bool:
        length = head.body_length
        if head.is_old or not head.keep_alive or length is None or length > self._body_bytes_max:
            return False
        return _NEVER_KNOWN.isdisjoint(head.headers)
