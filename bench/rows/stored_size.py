"""How much smaller JSON events are in the store than they were sent."""

from itertools import islice

from ..client import Request, send_all
from ..cold import flush, segment_bytes
from ..events import Events
from ..results import OURS as NAME
from ..results import Row
from ..rounds import Plan
from ..servers import OURS, Kind, started

STREAMS = 100
EVENTS_EACH = 1_500
EVENTS_PER_APPEND = 10
JSON = {"Content-Type": "application/json"}


def measure(plan: Plan) -> list[Row]:
    """Bytes of all events against bytes of the files that hold them."""
    row = Row("stored-size", f"stored size of {STREAMS * EVENTS_EACH:,} JSON events in {STREAMS} streams")
    row.note("one round, default flush settings; agent, page and request events, generated from a seed")
    ratio = row.figure("raw size / stored size", "x")
    raw = row.figure("raw", "MB")
    stored = row.figure("stored", "MB")
    sessions = [list(islice(Events(number), EVENTS_EACH)) for number in range(STREAMS)]
    raw_bytes = sum(len(event) for session in sessions for event in session)

    def once(kind: Kind) -> None:
        with started(kind) as server:
            paths = [server.path(f"s{number}") for number in range(STREAMS)]
            send_all(server, [Request("PUT", path, b"", JSON) for path in paths])
            for start in range(0, EVENTS_EACH, EVENTS_PER_APPEND):
                events = slice(start, start + EVENTS_PER_APPEND)
                send_all(
                    server,
                    [_append(path, session[events]) for path, session in zip(paths, sessions, strict=True)],
                    connections=4,
                )
            flush(server)
            stored_bytes = segment_bytes(server)
            ratio.add(NAME, raw_bytes / stored_bytes)
            raw.add(NAME, raw_bytes / 1e6)
            stored.add(NAME, stored_bytes / 1e6)

    plan.at_most(1).interleave(row, (OURS,), once)
    row.value_at_least(ratio, 5)
    return [row]


def _append(path: str, events: list[bytes]) -> Request:
    return Request("POST", path, b"[" + b",".join(events) + b"]", JSON)
