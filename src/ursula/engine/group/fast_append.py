"""The fast path of an append in the engine: the append joins the next batch without a decision beforehand.

Most appends are one small message to a stream that exists, is open and has no deadline. For those,
`Group.propose` would find the stream, decide the append, find that it changes something and enqueue it; and
the append is decided once more when the entry is applied. So the fast path only checks that nothing is
unusual, and enqueues the append.

It skips: expiry before the command, resolving offsets from the store, `State.look`, and the wait until the
applied state is current, which only refusals need. If anything is unusual, `Group.append_fast` returns False
without having changed anything, and the request takes `Group.propose` instead.

`tests/engine/test_look_first.py` compares it with `propose` case by case. The other parts are
`http/stream/fast_append.py` and `model/change/fast_append.py`.
"""

from ...model.commands import Append
from ...model.state import State


def is_usual(state: State, command: Append) -> bool:
    """Whether the stream exists, is open, has no deadline, and has this media type."""
    bucket = state.buckets.get(command.bucket)
    if bucket is None:
        return False
    stream = bucket.streams.get(command.stream) or bucket.find(command.stream)
    if stream is None or stream.hidden or stream.closed or stream.deadline is not None:
        return False
    return stream.media_type == command.media_type
