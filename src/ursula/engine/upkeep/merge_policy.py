"""Which segments to merge: neighbours of about the same size, so that a byte is rewritten only a few times.

The weight of a segment is the larger of its size and of the memory that its rows take. Small segments are
merged first: sixteen or more at a time, if the result is four times as heavy as the heaviest of them; or any
number of them that together make a full segment, which is never merged again.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from ...model.commands import StoredSegment

FULL_BYTES = 64 * 1024 * 1024
COUNT_MIN = 16
COUNT_MAX = 1024
GROWTH_MIN = 4
ROW_BYTES = 128
"""About how much memory a row takes in addition to its payload."""


def next_run(segments: Sequence[StoredSegment], avoided: Collection[str] = ()) -> list[StoredSegment]:
    """The neighbours to merge next; none if nothing should be merged. `avoided` ones are left alone."""
    if len(segments) < 2:
        return []
    for limit in _limits():
        for run in _runs(segments, limit, avoided):
            found = _window(run)
            if found:
                return found
    return []


def weight(segment: StoredSegment) -> int:
    """The weight of a segment, to be compared with FULL_BYTES."""
    return max(segment.size, segment.payload_bytes + segment.rows * ROW_BYTES)


def _limits() -> Iterator[int]:
    """The weights below which segments are considered together, smallest first."""
    yield from (FULL_BYTES // 16**power for power in (4, 3, 2, 1))
    yield FULL_BYTES // 2


def _runs(
    segments: Iterable[StoredSegment], limit: int, avoided: Collection[str]
) -> Iterator[list[StoredSegment]]:
    run: list[StoredSegment] = []
    for segment in segments:
        if weight(segment) < limit and segment.key not in avoided:
            run.append(segment)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _window(run: list[StoredSegment]) -> list[StoredSegment]:
    window: list[StoredSegment] = []
    total = heaviest = 0
    for segment in run:
        if total + weight(segment) > FULL_BYTES or len(window) == COUNT_MAX:
            return window
        window.append(segment)
        total += weight(segment)
        heaviest = max(heaviest, weight(segment))
        if len(window) >= COUNT_MIN and total >= GROWTH_MIN * heaviest:
            return window
    return []
