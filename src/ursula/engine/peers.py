"""What this node knows of the other nodes that share its log.

The cluster sets these values; the groups read them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..model.codec.entry import ENTRY_VERSION
from .agreement import Sample


class FlushFailure(NamedTuple):
    """The last flush of a keeper, if it has failed."""

    position: int
    """That of the newest request for a flush that the keeper knew."""
    reason: str


class Peers:
    """The other nodes of a cluster. A single node has none."""

    def __init__(self) -> None:
        self.entry_version = ENTRY_VERSION
        """The highest version of log entries that every node reads: entries are written in it."""

    @property
    def write_problem(self) -> str | None:
        """Why this node must not write to the log for now.

        Whoever wants to write asks after looking at the clock, since the clock may just have jumped.
        """
        return None

    def samples(self, group: int) -> Mapping[str, Sequence[Sample]]:
        """The newest samples of a group on the other nodes, by the name of the node."""
        return {}

    def flush_failure(self, group: int) -> FlushFailure | None:
        """Why another node, which is the keeper, could not flush a group when it last tried."""
        return None
