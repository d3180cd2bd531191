"""The columns of a journal as the rows that they stand for."""

import msgspec
from tests.model.oracle import Row

from ursula.model.bucket import Bucket
from ursula.model.journal import NO_RECORD, EventKind, Journal


def all_rows_of(bucket: Bucket) -> list[Row]:
    """The rows of a bucket that are in memory."""
    return [row for journal in bucket.all_parts() for row in rows_of(journal)]


def rows_of(journal: Journal) -> list[Row]:
    """The columns of a journal as rows."""
    rows = []
    entry = -1
    for i in range(len(journal)):
        while entry + 1 < len(journal.first_rows) and journal.first_rows[entry + 1] <= i:
            entry += 1
        producer, event = journal.producers[i], journal.events.get(i)
        rows.append(
            Row(
                journal.positions[entry],
                journal.ats[entry],
                journal.indexes[i],
                EventKind(journal.kinds[i]).name.lower(),
                journal.streams[i].name,
                journal.streams[i].incarnation,
                journal.offsets[i],
                journal.next_offset(i),
                None if journal.records[i] == NO_RECORD else journal.records[i],
                journal.payloads[i],  # type: ignore[arg-type]
                None if producer is None else (producer.id, producer.epoch, producer.seq),
                None if event is None else msgspec.json.decode(event),
            )
        )
    return rows
