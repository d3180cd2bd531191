"""Bulk writes: the rows of staged objects become appends, each exactly once.

An app (a query, a job) numbers its writes. The first list of objects for a version wins, a repeated request
continues it, and an older version is refused. Each command appends some rows and names the first of them;
only the command that begins with the next row is applied. So no row is skipped or repeated if a writer
is killed and restarted, or if two writers run at once.
"""

from typing import TYPE_CHECKING, NamedTuple

from ..bucket import Bucket
from ..commands import IngestBegin, IngestRow, IngestRows
from ..outcomes import Ignored, Ingest, Refused
from ..text.media_type import media_type_of
from .refusals import bucket_not_found, stored_too_long_ago

if TYPE_CHECKING:
    from ..state import State


class NextRows(NamedTuple):
    """The bulk write that a command continues, and its bucket."""

    ingest: Ingest
    bucket: Bucket


def decide_ingest_begin(state: "State", command: IngestBegin) -> Ingest | Refused | None:
    """None if a new bulk write begins.

    A bulk write that is under way must end before a newer one begins; until then it is the outcome itself.
    """
    known = state.ingests.get((command.bucket, command.app))
    if command.bucket not in state.buckets:
        return bucket_not_found(command.bucket)
    if known is not None:
        if command.version < known.version:
            return Refused("ingest_outdated", f"the app {command.app!r} already has version {known.version}")
        if command.version == known.version or not known.ended:
            return known
    return stored_too_long_ago() if state.may_be_collected(command.made_at) else None


def decide_ingest_rows(state: "State", command: IngestRows) -> NextRows | Ignored:
    """The bulk write that the rows continue, if they are its next ones."""
    known = state.ingests.get((command.bucket, command.app))
    bucket = state.buckets.get(command.bucket)
    if known is None or bucket is None or not _is_next(known, command):
        return Ignored()
    if any(_is_mistaken(bucket, row) for row in command.rows):
        return Ignored()
    return NextRows(known, bucket)


def _is_next(known: Ingest, command: IngestRows) -> bool:
    """Whether the command has the next rows."""
    return not known.ended and (known.version, known.object, known.row) == (
        command.version,
        command.object,
        command.first,
    )


def _is_mistaken(bucket: Bucket, row: IngestRow) -> bool:
    """Whether the stream of a row has a different content type from the one assumed when the row was read."""
    if not row.assumed:
        return False
    stream = bucket.find(row.stream)
    return stream is not None and not stream.hidden and stream.media_type != media_type_of(row.content_type)
