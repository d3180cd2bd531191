"""Reading the journal of a bucket: whole log entries after a position, in order."""

from bisect import bisect_right

from .journal import KIND_NAMES, NO_RECORD, Journal, Kind
from .outcomes import FeedEntry, FeedPage, FeedRow, Refused
from .stream import Bucket

ROW_BYTES = 256
"""About what a row takes beside its payload, wherever it is sent."""

ROWS_MAX = 4096
"""After so many rows a page ends with its entry, however small they are."""

_APPEND = int(Kind.APPEND)


def read_feed(
    bucket: Bucket, applied: int, after: int | None, until: int | None, bytes_max: int
) -> FeedPage | Refused:
    """About `bytes_max` of the rows after a position (None: from the beginning) and up to another.

    One log entry is never divided, however large. `applied` is the position of the state: what a
    reader may know of, though this bucket may have nothing there.
    """
    journal = bucket.journal
    tail = journal.positions[-1] if journal.positions else bucket.position
    if after is None:
        after = bucket.position - 1
    elif after < bucket.position:
        return _before(bucket)
    if until is not None and until < bucket.position:
        return _before(bucket)
    if max(after, until or 0) > applied:
        return Refused("offset_beyond_tail", f"the log of the bucket ends at {applied}")
    entries: list[FeedEntry] = []
    next_position = max(after, tail, bucket.position)
    last = len(journal.positions)
    if until is not None:
        last = bisect_right(journal.positions, until)
        next_position = max(after, until)
    size = rows = 0
    for number in range(bisect_right(journal.positions, after), last):
        if entries and (size >= bytes_max or rows >= ROWS_MAX):
            next_position = entries[-1].position
            break
        entry, entry_size = _entry(journal, number)
        entries.append(entry)
        size += entry_size
        rows += len(entry.rows)
    return FeedPage(entries, next_position, max(tail, next_position))


def _before(bucket: Bucket) -> Refused:
    return Refused("position_trimmed", f"the bucket was made at position {bucket.position}")


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
    return FeedRow(
        journal.indexes[row],
        KIND_NAMES[kind],
        stream.name,
        stream.incarnation,
        stream.content_type,
        stream.media_type,
        offset,
        offset if payload is None else offset + len(payload),
        None if record == NO_RECORD else record,
        payload,
        journal.producers[row],
        None if kind == _APPEND else journal.events.get(row),
    )
