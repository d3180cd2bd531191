"""The status of a group for operators: plain values, which could come from another process."""

from typing import NamedTuple

from ...histogram import Histogram


class GroupStatus(NamedTuple):
    """The status of a group, and how much it has written since it started."""

    number: int
    recovered: bool
    first: int
    tail: int
    applied: int
    log_bytes: int
    log_segment_count: int | None
    sync_seconds: Histogram | None
    batch_commands: Histogram
    batch_bytes: Histogram
    append_bytes: int
    append_messages: int
    entries_unavailable: int
    entries_unknown: int
    pending_commands: int
    watcher_count: int
    bucket_count: int
    stream_count: int
    clock_ahead_seconds: float
    disagreement: str | None
    """Why the node must not serve the group."""

    @property
    def lag(self) -> int:
        """How many positions are durable but not applied yet."""
        return max(0, self.tail - self.applied)
