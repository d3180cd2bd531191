"""Streams that were deleted or have expired, as they were: for as long as they can be brought back.

Each takes as much memory as an idle stream. `Collect` ends them, the oldest first. One name may have had very
many, and all of them are one row of the state: so each is kept as its part of that row.
"""

from collections.abc import Iterator

import msgspec
from sortedcontainers import SortedDict

from .stream.row import encode_stream, read_row
from .stream.stream import Stream
from .time_index import ByTime
from .walking import walk

Name = tuple[str, str]
"""Bucket and stream."""


class Grave:
    """One stream that has ended: which, when (microseconds), what it was, and its messages in memory.

    `kept` is a msgpack array of incarnation, time and row; `source` the incarnation that it is a fork of,
    `blob` that of its snapshot; `stream` itself is there for as long as some of its messages are.
    """

    __slots__ = ("at", "blob", "incarnation", "kept", "name", "source", "stream")

    def __init__(
        self,
        name: Name,
        incarnation: str,
        at: int,
        row: bytes,
        source: str | None = None,
        blob: str | None = None,
        stream: Stream | None = None,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.at = at
        self.kept = _encode((incarnation, at, row))
        self.source = source
        self.blob = blob
        self.stream = stream if stream is not None and stream.messages.payloads else None

    @classmethod
    def of_stream(cls, bucket: str, stream: Stream, at: int) -> "Grave":
        """One of a stream that ends."""
        source = None if stream.parent is None else stream.parent.incarnation
        blob = None if stream.snapshot is None else stream.snapshot.blob
        name = bucket, stream.name
        return cls(name, stream.incarnation, at, encode_stream(stream), source, blob, stream)

    @classmethod
    def of_row(cls, name: Name, incarnation: str, at: int, row: bytes) -> "Grave":
        """One that was stored."""
        fields = read_row(row)
        source = None if fields.parent is None else fields.parent[1]
        blob = None if fields.snapshot is None else fields.snapshot[1]
        return cls(name, incarnation, at, row, source, blob)

    @property
    def row(self) -> bytes:
        """The row of the stream as it was."""
        return _decode(self.kept)[2]

    def drop_stored(self, position: int, count_max: int | None) -> int:
        """Let go of messages up to a cut, so many at once; returns of how many."""
        if self.stream is None:
            return 0
        before = len(self.stream.messages.payloads)
        self.stream.drop_stored(position, count_max)
        left = len(self.stream.messages.payloads)
        if not left:
            self.stream = None
        return before - left


class Graves:
    """Ended streams. `by_name` has what is kept of each, the latest last, which is also in order of time."""

    def __init__(self) -> None:
        self.by_name: SortedDict[Name, list[bytes]] = SortedDict()
        self.incarnations: dict[str, Grave] = {}
        self.by_time = ByTime()
        self.sources: dict[str, int] = {}  # incarnations that some of them are forks of, and how many are
        self._hot: dict[Name, dict[str, Grave]] = {}  # those with messages in memory

    def names(self) -> Iterator[Name]:
        """Buckets and streams that something is kept of; others may come and go meanwhile."""
        return walk(self.by_name)

    def add(self, grave: Grave) -> None:
        """A stream has ended."""
        self.by_name.setdefault(grave.name, []).append(grave.kept)
        self.incarnations[grave.incarnation] = grave
        self.by_time.add(grave.at, grave.incarnation)
        if grave.source is not None:
            self.sources[grave.source] = self.sources.get(grave.source, 0) + 1
        if grave.stream is not None:
            self._hot.setdefault(grave.name, {})[grave.incarnation] = grave

    def find(self, bucket: str, name: str, incarnation: str | None) -> Grave | None:
        """The latest that had this name, or the one with this incarnation."""
        kept = self.by_name.get((bucket, name))
        if kept is None:
            return None
        grave = self.incarnations.get(_decode(kept[-1])[0] if incarnation is None else incarnation)
        return grave if grave is not None and grave.name == (bucket, name) else None

    def remove(self, grave: Grave) -> None:
        """It is back."""
        self.by_time.remove(grave.at, grave.incarnation)
        self._forget(grave)
        kept = self.by_name[grave.name]
        kept.remove(grave.kept)
        if not kept:
            del self.by_name[grave.name]

    def before(self, horizon: int) -> list[Grave]:
        """All that ended before a time, the oldest first."""
        return [self.incarnations[incarnation] for incarnation in self.by_time.before(horizon)]

    def remove_first(self, graves: list[Grave]) -> None:
        """Those that ended before a time are gone for good; of each name they are the first."""
        self.by_time.remove_first(len(graves))
        counts: dict[Name, int] = {}
        for grave in graves:
            self._forget(grave)
            counts[grave.name] = counts.get(grave.name, 0) + 1
        for name, count in counts.items():
            kept = self.by_name[name]
            del kept[:count]
            if not kept:
                del self.by_name[name]

    def _forget(self, grave: Grave) -> None:
        del self.incarnations[grave.incarnation]
        if grave.source is not None:
            self.sources[grave.source] -= 1
            if not self.sources[grave.source]:
                del self.sources[grave.source]
        if grave.stream is not None:
            self._cool(grave)

    def _cool(self, grave: Grave) -> None:
        hot = self._hot[grave.name]
        del hot[grave.incarnation]
        if not hot:
            del self._hot[grave.name]

    def drop_stored(self, bucket: str, name: str, position: int, count_max: int | None = None) -> bool:
        """Let go of messages up to a cut, of about so many at once; whether all are gone."""
        left = count_max
        for grave in list(self._hot.get((bucket, name), {}).values()):
            count = grave.drop_stored(position, left)
            if grave.stream is None:
                self._cool(grave)
            if left is not None:
                left -= count
                if left <= 0:
                    return False
        return True

    def row(self, bucket: str, name: str) -> bytes | None:
        """What is kept of a name, as bytes: a msgpack array of (incarnation, time, row)."""
        kept = self.by_name.get((bucket, name))
        return None if kept is None else b"".join((_array_head(len(kept)), *kept))


def _array_head(count: int) -> bytes:
    """How a msgpack array of so many begins."""
    if count < 1 << 4:
        return bytes((0x90 | count,))
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, int, bytes]).decode
decode_graves = msgspec.msgpack.Decoder(list[tuple[str, int, bytes]]).decode
"""The reverse of `row`: what each grave of a name is made of."""
