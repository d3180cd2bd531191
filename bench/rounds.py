"""How often and in which order: every server once, then all of them again, so that a drift hits all alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Protocol

from .failure import Failed
from .results import Row
from .servers import Kind

WARM_UP_SECONDS = 1.0


class Progress(Protocol):
    """Where it is said how far a run has come."""

    def begin(self, title: str, steps: int) -> None: ...
    def step(self, text: str) -> None: ...


@dataclass(frozen=True)
class Plan:
    """How long and how often is measured, and who is told."""

    rounds: int
    seconds: float
    progress: Progress
    is_quick: bool = False
    """Whether it is only tried: what takes minutes may be done with less."""

    def at_most(self, rounds: int) -> "Plan":
        """The same with fewer rounds, for a row whose preparation takes much longer than its measurement."""
        return replace(self, rounds=min(self.rounds, rounds))

    def interleave(self, row: Row, kinds: Sequence[Kind], measure: Callable[[Kind], None]) -> None:
        """Measure each kind of server in each round. One that is missing or fails is named and left out."""
        left = [kind for kind in kinds if not _is_missing(row, kind)]
        self.progress.begin(row.title, self.rounds * len(left))
        for turn in range(self.rounds):
            for kind in tuple(left):
                self.progress.step(f"{kind.label}, round {turn + 1} of {self.rounds}")
                try:
                    measure(kind)
                except (Failed, OSError, HTTPException) as failure:
                    row.note(f"{kind.label}: {failure}")
                    left.remove(kind)
                    for figure in row.figures:
                        figure.rounds.pop(kind.name, None)


def _is_missing(row: Row, kind: Kind) -> bool:
    reason = kind.missing()
    if reason is not None:
        row.note(f"{kind.label} was not measured: {reason}")
    return reason is not None
