"""What groups and caches tell an operator of the store: plain values, as from another process."""

import time
from typing import NamedTuple

from ..cold.cache import Cache
from ..histogram import Histogram
from .flush.flusher import Flusher
from .group.group import Group


class ColdStatus(NamedTuple):
    """How far a group is stored, in how much, and whether more can be. Times are microseconds since 1970."""

    number: int
    manifest_position: int
    manifest_at: int | None
    backlog_seconds: float
    problem: str | None
    flush_count: int
    failed_count: int
    flush_seconds: Histogram
    written_bytes: int
    segment_count: int
    segment_bytes: int
    payload_bytes: int
    state_bytes: int
    held_bytes: int
    recent_bytes: int
    is_full: bool
    rejected_count: int
    ended_streams: int


class CacheStatus(NamedTuple):
    """What a cache holds, and how often that helped."""

    held_bytes: int
    bytes_max: int
    hits: int
    misses: int
    evicted: int


class UpkeepStatus(NamedTuple):
    """What was read from the store, merged and removed since the start."""

    fetch_count: int
    fetched_bytes: int
    merged_count: int
    merged_bytes: int
    collected_count: int
    collected_bytes: int


def cache_status(cache: Cache) -> CacheStatus:
    """A cache as it is now."""
    return CacheStatus(cache.held_bytes, cache.bytes_max, cache.hits, cache.misses, cache.evicted)


def cold_status(group: Group, flusher: Flusher) -> ColdStatus:
    """A group as it is now."""
    state = group.state
    since = flusher.waiting_since
    return ColdStatus(
        group.number,
        flusher.manifest_position,
        flusher.manifest_at,
        0.0 if since is None else time.monotonic() - since,
        flusher.problem,
        flusher.count,
        flusher.failed_count,
        flusher.flush_seconds,
        flusher.stored_bytes,
        len(state.segments),
        state.segments.size,
        state.segments.payload_bytes,
        sum(stored.size for stored in state.stored.chain),
        state.gauge.count,
        group.evictor.resident_bytes,
        group.is_full,
        group.rejected_count,
        len(state.deleted.incarnations),
    )
