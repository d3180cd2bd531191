"""The whole state as canonical bytes: two states are equal if and only if their dumps are.

Tests use it to compare replicas that applied the same log, processes with different hash seeds, a state
before and after a look, and one that was loaded from the store with one that was replayed. It is never
stored or read back, so it has no version. Names are sorted, so that the order of a dict does not matter.
Nor does it matter whether data is in memory or in the store, or which streams are parked.
"""

from typing import Any

import msgspec

from .bucket import Bucket
from .state import State

_encoder = msgspec.msgpack.Encoder()


def dump(state: State) -> bytes:
    """Everything in the state. The bytes are the same wherever the same log was applied."""
    stored = state.stored
    return _encoder.encode(
        (
            state.group,
            state.position,
            state.at,
            state.entry_count,
            state.entries_hash,
            state.stream_count,
            list(state.bucket_names),
            sorted(state.blobs.items()),
            [(key, state.deleted.row(*key)) for key in sorted(state.deleted.by_name)],
            sorted(state.ingests.items()),
            [_bucket(bucket) for _, bucket in sorted(state.buckets.items())],
            list(state.segments),
            sorted(stored.replaced.items()),
            (stored.flushed, stored.chain, stored.bodies, stored.horizon),
        )
    )


def _bucket(bucket: Bucket) -> tuple[Any, ...]:
    streams = [(name, bucket.row(name), _fork_count(bucket, name)) for name in sorted(bucket.all_names())]
    return bucket.name, bucket.position, bucket.created_at, list(bucket.names), streams


def _fork_count(bucket: Bucket, name: str) -> int:
    stream = bucket.streams.get(name)
    return 0 if stream is None else stream.fork_count
