"""The hot journal of a bucket: one row for every row that a segment will have, in log order.

Rows are kept as columns next to the message bytes, which are not copied. Position and time are kept once per
log entry. Feeds and flushes read it. A journal has parts: a new one begins after each cut, so that a part can
be evicted as a whole once it is stored, and nothing before a cut ever changes.
"""

from array import array
from enum import IntEnum
from typing import TYPE_CHECKING

from .commands import Producer
from .stream.blob_slice import BlobSlice

if TYPE_CHECKING:
    from .stream.stream import Stream


class EventKind(IntEnum):
    """What happened to a stream. The numbers are in memory only."""

    CREATE = 0
    FORK = 1
    APPEND = 2
    CLOSE = 3
    DELETE = 4
    EXPIRE = 5
    ATTRIBUTES = 6
    SNAPSHOT = 7
    TRIM = 8
    UNDELETE = 9


KIND_NAMES = tuple(kind.name.lower() for kind in EventKind)


NO_RECORD = -1

ROW_BYTES = 128
"""About how many bytes of memory a row takes in addition to its payload."""


class Gauge:
    """How many bytes of memory all journals of a group take."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Journal:
    """The columns of one part. Row i belongs to the last log entry whose first row is at or below i.

    Values that can be derived are not kept: a row ends after its payload, and its stream knows the rest.
    """

    __slots__ = (
        "ats",
        "byte_count",
        "events",
        "first_rows",
        "gauge",
        "indexes",
        "kinds",
        "offsets",
        "payloads",
        "position",
        "positions",
        "producers",
        "records",
        "slice_bytes",
        "streams",
    )

    def __init__(self, gauge: Gauge) -> None:
        self.gauge = gauge
        self.position = -1
        self.positions = array("Q")
        self.ats = array("Q")
        self.first_rows = array("Q")
        self.indexes = array("I")
        self.kinds = array("B")
        self.streams: list[Stream] = []
        self.offsets = array("Q")
        self.records = array("q")
        self.payloads: list[bytes | BlobSlice | None] = []
        self.producers: list[Producer | None] = []
        self.events: dict[int, bytes] = {}  # by row: the fields, as JSON, of a row that is not an append
        self.byte_count = 0
        self.slice_bytes = 0

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes, as the gauge counts it; `slice_bytes` are in blobs and do not count."""
        return self.byte_count + len(self.kinds) * ROW_BYTES

    def drain(self, count: int) -> bool:
        """Free the last `count` rows of a part that nothing reads any more; return whether none are left."""
        for column in (self.payloads, self.streams, self.producers):
            del column[-count:]
        return not self.streams

    def enter(self, position: int, at: int) -> None:
        """Begin a log entry, to which the next rows belong."""
        if self.position == position:
            return
        self.position = position
        self.positions.append(position)
        self.ats.append(at)
        self.first_rows.append(len(self.kinds))

    def next_offset(self, row: int) -> int:
        """The offset after a row in its stream."""
        payload = self.payloads[row]
        return self.offsets[row] + (0 if payload is None else len(payload))

    def add(
        self,
        index: int,
        kind: int,
        stream: "Stream",
        offset: int,
        record: int = NO_RECORD,
        payload: bytes | BlobSlice | None = None,
        producer: Producer | None = None,
        event: bytes | None = None,
    ) -> None:
        """Add a row to the log entry begun last."""
        size = 0
        if event is not None:
            self.events[len(self.kinds)] = event
            size += len(event)
        self.indexes.append(index)
        self.kinds.append(kind)
        self.streams.append(stream)
        self.offsets.append(offset)
        self.records.append(record)
        self.payloads.append(payload)
        self.producers.append(producer)
        if type(payload) is bytes:
            size += len(payload)
        elif payload is not None:
            self.slice_bytes += len(payload)
        self.byte_count += size
        self.gauge.count += size + ROW_BYTES
