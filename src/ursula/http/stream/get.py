"""GET on a stream: at once, by long-poll or by SSE."""

from ..errors import Problem
from ..exchange import Exchange
from ..syntax.query import Live, parse_read_query
from ..syntax.tokens import parse_offset
from .long_poll import answer_long_poll
from .read import answer_now, read_stream
from .sse import answer_sse

_ANSWERS = {Live.NO: answer_now, Live.LONG_POLL: answer_long_poll, Live.SSE: answer_sse}


def get_stream(exchange: Exchange) -> None:
    """Parse the query, and read the stream in the way that it asks for."""
    query = parse_read_query(exchange.request.query_string)
    if query.live is Live.SSE:
        resumed = exchange.headers.get("last-event-id")
        if resumed is not None:
            # It continues by offset: the record in the query is where the first connection began.
            query = query._replace(offset=parse_offset(resumed))
        elif query.offset is None and query.records is None:
            raise Problem("invalid_offset", "a live read needs an offset")
    read_stream(exchange, query, _ANSWERS[query.live])
