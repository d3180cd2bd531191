"""What an operator may have moved out of memory and the log: a flush, a new base, a shorter log."""

import asyncio

import msgspec

from ...cold.store import StoreFailed
from ...engine.flusher import Superseded
from ...log.seam import purged_to
from ..errors import Problem
from ..exchange import Exchange

_JSON = [("content-type", "application/json"), ("cache-control", "no-store")]


def flush(exchange: Exchange) -> None:
    """POST on the flush: everything that is there now is in the store when it is answered."""

    async def answer() -> None:
        flushers = exchange.app.node.flushers
        try:
            positions = await asyncio.gather(*(flusher.request() for flusher in flushers))
        except StoreFailed as error:
            raise Problem("store_unavailable", f"not all is flushed: {error}") from error
        except Superseded as error:
            raise Problem("unavailable", str(error)) from None
        groups = [{"group": number, "position": position} for number, position in enumerate(positions)]
        exchange.send(200, _JSON, msgspec.json.encode({"groups": groups}))

    exchange.app.spawn(exchange, answer())


def trigger_snapshot(exchange: Exchange) -> None:
    """POST on the snapshot: a flush follows soon that writes the whole state, not only what changed."""
    for flusher in exchange.app.node.flushers:
        flusher.request_base()
    exchange.empty(202, [("cache-control", "no-store")])


def purge_log(exchange: Exchange) -> None:
    """POST on the log: forget the entries that the newest manifest stands for."""

    async def answer() -> None:
        try:
            firsts = [await flusher.purge() for flusher in exchange.app.node.flushers]
        except OSError as error:
            raise Problem("unavailable", f"not all of the log could be removed: {error.strerror}") from error
        answer = {"purged_index": min(map(purged_to, firsts))}
        exchange.send(200, _JSON, msgspec.json.encode(answer))

    exchange.app.spawn(exchange, answer())
