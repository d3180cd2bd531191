"""Reading the journal of a bucket: whole log entries after a position, in order."""

from bisect import bisect_right

from ..bucket import Bucket
from ..journal import KIND_NAMES, NO_RECORD, EventKind, Journal
from ..outcomes import FeedEntry, FeedPage, FeedRow, Refused
from ..stream.blob_slice import BlobSlice
from .not_in_memory import FeedNotInMemory

ROW_BYTES = 256
"""About how many bytes a row takes in a response in addition to its payload."""

ROWS_MAX = 4096
"""Once a page has this many rows, it ends with the current log entry, however small the rows are."""

_APPEND = int(EventKind.APPEND)


def read_feed(
    bucket: Bucket,
    applied: int,
    stored_to: int,
    after: int | None,
    until: int | None,
    bytes_max: int,
    with_slices: bool = False,
) -> FeedPage | Refused | FeedNotInMemory:
    """About `bytes_max` of the rows after a position (None: from the beginning) and up to another.

    A log entry is never divided, however large it is. `applied` is the position of the state: a reader may
    ask for it even if this bucket has nothing there. Rows up to `stored_to` are read from the store. So are
    messages in blobs, unless the caller accepts slices (`with_slices`).
    """
    if after is None:
        after = bucket.position - 1
    elif after < bucket.position - 1:
        return _before(bucket)
    if until is not None and until < bucket.position:
        return _before(bucket)
    if max(after, until or 0) > applied:
        return Refused("offset_beyond_tail", f"the log of the bucket ends at {applied}")
    tail = feed_tail(bucket)
    if not bytes_max:
        return FeedPage([], tail, tail)
    if after < min(stored_to, tail):
        return FeedNotInMemory(after)
    entries: list[FeedEntry] = []
    next_position = max(after, tail) if until is None else max(after, until)
    size = rows = 0
    for journal in bucket.all_parts():
        positions = journal.positions
        last = len(positions) if until is None else bisect_right(positions, until)
        for number in range(bisect_right(positions, after), last):
            if entries and (size >= bytes_max or rows >= ROWS_MAX):
                return _page(entries, entries[-1].position, tail, with_slices)
            entry, entry_size = _entry(journal, number)
            entries.append(entry)
            size += entry_size
            rows += len(entry.rows)
    return _page(entries, next_position, tail, with_slices)


def feed_tail(bucket: Bucket) -> int:
    """A position at or after the last row of the bucket. It stays the same while nothing happens."""
    return max(bucket.position, bucket.journal.position)


def _page(
    entries: list[FeedEntry], next_position: int, tail: int, with_slices: bool
) -> FeedPage | FeedNotInMemory:
    """The page, unless some of its messages are in blobs and the caller does not accept slices."""
    if not with_slices and any(isinstance(row.payload, BlobSlice) for entry in entries for row in entry.rows):
        return FeedNotInMemory(entries[0].position - 1, in_blobs=True)
    return FeedPage(entries, next_position, max(tail, next_position))


def _before(bucket: Bucket) -> Refused:
    return Refused("position_trimmed", f"the bucket was created at position {bucket.position}")


def _entry(journal: Journal, number: int) -> tuple[FeedEntry, int]:
    first_rows = journal.first_rows
    first = first_rows[number]
    last = first_rows[number + 1] if number + 1 < len(first_rows) else len(journal)
    rows = [_row(journal, row) for row in range(first, last)]
    size = sum(len(row.payload) for row in rows if row.payload is not None) + len(rows) * ROW_BYTES
    return FeedEntry(journal.positions[number], journal.ats[number], rows), size


def _row(journal: Journal, row: int) -> FeedRow:
    stream, kind, record = journal.streams[row], journal.kinds[row], journal.records[row]
    offset, payload = journal.offsets[row], journal.payloads[row]
    return FeedRow(  # positional, since there is one for every row of a feed
        journal.indexes[row],
        KIND_NAMES[kind],
        stream.name,
        stream.incarnation,
        stream.content_type,
        stream.media_type,
        offset,
        offset if payload is None else offset + len(payload),
        None if record == NO_RECORD else record,
        payload,  # type: ignore[arg-type]
        journal.producers[row],
        None if kind == _APPEND else journal.events.get(row),
    )
