"""Which positions still count: those of earlier generations do up to where the next one began from them."""

from collections.abc import Sequence

from ..cold.manifest import Generation
from ..log.seam import GENERATION_SHIFT


class Lineage:
    """The generations that led to the current one. A restore may have gone back past several of them."""

    def __init__(self, generations: Sequence[Generation], current: int) -> None:
        self._current = current
        self._ended = {found.generation: found.ended for found in generations}

    def end_before(self, group: int, position: int) -> int | None:
        """The last position that counts before one that does not; None if it counts itself."""
        wanted, generation = position >> GENERATION_SHIFT, self._current
        while wanted < generation:
            end = self._ended.get(generation, {}).get(str(group))
            if end is None:
                return None
            if position > end and wanted >= end >> GENERATION_SHIFT:
                return end
            generation = end >> GENERATION_SHIFT
        return None
