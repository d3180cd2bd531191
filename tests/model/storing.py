"""What the engine and the store do for a state, without files: objects are made up, rows go by hand."""

from collections.abc import Iterable

from ursula.model.checkpoint.checkpoint import Loader, all_keys, group_row, row_of
from ursula.model.commands import FlushBegin, Flushed, StoredSegment, StoredState
from ursula.model.outcomes import AnyOutcome
from ursula.model.state import State
from ursula.model.store_view.dirty_rows import Key

Rows = Iterable[tuple[Key, bytes | None]]


def segment(first: int, last: int, key: str | None = None) -> StoredSegment:
    """A segment of the positions after `first` up to `last`."""
    return StoredSegment(first, last, key or f"segments/{first}-{last}", 1, 100, 10, 20, 7, "sha256:aa")


def state_object(key: str, is_base: bool = False) -> StoredState:
    """State rows under a key."""
    return StoredState(key, is_base, 1, 10, "sha256:aa")


def flushed(state: State, cut: int | None = None, key: str = "", is_base: bool = False) -> Flushed:
    """The command that says that everything up to the cut, or the last one, is stored."""
    start, cut = state.stored.flushed, state.cut if cut is None else cut
    stored = state_object(f"state/{cut}{key}", is_base or not state.stored.chain)
    return Flushed(start, cut, segment(start, cut, f"segments/{start}-{cut}{key}"), stored, state.at)


def cut(state: State) -> int:
    """Make a cut with an entry of its own; returns its position."""
    state.begin(state.position + 1, state.at)
    state.apply(FlushBegin(1), 0)
    state.make_cut()
    return state.cut


def flush(state: State) -> AnyOutcome:
    """Cut, say that everything is stored, and evict it."""
    cut(state)
    state.begin(state.position + 1, state.at)
    outcome = state.apply(flushed(state), 0)
    evict_stored(state)
    return outcome


def evict_stored(state: State) -> None:
    """Evict what the store has and park what is idle, as the engine does after `Flushed`."""
    residency = state.residency
    cut, keys, parts = residency.take_evictable()
    for steps in (residency.evict(keys, cut), residency.park_unused()):
        for _ in steps:
            pass
    for name, part in parts:  # not drained: another flusher of the model may still read it
        bucket = state.buckets.get(name)
        if bucket is None:
            state.gauge.count -= part.memory_bytes
        else:
            bucket.forget_part(part)


def all_rows(state: State) -> list[tuple[Key, bytes | None]]:
    """Every row of the state as it is now."""
    return [(key, row_of(state, key)) for key in all_keys(state)]


def loaded(group: bytes, rows: Rows) -> State:
    """The state that these rows are."""
    loader = Loader(group)
    for key, row in rows:
        loader.add(*key, row)
    for _ in loader.finish():
        pass
    return loader.state


def reloaded(state: State) -> State:
    """The same state, as a start would find it in the store."""
    return loaded(group_row(state), all_rows(state))
