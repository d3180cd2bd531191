"""Recording what the store has: cuts, flushes, merges and garbage collection."""

from typing import TYPE_CHECKING

from ..commands import Collect, FlushBegin, Flushed, Merge, RequestFlush, StoredSegment
from ..deleted import DeletedStream
from ..outcomes import CutMade, Done
from ..store_view.dirty_rows import RowKind
from ..store_view.store_state import Replaced, blob_key

if TYPE_CHECKING:
    from ..state import State


def change_flush_begin(state: "State", command: FlushBegin, plan: None, index: int) -> CutMade:
    """Make the end of this entry a cut."""
    state.end_with_cut()
    return CutMade(state.position)


def change_flushed(state: "State", command: Flushed, plan: None, index: int) -> Done:
    """Record a flush: memory no longer needs what the store has."""
    stored = state.stored
    stored.flushed = command.cut
    stored.ahead = None
    if command.segment is not None:
        _add_segment(state, command.segment)
    if command.state.is_base:
        for replaced in stored.chain:
            replace_object(state, replaced.key)
        stored.chain = (command.state,)
        if stored.base_requested_at <= command.cut:
            stored.base_requested_at = 0
    else:
        stored.chain += (command.state,)
    for position, blob in stored.bodies:
        if position <= command.cut:
            replace_object(state, blob_key(blob))
    stored.bodies = [body for body in stored.bodies if body[0] > command.cut]
    parts = [part for cut, parts in state.sealed_parts if cut <= command.cut for part in parts]
    state.sealed_parts = [sealed for sealed in state.sealed_parts if sealed[0] > command.cut]
    state.residency.note_flushed(state.dirty_rows.forget_stored(command.cut), parts)
    return Done(command.cut)


def change_merge(state: "State", command: Merge, plan: None, index: int) -> Done:
    """Replace segments with one that has their rows."""
    for key in command.inputs:
        state.dirty_rows.note((RowKind.SEGMENT, key, ""))
        state.segments.remove(key)
        replace_object(state, key)
    if command.output is not None:
        _add_segment(state, command.output)
    state.stored.merged_at = state.position
    return Done(state.position)


def change_collect(state: "State", command: Collect, plan: None, index: int) -> Done:
    """Forget tombstones and replaced objects from before the horizon."""
    state.stored.horizon = max(state.stored.horizon, command.horizon)
    ended = state.deleted.before(command.horizon)
    for tombstone in ended:
        state.dirty_rows.note((RowKind.GRAVE, *tombstone.name))
    state.deleted.remove_first(ended)
    for tombstone in ended:
        _release_snapshot(state, tombstone)
    replaced = state.stored.replaced
    for key in replaced.by_time.before(command.horizon):
        if replaced[key].position <= command.manifest:
            state.dirty_rows.note((RowKind.REPLACED, key, ""))
            del replaced[key]
    return Done(state.position)


def change_request_flush(state: "State", command: RequestFlush, plan: None, index: int) -> Done:
    """Record that a flush was asked for; the `Flushed` of a later cut is the answer."""
    state.stored.flush_requested_at = state.position
    if command.base:
        state.stored.base_requested_at = state.position
    return Done(state.position)


def want_object(state: "State", key: str) -> None:
    """Mark an object of the store as needed; it may have been marked as replaced."""
    if key in state.stored.replaced:
        state.dirty_rows.note((RowKind.REPLACED, key, ""))
        del state.stored.replaced[key]


def replace_object(state: "State", key: str) -> None:
    """Mark an object of the store as replaced: nothing needs it any more."""
    state.dirty_rows.note((RowKind.REPLACED, key, ""))
    state.stored.replaced[key] = Replaced(state.position, state.at)


def _release_snapshot(state: "State", tombstone: DeletedStream) -> None:
    """Mark a tombstone's snapshot as replaced. Not earlier: older manifests need it while they are kept."""
    if tombstone.blob is not None and (key := blob_key(tombstone.blob)) in state.stored.replaced:
        replace_object(state, key)


def _add_segment(state: "State", segment: StoredSegment) -> None:
    state.dirty_rows.note((RowKind.SEGMENT, segment.key, ""))
    state.segments.add(segment)
