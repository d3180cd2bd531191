"""DELETE on a stream."""

from ...model.commands import Delete
from ...model.outcomes import Ended
from ..exchange import Exchange


async def delete_stream(exchange: Exchange) -> None:
    """Delete the stream, or only hide it while forks need it."""
    target = exchange.target
    command = Delete(target.bucket, target.stream, exchange.requested_incarnation())
    ended = exchange.expect(Ended, await exchange.group.propose_and_wait(command))
    exchange.reply_empty(204, [("stream-incarnation", exchange.incarnation(ended.incarnation))])
