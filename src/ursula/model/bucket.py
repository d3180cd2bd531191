"""A bucket: a namespace of streams with one order for everything that happens in it.

An idle stream is *parked*: reduced to the bytes of its row, which take a third of the memory of an object.
`find` unparks it. No decision depends on whether a stream is parked.
"""

from collections.abc import Iterator

from sortedcontainers import SortedList

from .journal import Gauge, Journal
from .ordered import iterate_while_changing
from .stream.row import decode_stream, encode_stream
from .stream.stream import Stream


class Bucket:
    """The streams of one bucket. `streams` holds those that are not parked; `find` finds them all."""

    __slots__ = (
        "created_at",
        "hidden",
        "journal",
        "name",
        "names",
        "parked",
        "parts",
        "position",
        "streams",
        "unparked",
    )

    def __init__(self, name: str, position: int, at: int, gauge: Gauge, unparked: dict[Stream, str]) -> None:
        self.name = name
        self.position = position
        self.created_at = at
        self.streams: dict[str, Stream] = {}
        self.parked: dict[str, bytes] = {}
        self.unparked = unparked  # shared by all buckets: streams that may be parked again
        self.names: SortedList[str] = SortedList()  # of visible streams; text order is byte order
        self.hidden: dict[str, None] = {}  # deleted streams that forks still need
        self.journal = Journal(gauge)
        self.parts: list[Journal] = []  # older parts of the journal that are still in memory

    def find(self, name: str) -> Stream | None:
        """The stream with this name, even if it is hidden. Unparks it."""
        stream = self.streams.get(name)
        if stream is None:
            row = self.parked.pop(name, None)
            if row is not None:
                stream = self.streams[name] = decode_stream(name, row)
                stream.encoded = (stream.dirty_at, row)
                self.unparked[stream] = self.name
        return stream

    def park(self, stream: Stream) -> None:
        """Reduce an idle stream to its row, which often exists: a flush encoded it, or `find` read it."""
        if self.streams.get(stream.name) is stream and stream.is_idle:
            del self.streams[stream.name]
            encoded = stream.encoded
            is_fresh = encoded is not None and encoded[0] == stream.dirty_at
            self.parked[stream.name] = encoded[1] if encoded and is_fresh else encode_stream(stream)

    def row(self, name: str) -> bytes | None:
        """The row of the stream with this name."""
        parked = self.parked.get(name)
        if parked is not None:
            return parked
        stream = self.streams.get(name)
        if stream is None:
            return None
        row = encode_stream(stream)
        stream.encoded = (stream.dirty_at, row)
        return row

    def all_names(self) -> Iterator[str]:
        """The names of all streams, including hidden ones. Streams may come and go during the iteration."""
        yield from list(self.hidden)
        yield from iterate_while_changing(self.names)

    @property
    def is_empty(self) -> bool:
        """Whether it has no streams, not even hidden ones."""
        return not self.streams and not self.parked

    def all_parts(self) -> list[Journal]:
        """The parts of the journal, oldest first."""
        return [*self.parts, self.journal]

    def forget_part(self, part: Journal) -> None:
        """Drop a part of the journal that the store has."""
        part.gauge.count -= part.memory_bytes
        if part is self.journal:
            self.journal = Journal(part.gauge)
            self.journal.position = part.position
        elif part in self.parts:
            self.parts.remove(part)
