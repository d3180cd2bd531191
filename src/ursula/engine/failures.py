"""What a proposal comes to when the log did not take it. Never part of the state, so not an outcome of it."""

from msgspec import Struct


class Unavailable(Struct, gc=False):
    """Certainly not written; the same request may succeed later."""

    reason: str


class OutcomeUnknown(Struct, gc=False):
    """It may or may not have been written."""

    reason: str


Failure = Unavailable | OutcomeUnknown
