"""Why the engine could not carry out a request. A failure is never part of the state, so it is no outcome."""

from msgspec import Struct

from ..model.outcomes import Refused


class Unavailable(Struct, gc=False):
    """Certainly not written; the same request may succeed later."""

    reason: str


class OutcomeUnknown(Struct, gc=False):
    """It may or may not have been written."""

    reason: str


Failure = Unavailable | OutcomeUnknown

FELL_BEHIND = "this node fell behind, and starts again from the newest manifest"
"""Why requests that wait for the log are answered before it has: their state is dropped."""


class Superseded(Exception):
    """A restore has begun another generation of the store: this node must not write any more."""


class NotCurrent(Exception):
    """It is unknown whether the applied state has every acknowledged entry; a retry may help."""


class IngestStopped(Exception):
    """The next rows of a bulk write could not be appended; the failure says why."""

    def __init__(self, failure: Failure | Refused) -> None:
        super().__init__(str(failure))
        self.failure = failure


class SegmentUnfit(Exception):
    """A segment cannot replace others; the text says why."""


class SegmentsReplaced(Exception):
    """The segments to be replaced are no longer live."""
