"""Services: everything that handlers may use, in one small value, made once when the server is assembled."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.interface import ClusterApi, NodeApi
from .body.read import Bodies
from .bucket.feed_lines import FeedLines
from .certainty import Contact
from .live.connections import LiveConnections
from .observe.request_stats import RequestStats
from .syntax.cors import CorsPolicy
from .wire.server import WireServer

if TYPE_CHECKING:
    from .live.fan_out import FanOut

TaskSet = set["asyncio.Task[None]"]


@dataclass(frozen=True)
class ReadSettings:
    """The settings of reads."""

    cache_control: str
    long_poll_seconds: float
    sse_cycle_seconds: float
    sse_heartbeat_seconds: float
    sse_bytes: int


@dataclass(frozen=True)
class Services:
    """The engine, the settings that requests depend on, and the state that all requests share."""

    node: NodeApi
    wire: WireServer
    cors: CorsPolicy
    bodies: Bodies
    reads: ReadSettings
    node_id: int
    advertise: str
    spools: Path
    """A folder for responses that are too large to be assembled in memory."""
    live: LiveConnections
    cluster: ClusterApi | None = None
    """The cluster that this node is a part of; a single node has none."""
    contact: Contact | None = None
    """This node's contact with the log, if it answers reads from its own state."""
    stats: RequestStats = field(default_factory=RequestStats)
    fan_outs: "dict[str, FanOut]" = field(default_factory=dict)
    feed_lines: FeedLines = field(default_factory=FeedLines)
    tasks: TaskSet = field(default_factory=set)
    """The tasks that answer requests. The event loop itself keeps no reference to them."""

    @property
    def generation(self) -> int:
        """The generation of the store, which is part of every incarnation that a client sees."""
        return self.node.generation
