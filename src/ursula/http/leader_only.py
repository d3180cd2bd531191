"""Writes that only the leader's node accepts (`server.write_only_leader`): others send clients there.

These are the requests that write to streams and buckets. What else is below /cluster any node accepts: it
stores rows that are not visible yet, or is work that the keeper does.
"""

from urllib.parse import quote

from ..engine.interface import ClusterApi
from .errors import Problem
from .exchange import PATH_SAFE
from .routes import Match
from .wire.request import Request

_READS = frozenset(("GET", "HEAD", "OPTIONS"))


class LeaderOnly:
    """Checks requests before their bodies are read."""

    def __init__(self, cluster: ClusterApi) -> None:
        self._cluster = cluster

    def check(self, request: Request, match: Match) -> Problem | None:
        """The redirection of a write, unless this node's member leads."""
        is_write = match.target.bucket or match.route.writes_streams
        if request.method in _READS or not is_write or self._cluster.is_leader:
            return None
        leader = self._cluster.leader
        address = None if leader is None else self._cluster.address_of(leader)
        if address is None:
            return Problem("unavailable", "only the leader accepts writes, and the cluster has none now")
        query = f"?{request.query_string}" if request.query_string else ""
        path = quote(request.path, safe=PATH_SAFE)
        location = f"{request.scheme}://{address}{path}{query}"
        return Problem("not_leader", f"only node {leader} accepts writes", [("location", location)])
