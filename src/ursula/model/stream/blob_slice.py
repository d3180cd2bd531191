"""A message, or a slice of one, whose bytes are in a blob of the store. It slices like bytes."""

from msgspec import Struct

from ..commands import Body


class Blocks(Struct, frozen=True, gc=False):
    """How a slice of a blob is verified: the size of the blob, and the checksums of its blocks."""

    size: int
    checksums: tuple[int, ...]


class BlobSlice(Struct, frozen=True, gc=False):
    """The bytes of a blob from `start` up to `end`; `blocks` is None for one without checksums."""

    blob: str
    start: int
    end: int
    blocks: Blocks | None = None

    def __len__(self) -> int:
        return self.end - self.start

    def __getitem__(self, cut: slice) -> "BlobSlice":
        start, end, _ = cut.indices(len(self))
        return BlobSlice(self.blob, self.start + start, self.start + max(start, end), self.blocks)


def slices_of(body: Body) -> tuple[BlobSlice, ...]:
    """The messages of a body that is in a blob, one after the other."""
    blocks = Blocks(sum(body.sizes), body.checksums) if body.checksums else None
    slices = []
    start = 0
    for size in body.sizes:
        slices.append(BlobSlice(body.blob, start, start + size, blocks))
        start += size
    return tuple(slices)
