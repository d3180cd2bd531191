"""A new generation: the state as of a cut becomes the beginning of a log without entries."""

from collections.abc import Iterable

from ..state import State
from ..store_view.store_state import Replaced, blob_key


def begin_generation(state: State, position: int, at: int, replaced: Iterable[str]) -> None:
    """Turn a state loaded from a manifest into the first state of a new generation.

    Everything in it is stored, so nothing is ahead and no message is in a blob. `replaced` are the objects
    that made up the old checkpoint; they are kept for a while, for restores from the old manifest.
    """
    stored = state.stored
    if stored.ahead is not None:
        state.segments.add(stored.ahead)
        stored.ahead = None
    state.position = state.cut = stored.flushed = position
    state.entry_count = 0
    state.at = max(state.at, at)
    since = Replaced(position, state.at)
    stored.replaced.update(dict.fromkeys(replaced, since))
    stored.replaced.update({blob_key(blob): since for _, blob in stored.bodies})
    stored.bodies = []
    stored.chain = ()  # the next manifest names the state object
