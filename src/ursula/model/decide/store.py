"""The decisions about the store: cuts, flushes, merges and garbage collection."""

from typing import TYPE_CHECKING

from ..commands import Collect, FlushBegin, Flushed, Merge, RequestFlush
from ..outcomes import Ignored

if TYPE_CHECKING:
    from ..state import State


def decide_flush_begin(state: "State", command: FlushBegin) -> None:
    """A cut is always possible."""


def decide_flushed(state: "State", command: Flushed) -> Ignored | None:
    """Ignored unless the flush began where the store ends, and its objects cannot have been collected."""
    if command.start != state.stored.flushed or state.may_be_collected(command.made_at):
        return Ignored()
    return None


def decide_merge(state: "State", command: Merge) -> Ignored | None:
    """Ignored unless all inputs are live neighbours, and the output cannot have been collected."""
    if not state.segments.are_neighbours(command.inputs) or state.may_be_collected(command.made_at):
        return Ignored()
    return None


def decide_collect(state: "State", command: Collect) -> None:
    """Garbage can always be collected."""


def decide_request_flush(state: "State", command: RequestFlush) -> None:
    """A flush can always be asked for."""
