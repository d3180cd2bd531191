"""Appending the rows of a bulk write: see `decide.bulk_write`."""

from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from ..bucket import Bucket
from ..commands import Append, Create, IngestBegin, IngestRow, IngestRows
from ..decide.bulk_write import NextRows
from ..outcomes import AnyOutcome, Appended, Created, ErrorCode, Ingest, Refused, RefusedRow, RowsIngested
from ..store_view.dirty_rows import RowKind
from ..text.media_type import media_type_of
from .store import replace_object, want_object

if TYPE_CHECKING:
    from ..state import State

REFUSED_KEPT = 1000
"""How many refused rows are listed; any others are only counted."""

REFUSED_MESSAGE_CHARACTERS = 200


def change_ingest_begin(state: "State", command: IngestBegin, plan: None, index: int) -> Ingest:
    """Begin a bulk write."""
    name = command.bucket, command.app
    state.dirty_rows.note((RowKind.INGEST, *name))
    for key in command.objects:
        want_object(state, key)
    ingest = state.ingests[name] = Ingest(
        command.version,
        command.objects,
        command.create_streams,
        command.content_type,
        command.drop_refused,
        ended=not command.objects,
    )
    return ingest


def change_ingest_rows(state: "State", command: IngestRows, plan: NextRows, index: int) -> RowsIngested:
    """Append the rows, each as if it were a command of its own."""
    name = command.bucket, command.app
    state.dirty_rows.note((RowKind.INGEST, *name))
    progress = _Progress(plan.ingest, command.first)
    incarnations: dict[str, None] = {}
    for number, row in enumerate(command.rows):
        outcome = _append_row(state, plan.bucket, row, plan.ingest.create_streams, index + number)
        progress.add(row.stream, outcome if isinstance(outcome, Refused) else None)
        if isinstance(outcome, Appended | Created):
            incarnations[outcome.incarnation] = None
        if progress.failed:
            break
    ingest = state.ingests[name] = progress.result(command.is_end)
    if ingest.ended:
        _release_staged(state, ingest)
    return RowsIngested(ingest, list(incarnations))


def _append_row(state: "State", bucket: Bucket, row: IngestRow, may_create: bool, index: int) -> AnyOutcome:
    """Append one row to its stream, creating the stream if necessary and allowed."""
    if row.problem is not None:
        code, message = row.problem
        return Refused(cast(ErrorCode, code), message)
    if may_create and bucket.find(row.stream) is None:
        return state.apply(Create(bucket.name, row.stream, row.content_type, row.messages), index)
    media_type = media_type_of(row.content_type)
    return state.apply(Append(bucket.name, row.stream, row.messages, media_type), index)


def forget_ingest(state: "State", name: tuple[str, str]) -> None:
    """Forget a bulk write whose bucket is deleted."""
    state.dirty_rows.note((RowKind.INGEST, *name))
    ingest = state.ingests.pop(name)
    if not ingest.ended:
        _release_staged(state, ingest)


def _release_staged(state: "State", ended: Ingest) -> None:
    """Release the objects of a bulk write that has ended, except those that another one needs."""
    needed = {key for ingest in state.ingests.values() if not ingest.ended for key in ingest.objects}
    for key in dict.fromkeys(ended.objects):
        if key not in needed:
            replace_object(state, key)


class _Progress:
    """The results of appending some rows of a bulk write."""

    def __init__(self, ingest: Ingest, first: int) -> None:
        self._ingest = ingest
        self._row = first
        self._appended = 0
        self._refused: list[RefusedRow] = []
        self.failed = False

    def add(self, stream: str, refusal: Refused | None) -> None:
        """Note the result of the next row. A refused row ends the bulk write unless such rows are dropped."""
        if refusal is None:
            self._appended += 1
        else:
            message = refusal.message[:REFUSED_MESSAGE_CHARACTERS]
            self._refused.append(RefusedRow(self._ingest.object, self._row, stream, refusal.code, message))
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
