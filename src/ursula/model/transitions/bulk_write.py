"""Bulk writes: the rows of staged objects become appends, each exactly once.

An app (a query, a job) numbers its writes: the first list of objects for a version counts, whoever repeats
the request goes on with it, and an older version is refused. Rows are appended in parts; each says which row
it begins with, and only the part that begins with the next one is applied. So a writer that is killed and
started again, or two of them at once, neither skip nor repeat a row.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from ..bucket import Bucket
from ..commands import IngestBegin, IngestRow, IngestRows
from ..outcomes import Ingest, Refused, RefusedRow
from ..text.media_type import media_type_of
from .append import bucket_not_found

REFUSED_KEPT = 1000
"""So many refused rows are named; the others are only counted."""

REFUSED_MESSAGE_CHARACTERS = 200


def decide_ingest(
    buckets: Mapping[str, Bucket], known: Ingest | None, command: IngestBegin
) -> Ingest | Refused | None:
    """What a request comes to without changing anything; None if it begins a new bulk write.

    One that is under way must come to its end before a newer one begins: then this is the older one.
    """
    if command.bucket not in buckets:
        return bucket_not_found(command.bucket)
    if known is None:
        return None
    if command.version < known.version:
        return Refused("ingest_outdated", f"version {known.version} of the app {command.app!r} was seen")
    return None if command.version > known.version and known.ended else known


def begun(command: IngestBegin) -> Ingest:
    """A bulk write of which nothing is done yet."""
    return Ingest(
        command.version,
        command.objects,
        command.create_streams,
        command.content_type,
        command.drop_refused,
        ended=not command.objects,
    )


def is_next(known: Ingest | None, command: IngestRows) -> bool:
    """Whether these are the rows that come next."""
    return (
        known is not None
        and not known.ended
        and (known.version, known.object, known.row) == (command.version, command.object, command.first)
    )


def is_mistaken(bucket: Bucket, row: IngestRow) -> bool:
    """Whether the stream of a row is of another type than was assumed when the row was read."""
    if not row.assumed:
        return False
    stream = bucket.find(row.stream)
    return stream is not None and not stream.gone and stream.media_type != media_type_of(row.content_type)


class Progress:
    """What the rows of one part come to."""

    def __init__(self, ingest: Ingest, first: int) -> None:
        self._ingest = ingest
        self._row = first
        self._appended = 0
        self._refused: list[RefusedRow] = []
        self.failed = False

    def add(self, stream: str, refusal: Refused | None) -> None:
        """The next row was appended, or refused: that is the end, unless refused rows are dropped."""
        if refusal is None:
            self._appended += 1
        else:
            words = refusal.message[:REFUSED_MESSAGE_CHARACTERS]
            self._refused.append(RefusedRow(self._ingest.object, self._row, stream, refusal.code, words))
            self.failed = not self._ingest.drop_refused
        self._row += 1

    def result(self, is_end: bool) -> Ingest:
        """The bulk write after these rows, which may be the last of their object."""
        before = self._ingest
        is_end = is_end and not self.failed
        number = before.object + is_end
        return replace(
            before,
            object=number,
            row=0 if is_end else self._row,
            appended=before.appended + self._appended,
            refused_count=before.refused_count + len(self._refused),
            refused=(before.refused + tuple(self._refused))[:REFUSED_KEPT],
            ended=self.failed or number == len(before.objects),
        )
