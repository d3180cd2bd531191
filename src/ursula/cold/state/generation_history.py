"""Which positions still count: those of an earlier generation up to where the next generation began.

For the server and for Spark: the standard library only.
"""

from collections.abc import Mapping

from ...positions import GENERATION_SHIFT


class Lineage:
    """The generations that led to the current one. A restore may have gone back past several of them.

    `ended` has, by generation and group, the last position of the previous generation that counts.
    """

    def __init__(self, ended: Mapping[int, Mapping[str, int]], current: int) -> None:
        self._ended = ended
        self._current = current

    def end_before(self, group: int, position: int) -> int | None:
        """The last position that counts before this one; None if this one counts."""
        wanted, generation = position >> GENERATION_SHIFT, self._current
        while wanted < generation:
            end = self._ended.get(generation, {}).get(str(group))
            if end is None:
                return None
            if position > end and wanted >= end >> GENERATION_SHIFT:
                return end
            generation = end >> GENERATION_SHIFT
        return None
