"""Whether this node can do the keeper's work, or must leave the role to other nodes for now.

A keeper that writes nothing, since its clock is ahead, or whose flushes fail, since it alone cannot reach the
store, would hold the role and do nothing, until memory is full and all nodes reject writes. If flushes fail
on all nodes, the last one that could take the role keeps it.
"""

import time
from collections.abc import Callable

FAILING_SECONDS_MAX = 15.0
"""How long the keeper's flushes may fail before another node tries: a short outage moves nothing."""

REST_SECONDS = 60.0
"""How long a node whose flushes have failed leaves the role to others. Only the next flush shows whether it
can flush again, so it needs the role to find out."""


class KeeperCheck:
    """Follows the problems of one node."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._failing_since: float | None = None
        self._rests_until = 0.0
        self._rests_because = ""

    def find_problem(self, write_problem: str | None, flush_problem: str | None, others: bool) -> str | None:
        """Why this node must leave the role to others for now; to be called every second or so.

        `flush_problem` is why this node, as the keeper, could not flush when it last tried. `others` says
        whether another node is there that could take the role.
        """
        now = self._monotonic()
        if flush_problem is None:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = now
        elif others and now - self._failing_since >= FAILING_SECONDS_MAX:
            self._rests_until, self._rests_because = now + REST_SECONDS, flush_problem
        if write_problem is not None:
            return write_problem
        return self._rests_because if others and now < self._rests_until else None
