"""The checkpoint: the state as rows, which a flush stores alongside the messages and a start loads.

A row is found by its key (see store_view/dirty_rows.py). Each is a msgpack array. stream/row.py describes the
row of a stream, deleted.py that of a tombstone and bucket_row.py that of a bucket; those of a segment, a
replaced object and a bulk write are simply their fields. The group has a row of its own (`GroupRow`) with
everything else.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from ..bucket import Bucket
from ..commands import StoredSegment
from ..deleted import DeletedStream, decode_deleted
from ..outcomes import Ingest
from ..state import State
from ..store_view.dirty_rows import Key, RowKind
from ..store_view.store_state import GROUP_ROW_VERSION, GroupRow, Replaced
from ..stream.row import RowUnreadable, read_row
from .bucket_row import decode_bucket_row, encode_bucket_row

T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode
_decode_segment = msgspec.msgpack.Decoder(StoredSegment).decode
_decode_replaced = msgspec.msgpack.Decoder(Replaced).decode
_decode_ingest = msgspec.msgpack.Decoder(Ingest).decode
_decode_group = msgspec.msgpack.Decoder(GroupRow).decode
_decode_any = msgspec.msgpack.Decoder(tuple[object, ...]).decode  # a group row of any version


def row_of(state: State, key: Key) -> bytes | None:
    """The row of a key as it is now; None if there is none."""
    kind, first, second = key
    if kind == RowKind.STREAM:
        bucket = state.buckets.get(first)
        return None if bucket is None else bucket.row(second)
    if kind == RowKind.BUCKET:
        bucket = state.buckets.get(first)
        return None if bucket is None else encode_bucket_row(bucket.position, bucket.created_at)
    if kind == RowKind.GRAVE:
        return state.deleted.row(first, second)
    if kind == RowKind.INGEST:
        ingest = state.ingests.get((first, second))
        return None if ingest is None else _encode(ingest)
    found = state.segments.get(first) if kind == RowKind.SEGMENT else state.stored.replaced.get(first)
    return None if found is None else _encode(found)


def all_keys(state: State) -> Iterator[Key]:
    """The keys of all rows, for a base; the state may change while they are iterated over."""
    yield from [(RowKind.SEGMENT, segment.key, "") for segment in state.segments]
    yield from ((RowKind.REPLACED, key, "") for key in state.stored.replaced.by_time)
    yield from ((RowKind.GRAVE, *name) for name in state.deleted.names())
    yield from [(RowKind.INGEST, *name) for name in state.ingests]
    for bucket in list(state.buckets.values()):
        yield (RowKind.BUCKET, bucket.name, "")
        for name in bucket.all_names():
            yield (RowKind.STREAM, bucket.name, name)


def group_row(state: State) -> bytes:
    """The group's own row as it is now."""
    stored = state.stored
    return _encode(
        GroupRow(
            version=GROUP_ROW_VERSION,
            group=state.group,
            position=state.position,
            at=state.at,
            flushed=stored.flushed,
            horizon=stored.horizon,
            chain=stored.chain,
            bodies=stored.bodies,
            entry_count=state.entry_count,
            entries_hash=state.entries_hash,
        )
    )


class Loader:
    """Builds a state from its rows: first those of a base, then those that changed, in order."""

    def __init__(self, group: bytes) -> None:
        version = next(iter(_read(_decode_any, group)), None)
        if version not in range(1, GROUP_ROW_VERSION + 1):
            raise RowUnreadable(
                f"the state has version {version}, and this server reads version {GROUP_ROW_VERSION}"
            )
        row = _read(_decode_group, group)
        self.state = state = State(row.group)
        state.position = state.cut = row.position
        state.at = row.at
        state.entry_count, state.entries_hash = row.entry_count, row.entries_hash
        stored = state.stored
        stored.flushed, stored.horizon = row.flushed, row.horizon
        stored.chain, stored.bodies = row.chain, row.bodies
        self.deadlines: list[tuple[str, str]] = []
        # Rows of tombstones are decoded at the end, since later objects may replace them.
        self._graves: dict[tuple[str, str], bytes] = {}
        self._linked: list[tuple[str, str, tuple[str, str] | None]] = []

    def add(self, kind: int, first: str, second: str, row: bytes | None) -> None:
        """Add or replace a row; None removes it."""
        state = self.state
        if kind == RowKind.STREAM:
            bucket = state.buckets.get(first)
            if bucket is None:
                if row is None:
                    return  # its bucket was removed too
                bucket = self._bucket(first, 0, 0)
            if row is None:
                bucket.parked.pop(second, None)
            else:
                bucket.parked[second] = row
        elif kind == RowKind.BUCKET:
            if row is None:
                state.buckets.pop(first, None)
            else:
                position, created_at = decode_bucket_row(row)
                bucket = state.buckets.get(first) or self._bucket(first, position, created_at)
                bucket.position, bucket.created_at = position, created_at
        elif kind == RowKind.SEGMENT:
            if state.segments.get(first) is not None:
                state.segments.remove(first)
            if row is not None:
                state.segments.add(_read(_decode_segment, row))
        elif kind == RowKind.REPLACED:
            state.stored.replaced.pop(first, None)
            if row is not None:
                state.stored.replaced[first] = _read(_decode_replaced, row)
        elif kind == RowKind.GRAVE:
            if row is None:
                self._graves.pop((first, second), None)
            else:
                self._graves[first, second] = row
        elif kind == RowKind.INGEST:
            state.ingests.pop((first, second), None)
            if row is not None:
                state.ingests[first, second] = _read(_decode_ingest, row)
        else:
            raise RowUnreadable(f"the state has a row of kind {kind}, which this server does not know")

    def finish(self) -> Iterator[None]:
        """Build everything that depends on several rows, one step at a time."""
        state = self.state
        for name, bucket in state.buckets.items():
            for stream, row in bucket.parked.items():
                if self._look(name, stream, row):
                    bucket.hidden[stream] = None
                yield
            bucket.names.update(stream for stream in bucket.parked if stream not in bucket.hidden)
            state.bucket_names.add(name)
            state.stream_count += len(bucket.parked)
            yield
        for tombstone, row in self._graves.items():
            for incarnation, at, kept in _read(decode_deleted, row):
                state.deleted.add(DeletedStream.of_row(tombstone, incarnation, at, kept))
                yield
        for name, stream, parent in self._linked:
            self._link(state.buckets[name], stream, parent)
            yield
        state.residency.unparked.clear()

    def _bucket(self, name: str, position: int, created_at: int) -> Bucket:
        state = self.state
        bucket = state.buckets[name] = Bucket(
            name, position, created_at, state.gauge, state.residency.unparked
        )
        bucket.journal.position = (
            state.position
        )  # everything before this is stored, and its last position is unknown
        return bucket

    def _look(self, bucket: str, stream: str, row: bytes) -> bool:
        """Note what depends on a stream: forks, deadlines, blobs; return whether it is hidden."""
        fields = read_row(row)
        if fields.parent is not None or fields.hidden:
            self._linked.append((bucket, stream, fields.parent))
        if fields.deadline is not None:
            self.deadlines.append((bucket, stream))
        if fields.snapshot is not None:
            blob = fields.snapshot[1]
            self.state.blobs[blob] = self.state.blobs.get(blob, 0) + 1
        return fields.hidden

    def _link(self, bucket: Bucket, name: str, parent: tuple[str, str] | None) -> None:
        """Unpark a stream that is hidden or is a fork, and connect it with its source."""
        stream = bucket.find(name)
        if stream is None or parent is None:
            return
        source = bucket.find(parent[0])
        if source is None or source.incarnation != parent[1]:
            raise RowUnreadable(
                f"the stream {name!r} is a fork of {parent[0]!r}, which the state does not have"
            )
        stream.parent = source
        source.fork_count += 1


def _read(decode: Callable[[bytes], T], row: bytes) -> T:
    try:
        return decode(row)
    except msgspec.MsgspecError as error:
        raise RowUnreadable(f"a state row cannot be read: {error}") from None
