"""Read the data that a stream has now, without waiting for more."""

from ..connection.retry import Patience, perform
from ..connection.steps import Flow, Item, Request, Steps
from ..results import BEGINNING, Chunk
from ..target import StreamTarget


def read(
    target: StreamTarget,
    offset: str = BEGINNING,
    *,
    max_bytes: int | None = None,
    incarnation: str | None = None,
) -> Steps[Chunk]:
    """One chunk from an offset on: "-1" is the beginning, "now" the tail."""
    return (yield from read_chunk(target, offset, max_bytes, incarnation, target.patience))


def read_all(target: StreamTarget, offset: str = BEGINNING, *, max_bytes: int | None = None) -> Flow[Chunk]:
    """Every chunk from an offset up to the current tail."""
    incarnation = None
    while True:
        chunk = yield from read_chunk(target, offset, max_bytes, incarnation, target.patience)
        if chunk.data:
            yield Item(chunk)
        if chunk.up_to_date:
            return
        # The rest must come from the same incarnation, not from a later stream of that name.
        offset, incarnation = chunk.next_offset, chunk.incarnation


def read_chunk(
    target: StreamTarget, offset: str, max_bytes: int | None, incarnation: str | None, patience: Patience
) -> Steps[Chunk]:
    """One chunk, retried with the given patience."""
    params = {"offset": offset}
    if max_bytes is not None:
        params["max_bytes"] = str(max_bytes)
    headers = {"stream-incarnation": incarnation} if incarnation else {}
    request = Request("GET", target.address.path, params, headers, repeatable=True)
    chunk = Chunk.of((yield from perform(request, patience)), target.path)
    target.content_type = chunk.content_type
    return chunk
