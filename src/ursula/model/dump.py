"""The whole state as canonical bytes: two states are the same exactly if their dumps are.

It is for agreement: replicas that applied the same log, processes with other hash seeds, a state
before and after a look. It is not a format to keep or to read back, so it has no version. Names are
sorted, so that no order of a dict can show; arrays become lists, so that no byte order can.
"""

from typing import Any

import msgspec

from .journal import Journal
from .state import State
from .stream import Bucket, Stream

_encoder = msgspec.msgpack.Encoder()


def dump(state: State) -> bytes:
    """Everything in the state, byte for byte the same wherever the same log was applied."""
    return _encoder.encode(
        (
            state.group,
            state.position,
            state.at,
            state.stream_count,
            list(state.bucket_names),
            sorted(state.blobs.items()),
            [_bucket(bucket) for _, bucket in sorted(state.buckets.items())],
        )
    )


def _bucket(bucket: Bucket) -> tuple[Any, ...]:
    streams = [_stream(stream) for _, stream in sorted(bucket.streams.items())]
    names = list(bucket.names)
    return bucket.name, bucket.position, bucket.created_at, names, streams, _journal(bucket.journal)


def _stream(stream: Stream) -> dict[str, Any]:
    """All fields by name: one that is added to a stream is in its dump without being named here."""
    fields = {name: getattr(stream, name) for name in sorted(Stream.__slots__)}
    fields["parent"] = None if stream.parent is None else stream.parent.incarnation
    fields["producers"] = [
        (identity, known.epoch, known.seq, known.next_offset)
        for identity, known in sorted((stream.producers or {}).items())
    ]
    messages = stream.messages
    ends = messages.ends if messages.append_ends is None else messages.append_ends
    fields["messages"] = (messages.start, messages.payloads, list(messages.ends), list(ends))
    return fields


def _journal(journal: Journal) -> dict[str, Any]:
    columns = {name: getattr(journal, name) for name in sorted(Journal.__slots__)}
    columns["streams"] = [stream.incarnation for stream in journal.streams]
    columns["events"] = sorted(journal.events.items())
    return {name: value if isinstance(value, int) else list(value) for name, value in columns.items()}
