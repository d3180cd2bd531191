"""Tombstones: streams that were deleted or have expired, kept as they were so that they can be undeleted.

Each takes as much memory as a parked stream. `Collect` removes them, oldest first. One name may have a great
many, and all of them share one state row, so each is kept encoded as its part of that row.
"""

from collections.abc import Iterator

import msgspec
from sortedcontainers import SortedDict

from .ordered import TimeIndex, iterate_while_changing
from .stream.row import encode_stream, read_row
from .stream.stream import Stream

Name = tuple[str, str]
"""Bucket and stream."""


class DeletedStream:
    """A deleted stream: its name, when it ended (microseconds), and its row.

    `kept` is a msgpack array of incarnation, time and row. `source` is the incarnation it was forked from,
    `blob` the blob of its snapshot. `stream` is the stream itself while some of its messages are in memory.
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
    def of_stream(cls, bucket: str, stream: Stream, at: int) -> "DeletedStream":
        """The tombstone of a stream that ends."""
        source = None if stream.parent is None else stream.parent.incarnation
        blob = None if stream.snapshot is None else stream.snapshot.blob
        return cls(
            name=(bucket, stream.name),
            incarnation=stream.incarnation,
            at=at,
            row=encode_stream(stream),
            source=source,
            blob=blob,
            stream=stream,
        )

    @classmethod
    def of_row(cls, name: Name, incarnation: str, at: int, row: bytes) -> "DeletedStream":
        """A tombstone as it was stored."""
        fields = read_row(row)
        source = None if fields.parent is None else fields.parent[1]
        blob = None if fields.snapshot is None else fields.snapshot[1]
        return cls(name, incarnation, at, row, source=source, blob=blob)

    @property
    def row(self) -> bytes:
        """The row of the stream as it was."""
        return _decode(self.kept)[2]

    def drop_stored(self, position: int, count_max: int | None) -> int:
        """Drop messages up to a cut, at most `count_max` of them; return how many."""
        if self.stream is None:
            return 0
        before = len(self.stream.messages.payloads)
        self.stream.drop_stored(position, count_max)
        left = len(self.stream.messages.payloads)
        if not left:
            self.stream = None
        return before - left


class DeletedStreams:
    """All tombstones. `by_name` has those of each name in encoded form, oldest first."""

    def __init__(self) -> None:
        self.by_name: SortedDict[Name, list[bytes]] = SortedDict()
        self.incarnations: dict[str, DeletedStream] = {}
        self.by_time = TimeIndex()
        self.sources: dict[str, int] = {}  # incarnations that have deleted forks, and how many
        self._hot: dict[Name, dict[str, DeletedStream]] = {}  # tombstones with messages in memory

    def names(self) -> Iterator[Name]:
        """The names that have tombstones. Tombstones may come and go during the iteration."""
        return iterate_while_changing(self.by_name)

    def add(self, tombstone: DeletedStream) -> None:
        """Add the tombstone of a stream that has ended."""
        self.by_name.setdefault(tombstone.name, []).append(tombstone.kept)
        self.incarnations[tombstone.incarnation] = tombstone
        self.by_time.add(tombstone.at, tombstone.incarnation)
        if tombstone.source is not None:
            self.sources[tombstone.source] = self.sources.get(tombstone.source, 0) + 1
        if tombstone.stream is not None:
            self._hot.setdefault(tombstone.name, {})[tombstone.incarnation] = tombstone

    def find(self, bucket: str, name: str, incarnation: str | None) -> DeletedStream | None:
        """The latest tombstone of a name, or the one with this incarnation."""
        kept = self.by_name.get((bucket, name))
        if kept is None:
            return None
        tombstone = self.incarnations.get(_decode(kept[-1])[0] if incarnation is None else incarnation)
        return tombstone if tombstone is not None and tombstone.name == (bucket, name) else None

    def remove(self, tombstone: DeletedStream) -> None:
        """Remove the tombstone of a stream that was undeleted."""
        self.by_time.remove(tombstone.at, tombstone.incarnation)
        self._forget(tombstone)
        kept = self.by_name[tombstone.name]
        kept.remove(tombstone.kept)
        if not kept:
            del self.by_name[tombstone.name]

    def before(self, horizon: int) -> list[DeletedStream]:
        """The tombstones of streams that ended before a time, oldest first."""
        return [self.incarnations[incarnation] for incarnation in self.by_time.before(horizon)]

    def remove_first(self, deleted: list[DeletedStream]) -> None:
        """Remove tombstones that `before` returned; they are the first of each name."""
        self.by_time.remove_first(len(deleted))
        counts: dict[Name, int] = {}
        for tombstone in deleted:
            self._forget(tombstone)
            counts[tombstone.name] = counts.get(tombstone.name, 0) + 1
        for name, count in counts.items():
            kept = self.by_name[name]
            del kept[:count]
            if not kept:
                del self.by_name[name]

    def _forget(self, tombstone: DeletedStream) -> None:
        del self.incarnations[tombstone.incarnation]
        if tombstone.source is not None:
            self.sources[tombstone.source] -= 1
            if not self.sources[tombstone.source]:
                del self.sources[tombstone.source]
        if tombstone.stream is not None:
            self._cool(tombstone)

    def _cool(self, tombstone: DeletedStream) -> None:
        hot = self._hot[tombstone.name]
        del hot[tombstone.incarnation]
        if not hot:
            del self._hot[tombstone.name]

    def drop_stored(self, bucket: str, name: str, position: int, count_max: int | None = None) -> bool:
        """Drop messages up to a cut, about `count_max` of them; return whether none is left."""
        left = count_max
        for tombstone in list(self._hot.get((bucket, name), {}).values()):
            count = tombstone.drop_stored(position, left)
            if tombstone.stream is None:
                self._cool(tombstone)
            if left is not None:
                left -= count
                if left <= 0:
                    return False
        return True

    def row(self, bucket: str, name: str) -> bytes | None:
        """The row of a name: a msgpack array with (incarnation, time, row) of each of its tombstones."""
        kept = self.by_name.get((bucket, name))
        return None if kept is None else _encode(list(map(msgspec.Raw, kept)))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, int, bytes]).decode
decode_deleted = msgspec.msgpack.Decoder(list[tuple[str, int, bytes]]).decode
"""The reverse of `DeletedStreams.row`: incarnation, time and row of each tombstone of a name."""
