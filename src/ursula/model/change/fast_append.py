"""The fast path of an append in the model: one message that is not JSON, to a stream in the usual state.

It does what `decide_append` and `change_append` do for such a command and makes no decision of its own: if
the stream is missing, deleted, closed, of another type, or has a TTL to renew, `State.apply` takes over.
Entries of early versions have an ordinary append instead, which takes the slow path to the same state.

`tests/model/driving.py` proposes every plain append of the model tests in this form, so the oracle and the
flush model check that both paths are equivalent; `tests/model/test_append.py` compares them case by case.
"""

from typing import TYPE_CHECKING

from ..commands import PlainAppend
from ..journal import NO_RECORD
from ..outcomes import AnyOutcome, Appended
from ..store_view.dirty_rows import RowKind
from .append import APPEND

if TYPE_CHECKING:
    from ..state import State


def append_fast(state: "State", command: PlainAppend, index: int) -> AnyOutcome:
    """Append the message."""
    bucket = state.buckets.get(command.bucket)
    stream = None if bucket is None else bucket.streams.get(command.stream)
    if bucket is None or stream is None or stream.hidden or stream.closed:
        return state.apply(command, index)
    if stream.media_type != command.media_type or stream.ttl_seconds is not None:
        return state.apply(command, index)
    position, cut = state.position, state.cut
    journal = bucket.journal
    if journal.position != position:
        journal = state.enter(bucket)
    if stream.dirty_at <= cut:
        state.dirty_rows.note((RowKind.STREAM, command.bucket, stream.name))
    stream.dirty_at = position
    if stream.last_ref_position <= cut:
        state.refer(stream)
    payload = command.messages[0]
    journal.add(index, APPEND, stream, stream.tail, NO_RECORD, payload)
    stream.tail = tail = stream.messages.add_one(payload)
    stream.last_write_at = state.at
    return Appended(stream.incarnation, tail, tail, False)
