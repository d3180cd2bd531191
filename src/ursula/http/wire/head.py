"""The heads of requests, and a cache of those that clients send again and again.

A client that appends to a stream, or polls it, sends the same head each time, byte for byte, and llhttp
parses it the same way each time. So a head that was parsed before is looked up instead. A client of many
streams sends the same header lines below many request lines. So those lines are looked up on their own too,
and a request line of plain characters is parsed here.

Only plain heads are kept: HTTP/1.1, keep-alive, a body of known and small length or none, nothing to
negotiate. A head, or a block of header lines, must be seen twice before it is kept, so that those that differ
each time (say, in a producer's sequence number) neither fill the cache nor evict others from it.
"""

import re
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

from .headers import RequestHeaders

KNOWN_MAX = 4096
KNOWN_HEAD_BYTES_MAX = 1024
SEEN_ONCE_MAX = 8192

T = TypeVar("T")

_REQUEST_LINE = re.compile(rb"(GET|HEAD|PUT|POST|DELETE) (/[A-Za-z0-9._~/?&=%:@!$'()*+,;-]*) HTTP/1\.1")
"""Request lines in which llhttp gives no character a special meaning."""

_NEVER_KEPT = frozenset(("transfer-encoding", "expect", "upgrade", "connection", "proxy-connection"))


class Head:
    """The parsed head of a request."""

    __slots__ = (
        "body_length",
        "expects_continue",
        "headers",
        "is_http_1_0",
        "keep_alive",
        "memo",
        "method",
        "path",
        "query_string",
    )

    def __init__(
        self, method: str, target: str, headers: RequestHeaders, is_http_1_0: bool, keep_alive: bool
    ) -> None:
        self.method = method
        path, _, self.query_string = target.partition("?")
        self.path = unquote(path) if "%" in path else path
        self.headers = headers
        self.is_http_1_0 = is_http_1_0
        self.keep_alive = keep_alive and not is_http_1_0
        self.body_length: int | None = 0
        self.expects_continue = False
        self.memo: Any = None
        """Whatever the handler of requests has derived from the head alone."""
        length = headers.first("content-length")
        if length is not None:
            self.body_length = int(length)  # llhttp has checked it
        elif "transfer-encoding" in headers:
            self.body_length = None
        if "expect" in headers:
            expected = headers.first("expect") or ""
            self.expects_continue = not is_http_1_0 and expected.lower() == "100-continue"


class _SecondTimeCache(Generic[T]):
    """A bounded cache that keeps a value once it is noted for the second time."""

    def __init__(self) -> None:
        self.kept: dict[bytes, T] = {}
        self.seen_once: set[int] = set()

    def note(self, key: bytes, value: T) -> None:
        """Note a value."""
        mark = hash(key)
        if mark not in self.seen_once:
            if len(self.seen_once) >= SEEN_ONCE_MAX:
                self.seen_once.clear()
            self.seen_once.add(mark)
            return
        if len(self.kept) >= KNOWN_MAX:
            self.kept.clear()
        self.kept[key] = value


class KnownHeads:
    """Heads by their bytes."""

    def __init__(self, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        self._heads: _SecondTimeCache[Head] = _SecondTimeCache()
        self._blocks: _SecondTimeCache[RequestHeaders] = _SecondTimeCache()

    def find(self, raw: bytes) -> Head | None:
        """The head with these bytes, if it or its header lines are known."""
        head = self._heads.kept.get(raw)
        if head is not None:
            return head
        if len(raw) > KNOWN_HEAD_BYTES_MAX:
            return None
        line, _, block = raw.partition(b"\r\n")
        headers = self._blocks.kept.get(block)
        if headers is None:
            return None
        match = _REQUEST_LINE.fullmatch(line)
        if match is None:
            return None
        method, target = match.groups()
        head = Head(
            method.decode("ascii"), target.decode("ascii"), headers, is_http_1_0=False, keep_alive=True
        )
        self._heads.note(raw, head)
        return head

    def note(self, raw: bytes, head: Head) -> None:
        """Note a head that was parsed from these bytes, up to their first empty line.

        Empty lines may precede a request line and are not part of a head. Without a check of the first line
        they would be taken for one.
        """
        if len(raw) > KNOWN_HEAD_BYTES_MAX or not self._is_plain(head):
            return
        line, _, block = raw.partition(b"\r\n")
        if _REQUEST_LINE.fullmatch(line):
            self._heads.note(raw, head)
            self._blocks.note(block, head.headers)

    def _is_plain(self, head: Head) -> bool:
        length = head.body_length
        if head.is_http_1_0 or not head.keep_alive or length is None or length > self._body_bytes_max:
            return False
        return _NEVER_KEPT.isdisjoint(head.headers)
