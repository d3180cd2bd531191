"""Whether the nodes that share a log have the same state: they compare the running hashes of their groups.

Every node takes samples of its hash when it has applied a certain number of entries, and knows the samples of
the others. Where they differ, the majority is right: a node that contradicts it must serve nothing. If there
is no majority, no node knows which state is right, and none may serve. A node whose sample is not known,
since it is behind or far ahead, is waited for if it could decide. A node alone has nobody to contradict it.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..model.state import State

SAMPLE_ENTRIES = 256
"""A sample is taken whenever the number of applied entries is a multiple of this."""

SAMPLES_KEPT = 16


class Sample(NamedTuple):
    """The running hash of a group after this many entries, and the position of the last of them."""

    entry_count: int
    position: int
    hash: bytes


class Samples:
    """The newest samples of one group."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._kept: deque[Sample] = deque(maxlen=SAMPLES_KEPT)

    def note_entry(self) -> None:
        """Take a sample if it is time for one; called when an entry was applied and hashed."""
        if self._state.entry_count % SAMPLE_ENTRIES == 0:
            self._kept.append(self._now())

    def newest(self) -> list[Sample]:
        """The samples that are kept, oldest first, and one as of now: so quiet nodes are compared too."""
        return [*self._kept, self._now()]

    def _now(self) -> Sample:
        state = self._state
        return Sample(state.entry_count, state.position, state.entries_hash)


class Disagreement(NamedTuple):
    """This node's sample is not that of others: of a majority, or no majority agrees on any."""

    sample: Sample
    majority_differs: bool

    def explain(self, group: int) -> str:
        """What happened, and what to do."""
        place = f"after {self.sample.entry_count} entries, at position {self.sample.position}"
        restart = (
            "stop it, remove its local state and start it again, so that it loads the state of the store"
        )
        if self.majority_differs:
            return (
                f"the state of group {group} on this node is not that of most other nodes {place}: this node "
                f"serves nothing of it, since that may be wrong; {restart}"
            )
        return (
            f"the nodes have different states of group {group} {place}, and no majority agrees on one: none "
            "of them serves anything of it, since that may be wrong; find the nodes that are wrong, and for "
            f"each {restart}"
        )


def find_disagreement(own: Sequence[Sample], others: Mapping[str, Sequence[Sample]]) -> Disagreement | None:
    """Why this node must not serve, given its samples and those of the other nodes; None if it may."""
    by_count = [{sample.entry_count: sample for sample in samples} for samples in others.values() if samples]
    for sample in own:
        found = [samples[sample.entry_count] for samples in by_count if sample.entry_count in samples]
        if all(one == sample for one in found):
            continue
        unknown = len(by_count) - len(found)  # still behind, or too far ahead to have kept this sample
        total = 1 + len(found) + unknown
        largest, votes = Counter((sample, *found)).most_common(1)[0]
        if 2 * votes > total:
            if largest != sample:
                return Disagreement(sample, majority_differs=True)
        elif 2 * (votes + unknown) <= total:
            return Disagreement(sample, majority_differs=False)
    return None
