"""Results of reads that need the store: they only say where to continue there."""

from typing import NamedTuple

from ..stream.blob_slice import BlobSlice
from ..stream.messages import Payload
from ..stream.stream import Stream


class NotInMemory(NamedTuple):
    """The messages of a stream from an offset on, or from an ordinal, must be read from the store."""

    stream: Stream
    offset: int | None
    record: int | None = None


class FeedNotInMemory(NamedTuple):
    """The rows of a bucket after a position must be read from the store."""

    after: int
    in_blobs: bool = False


def all_in_memory(stream: Stream, chunks: list[Payload]) -> bool:
    """Whether all messages that were read are bytes, not slices of blobs."""
    owner: Stream | None = stream
    while owner is not None:
        if owner.messages.has_slices:
            return not any(type(chunk) is BlobSlice for chunk in chunks)
        owner = owner.parent
    return True
