"""What handlers may use: one small value, made once when the server is put together."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.interface import NodeApi
from .body.read import Bodies
from .bucket.feed_lines import FeedLines
from .observe.request_stats import RequestStats
from .stream.live import LiveConnections
from .syntax.cors import CorsPolicy
from .wire.server import WireServer

if TYPE_CHECKING:
    from .stream.sse import FanOut

TaskSet = set["asyncio.Task[None]"]


@dataclass(frozen=True)
class ReadSettings:
    """How reads are answered: what the settings say of them."""

    cache_control: str
    long_poll_seconds: float
    sse_cycle_seconds: float
    sse_heartbeat_seconds: float
    sse_bytes: int


@dataclass(frozen=True)
class Services:
    """The engine, the settings that requests depend on, and what all requests share."""

    node: NodeApi
    wire: WireServer
    cors: CorsPolicy
    bodies: Bodies
    reads: ReadSettings
    node_id: int
    advertise: str
    spools: Path
    """A folder for answers that are too large to be put together in memory."""
    stats: RequestStats = field(default_factory=RequestStats)
    live: LiveConnections = field(default_factory=LiveConnections)
    fan_outs: "dict[str, FanOut]" = field(default_factory=dict)
    feed_lines: FeedLines = field(default_factory=FeedLines)
    tasks: TaskSet = field(default_factory=set)
    """Requests that are answered by a task. The loop itself keeps no reference to one."""

    @property
    def generation(self) -> int:
        """Which generation of the store this is: part of every incarnation that a client sees."""
        return self.node.generation
