"""Streams that were deleted or have expired, as they were: for as long as they can be brought back.

Each takes as much memory as an idle stream. `Collect` ends them.
"""

import msgspec

from .rows import read_row
from .stream import Stream


class Grave:
    """One stream that has ended: which, when (microseconds), its row, and while it has hot data, itself."""

    __slots__ = ("at", "incarnation", "row", "stream")

    def __init__(self, incarnation: str, at: int, row: bytes, stream: Stream | None = None) -> None:
        self.incarnation = incarnation
        self.at = at
        self.row = row
        self.stream = stream

    def drop_stored(self, position: int) -> None:
        """Let go of messages up to a cut."""
        if self.stream is not None:
            self.stream.drop_stored(position)
            if not self.stream.messages.payloads:
                self.stream = None


class Graves:
    """Ended streams by bucket and name, the latest last."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, str], list[Grave]] = {}
        self.incarnations: dict[str, None] = {}
        self.sources: dict[str, int] = {}  # incarnations that some of them are forks of, and how many are

    def add(self, bucket: str, name: str, grave: Grave) -> None:
        """A stream has ended."""
        self.by_name.setdefault((bucket, name), []).append(grave)
        self.incarnations[grave.incarnation] = None
        source = read_row(grave.row).parent
        if source is not None:
            self.sources[source[1]] = self.sources.get(source[1], 0) + 1

    def find(self, bucket: str, name: str, incarnation: str | None) -> Grave | None:
        """The latest that had this name, or the one with this incarnation."""
        for grave in reversed(self.by_name.get((bucket, name), ())):
            if incarnation is None or grave.incarnation == incarnation:
                return grave
        return None

    def remove(self, bucket: str, name: str, grave: Grave) -> None:
        """It is back, or gone for good."""
        left = [other for other in self.by_name[bucket, name] if other is not grave]
        if left:
            self.by_name[bucket, name] = left
        else:
            del self.by_name[bucket, name]
        self.incarnations.pop(grave.incarnation, None)
        source = read_row(grave.row).parent
        if source is not None:
            self.sources[source[1]] -= 1
            if not self.sources[source[1]]:
                del self.sources[source[1]]

    def before(self, horizon: int) -> list[tuple[str, str, Grave]]:
        """All that ended before a time."""
        return [
            (bucket, name, grave)
            for (bucket, name), graves in self.by_name.items()
            for grave in graves
            if grave.at < horizon
        ]

    def drop_stored(self, bucket: str, name: str, position: int) -> None:
        """Let go of messages up to a cut."""
        for grave in self.by_name.get((bucket, name), ()):
            grave.drop_stored(position)

    def row(self, bucket: str, name: str) -> bytes | None:
        """What is kept of a name, as bytes: a msgpack array of (incarnation, time, row)."""
        graves = self.by_name.get((bucket, name))
        if graves is None:
            return None
        return _encoder.encode([(grave.incarnation, grave.at, grave.row) for grave in graves])

    def load(self, bucket: str, name: str, row: bytes) -> None:
        """The reverse."""
        for incarnation, at, kept in _decoder.decode(row):
            self.add(bucket, name, Grave(incarnation, at, kept))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[tuple[str, int, bytes]])
