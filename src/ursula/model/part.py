"""A message, or a part of one, whose bytes are in a blob of the store. It is measured and cut like bytes."""

from msgspec import Struct


class Part(Struct, frozen=True, gc=False):
    """The bytes of a blob from `start` up to `end`."""

    blob: str
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __getitem__(self, cut: slice) -> "Part":
        start, end, _ = cut.indices(len(self))
        return Part(self.blob, self.start + start, self.start + max(start, end))


def parts_of(blob: str, sizes: tuple[int, ...]) -> tuple[Part, ...]:
    """The messages of a blob that holds them in a row."""
    parts = []
    start = 0
    for size in sizes:
        parts.append(Part(blob, start, start + size))
        start += size
    return tuple(parts)
