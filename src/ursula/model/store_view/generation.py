"""A new generation: the state of a cut becomes the beginning of a log that has no entries yet."""

from collections.abc import Iterable

from ..state import State
from .store_state import Replaced, blob_key


def begin_generation(state: State, position: int, at: int, replaced: Iterable[str]) -> None:
    """Make a state that was loaded from a manifest the one at the first position of a new generation.

    Everything it has is stored, so nothing is ahead and no message is in a blob of its own. `replaced` are
    the objects that made it up until now: who goes back to the old manifest still finds them for a while.
    """
    stored = state.stored
    if stored.ahead is not None:
        state.segments.add(stored.ahead)
        stored.ahead = None
    state.position = state.cut = stored.flushed = position
    state.at = max(state.at, at)
    hidden = Replaced(position, state.at)
    stored.replaced.update(dict.fromkeys(replaced, hidden))
    stored.replaced.update({blob_key(blob): hidden for _, blob in stored.bodies})
    stored.bodies = []
    stored.chain = ()  # whoever loads it knows by its manifest which object it is
