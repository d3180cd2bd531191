"""The fast append, engine's part: into the next batch without a decision ahead of the log.

Most appends are one small message to a stream that is there, open and without a deadline. For those,
`Group.propose` would look up the stream, decide the append, find that it changes something and queue it; what
it decides is decided once more when the entry is applied. So the fast append asks only whether everything is
as usual, and queues it.

It skips: expiry before the command, evidence from the store, `State.look`, and the wait until the applied
state is current, which only refusals need. Anything unusual makes `Group.append_fast` return False without a
trace, and the request takes `Group.propose` from its beginning.

`tests/engine/test_look_first.py` holds it equal to `propose` case by case; the other parts are
`http/stream/fast_append.py` and `model/change/fast_append.py`.
"""

from ...model.commands import Append
from ...model.state import State


def is_usual(state: State, command: Append) -> bool:
    """Whether the stream is there, open, has no deadline, and takes this media type."""
    bucket = state.buckets.get(command.bucket)
    if bucket is None:
        return False
    stream = bucket.streams.get(command.stream) or bucket.find(command.stream)
    if stream is None or stream.hidden or stream.closed or stream.deadline is not None:
        return False
    return stream.media_type == command.media_type
