"""The ways in which an operator can relieve memory and the log: a flush, a new base, a purge."""

from ...cold.objects.store import StoreFailed
from ...engine.failures import Failure, Superseded
from ...log.interface import LogUnavailable, purged_to
from ..errors import Problem
from ..exchange import Exchange


async def flush(exchange: Exchange) -> None:
    """POST on the flush. The response means that everything written before the request is in the store."""
    try:
        positions = await exchange.services.node.flush()
    except StoreFailed as error:
        raise Problem("store_unavailable", f"the flush is not complete: {error}") from error
    except Superseded as error:
        raise Problem("unavailable", str(error)) from None
    if isinstance(positions, Failure):
        raise exchange.problem(positions)
    groups = [{"group": number, "position": position} for number, position in enumerate(positions)]
    exchange.reply_json(200, {"groups": groups})


async def trigger_snapshot(exchange: Exchange) -> None:
    """POST on the snapshot: request a flush that writes the whole state, not only the changes."""
    failure = await exchange.services.node.request_base()
    if failure is not None:
        raise exchange.problem(failure)
    exchange.reply_empty(202, [("cache-control", "no-store")])


async def purge_log(exchange: Exchange) -> None:
    """POST on the log: drop the entries that the newest manifest covers."""
    try:
        firsts = await exchange.services.node.purge_log()
    except (StoreFailed, LogUnavailable) as error:
        raise Problem("unavailable", f"the log could not be purged: {error}") from error
    except OSError as error:
        raise Problem("unavailable", f"the log could not be purged completely: {error.strerror}") from error
    exchange.reply_json(200, {"purged_index": min(map(purged_to, firsts))})
