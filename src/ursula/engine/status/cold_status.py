"""The status of the store for operators: plain values, which could come from another process."""

from typing import NamedTuple

from ...cold.cache import Cache
from ...histogram import Histogram


class ColdStatus(NamedTuple):
    """How far a group is stored, in how many bytes, and whether flushes succeed. Times in microseconds."""

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
    """How full a cache is, and how often it was hit."""

    held_bytes: int
    bytes_max: int
    hits: int
    misses: int
    evicted: int


class UpkeepStatus(NamedTuple):
    """How much was fetched from the store, merged and collected since the start."""

    fetch_count: int
    fetched_bytes: int
    merged_count: int
    merged_bytes: int
    collected_count: int
    collected_bytes: int


def cache_status(cache: Cache) -> CacheStatus:
    """The status of a cache."""
    return CacheStatus(cache.held_bytes, cache.bytes_max, cache.hits, cache.misses, cache.evicted)
