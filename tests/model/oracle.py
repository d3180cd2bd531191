"""What streams are, said as simply as possible: each holds all its bytes, and a fork copies everything.

Slow on purpose, and shares nothing with the model but its commands and outcomes. What was trimmed is
still there, behind a mark; so an ordinal is an index of a list. Of a refusal it has the code and the
fields that a client must get with it, never the text.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from ursula.model.commands import (
    AnyCommand,
    Append,
    Collect,
    Create,
    CreateBucket,
    Delete,
    DeleteBucket,
    Expire,
    FlushBegin,
    Flushed,
    ForkPoint,
    IfMatch,
    IngestBegin,
    IngestRows,
    Merge,
    Producer,
    PublishSnapshot,
    Renew,
    RequestFlush,
    SetAttributes,
    StoredSegment,
    StoredState,
    Trim,
    Undelete,
)
from ursula.model.outcomes import (
    AnyOutcome,
    Appended,
    AttributesSet,
    BucketCreated,
    BucketDeleted,
    Created,
    CutMade,
    Done,
    Ended,
    Ignored,
    Refused,
    Renewed,
    Snapshot,
    SnapshotPublished,
    StreamTrimmed,
    Undeleted,
)


@dataclass(frozen=True)
class Row:
    """One line of a bucket's journal."""

    position: int
    at: int
    index: int
    kind: str
    stream: str
    incarnation: str
    offset: int
    next_offset: int
    record: int | None
    payload: bytes | None
    producer: tuple[str, int, int] | None
    event: dict[str, Any] | None = None


@dataclass(eq=False)
class OracleStream:
    """A stream with its whole content: a list of appends, each a list of messages."""

    name: str
    incarnation: str
    content_type: str
    ttl_seconds: int | None
    expires_at: int | None
    deadline: int | None
    created_at: int
    last_write_at: int
    appends: list[list[bytes]] = field(default_factory=list)
    closed: bool = False
    closed_by: Producer | None = None
    stream_seq: str | None = None
    producers: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    parent: "OracleStream | None" = None
    fork: ForkPoint | None = None
    hidden: bool = False
    earliest: int = 0
    snapshot: Snapshot | None = None
    attributes: bytes | None = None

    @property
    def is_json(self) -> bool:
        return media(self.content_type) == "application/json"

    @property
    def messages(self) -> list[bytes]:
        return [message for append in self.appends for message in append]

    @property
    def content(self) -> bytes:
        return b"".join(self.messages)

    @property
    def tail(self) -> int:
        return len(self.content)

    @property
    def boundaries(self) -> list[int]:
        """Every offset at which a message begins or ends."""
        offsets = [0]
        for message in self.messages:
            offsets.append(offsets[-1] + len(message))
        return offsets

    @property
    def append_ends(self) -> list[int]:
        """Where each append ends."""
        return [len(b"".join(m for a in self.appends[: n + 1] for m in a)) for n in range(len(self.appends))]

    def records_before(self, offset: int) -> int:
        """How many messages end at or before the offset."""
        return sum(boundary <= offset for boundary in self.boundaries[1:])

    @property
    def kept(self) -> list[bytes]:
        """The messages that are still to be read."""
        return self.messages[self.records_before(self.earliest) :]

    def before(self, offset: int) -> list[list[bytes]]:
        """A copy of the content up to the offset."""
        kept, position = [], 0
        for append in self.appends:
            part = []
            for message in append:
                piece = message[: max(0, offset - position)]
                position += len(message)
                if piece:
                    part.append(piece)
            if part:
                kept.append(part)
        return kept

    def slide(self, at: int) -> None:
        """A write or a read at this time moves the window, never backwards."""
        if self.ttl_seconds is not None:
            self.deadline = max(self.deadline or 0, at + self.ttl_seconds * 1_000_000)


@dataclass
class OracleBucket:
    position: int
    created_at: int
    streams: dict[str, OracleStream] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)


@dataclass(eq=False)
class OracleGrave:
    """A stream that has ended, and when."""

    bucket: str
    stream: OracleStream
    at: int


class Oracle:
    """The same commands, the same outcomes, in the plainest way."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.position = 0
        self.at = 0
        self.buckets: dict[str, OracleBucket] = {}
        self.blobs_once_shown: set[str] = set()
        self.deleted: list[OracleGrave] = []
        self.cutting = False
        self.cuts: list[int] = []
        self.flushed = 0
        self.horizon = 0
        self.segments: list[StoredSegment] = []
        self.chain: list[StoredState] = []
        self.replaced: dict[str, tuple[int, int]] = {}
        self.collected: set[str] = set()

    @property
    def blobs_shown(self) -> list[str]:
        """The blob of every snapshot that a client sees, as often as it does."""
        streams = [stream for bucket in self.buckets.values() for stream in bucket.streams.values()]
        return [stream.snapshot.blob for stream in streams if stream.snapshot and not stream.hidden]

    def begin(self, position: int, at: int) -> None:
        if self.cutting:
            self.cuts.append(self.position)
            self.cutting = False
        self.position = position
        self.at = max(self.at, at)

    def apply(self, command: AnyCommand, index: int, unsplit: bool = False) -> AnyOutcome:
        """Do the command; `unsplit`: its body could not be split into messages."""
        outcome = self._apply(command, index, unsplit)
        shown = {f"blobs/{blob}" for blob in self.blobs_shown}
        for key in {f"blobs/{blob}" for blob in self.blobs_once_shown} - shown - self.collected:
            self.replaced.setdefault(key, (self.position, self.at))
        for key in shown & self.replaced.keys():
            del self.replaced[key]
        return outcome

    def _apply(self, command: AnyCommand, index: int, unsplit: bool) -> AnyOutcome:
        match command:
            case IngestBegin() | IngestRows():
                raise NotImplementedError("bulk writes have tests of their own")
            case CreateBucket():
                if command.bucket in self.buckets:
                    return Refused("bucket_exists", "")
                self.buckets[command.bucket] = OracleBucket(self.position, self.at)
                return BucketCreated(command.bucket)
            case DeleteBucket():
                if command.bucket not in self.buckets:
                    return Refused("bucket_not_found", "")
                if self.buckets[command.bucket].streams:
                    return Refused("bucket_not_empty", "")
                del self.buckets[command.bucket]
                return BucketDeleted(command.bucket)
            case Create():
                return self._create(command, index, unsplit)
            case Append():
                return self._append(command, index, unsplit)
            case Delete() | SetAttributes() | PublishSnapshot() | Trim():
                found = self.visible(command.bucket, command.stream)
                if isinstance(found, Refused):
                    return found
                if command.incarnation not in {None, found.incarnation}:
                    return Refused("incarnation_mismatch", "")
                if isinstance(command, Delete):
                    return self._end(command.bucket, found, "delete", index)
                if isinstance(command, SetAttributes):
                    return self._set_attributes(found, command, index)
                if isinstance(command, PublishSnapshot):
                    return self._publish(found, command, index)
                return refuse_trim(found, command) or self._trim(found, command, index)
            case Expire():
                found = self.visible(command.bucket, command.stream)
                if isinstance(found, Refused) or found.incarnation != command.incarnation:
                    return Ignored()
                if found.deadline != command.deadline:
                    return Ignored()
                return self._end(command.bucket, found, "expire", index)
            case Renew():
                found = self.visible(command.bucket, command.stream)
                if isinstance(found, Refused) or found.incarnation != command.incarnation:
                    return Ignored()
                if found.ttl_seconds is None:
                    return Ignored()
                found.slide(command.seen_at)
                return Renewed(found.deadline or 0)
            case Undelete():
                return self._undelete(command, index)
            case FlushBegin():
                self.cutting = True
                return CutMade(self.position)
            case Flushed():
                return self._flushed(command)
            case Merge():
                return self._merge(command)
            case Collect():
                return self._collect(command)
            case RequestFlush():
                return Done(self.position)

    def visible(self, bucket: str, name: str) -> OracleStream | Refused:
        """The stream that a client sees at a name, or why it sees none."""
        if bucket not in self.buckets:
            return Refused("bucket_not_found", "")
        stream = self.buckets[bucket].streams.get(name)
        if stream is None:
            return Refused("stream_not_found", "")
        return Refused("stream_gone", "") if stream.hidden else stream

    def read(
        self, bucket: str, name: str, offset: int, bytes_max: int, whole: bool
    ) -> Refused | tuple[list[bytes], int, int]:
        """The pieces of messages that a read gives, where it begins and where it ends."""
        stream = self.visible(bucket, name)
        if isinstance(stream, Refused):
            return stream
        offset = {-1: stream.earliest, -2: stream.tail}.get(offset, offset)
        if offset < stream.earliest:
            return Refused("offset_trimmed", "", earliest=stream.earliest)
        if offset > stream.tail:
            return Refused("offset_beyond_tail", "")
        if stream.is_json and offset not in stream.boundaries:
            return Refused("invalid_offset", "")
        if not (whole or stream.is_json):
            piece = stream.content[offset : offset + bytes_max]
            return ([piece] if piece else []), offset, offset + len(piece)
        pieces, position = [], 0
        for message in stream.messages:
            pieces.append(message[max(0, offset - position) :])
            position += len(message)
        taken = that_fit([piece for piece in pieces if piece], bytes_max)
        return taken, offset, offset + len(b"".join(taken))

    def read_records(
        self,
        bucket: str,
        name: str,
        record: int | None,
        tail_records: int | None,
        records_max: int,
        bytes_max: int,
    ) -> Refused | tuple[list[bytes], int, int]:
        """The messages that a read by ordinals gives, the ordinal of the first, and its offset."""
        stream = self.visible(bucket, name)
        if isinstance(stream, Refused):
            return stream
        if not stream.is_json:
            return Refused("invalid_parameter", "")
        first, following = stream.records_before(stream.earliest), len(stream.messages)
        if record is None:
            record = max(first, following - (tail_records or 0))
        if record < first:
            return Refused("record_trimmed", "", earliest=stream.earliest)
        if record > following:
            return Refused("record_beyond_next", "")
        taken = that_fit(stream.messages[record : record + records_max], bytes_max)
        return taken, record, stream.boundaries[record]

    def list_streams(self, bucket: str, prefix: str, after: str) -> list[OracleStream]:
        """All streams that a client sees in a bucket, of those asked for."""
        visible = [stream for stream in self.buckets[bucket].streams.values() if not stream.hidden]
        asked = [s for s in visible if s.name.startswith(prefix) and s.name.encode() > after.encode()]
        return sorted(asked, key=lambda stream: stream.name.encode())

    def _append(self, command: Append, index: int, unsplit: bool) -> AnyOutcome:
        stream = self.visible(command.bucket, command.stream)
        if isinstance(stream, Refused):
            return stream
        producer = command.producer
        has_body = bool(command.messages) or unsplit
        if command.incarnation not in {None, stream.incarnation}:
            return Refused("incarnation_mismatch", "")
        if stream.closed:
            if producer is not None and producer == stream.closed_by:
                return self._appended(stream, command, stream.tail, True, producer.epoch, producer.seq)
            if producer is None and command.close and not has_body:
                return self._appended(stream, command, stream.tail, True)
            return Refused("stream_closed", "", stream.incarnation, stream.tail, True)
        if has_body and command.media_type != media(stream.content_type):
            return Refused("content_type_mismatch", "")
        known = stream.producers.get(producer.id) if producer is not None else None
        if producer is not None and known is not None:
            epoch, seq, end = known
            if producer.epoch == epoch and producer.seq == seq:
                return self._appended(stream, command, end, True, epoch, seq)
            if producer.epoch == epoch and producer.seq < seq:
                return Appended(stream.incarnation, stream.tail, stream.tail, stream.closed, True, epoch, seq)
        if command.if_match is not None and not allows(command.if_match, stream):
            return Refused("precondition_failed", "")
        if command.record_match is not None:
            following = len(stream.messages) if stream.is_json else None
            if command.record_match != following:
                return Refused("precondition_failed", "")
        refusal = fenced(producer, known)
        if refusal is not None:
            return refusal
        if None not in {command.stream_seq, stream.stream_seq} and seq_bytes(command) <= seq_bytes(stream):
            return Refused("stream_seq_conflict", "")
        if unsplit:
            return Refused("invalid_json", "")
        self._write(stream, command, index)
        stream.slide(self.at)
        if producer is None:
            return self._appended(stream, command, stream.tail, False)
        return self._appended(stream, command, stream.tail, False, producer.epoch, producer.seq)

    def _appended(
        self,
        stream: OracleStream,
        command: Append,
        next_offset: int,
        duplicate: bool,
        epoch: int | None = None,
        seq: int | None = None,
    ) -> Appended:
        """The outcome of a request that ended at this offset, now or when it was first tried."""
        outcome = Appended(stream.incarnation, stream.tail, next_offset, stream.closed, duplicate, epoch, seq)
        if stream.is_json and next_offset >= stream.earliest:
            outcome.record_next = stream.records_before(next_offset)
            outcome.record_start = outcome.record_next - len(command.messages)
        return outcome

    def _write(self, stream: OracleStream, command: Append | Create, index: int) -> None:
        """The messages, the producer and the closing; all was checked before."""
        producer = command.producer
        for message in command.messages:
            self._row(
                command.bucket,
                stream,
                "append",
                index,
                offset=stream.tail,
                record=len(stream.messages) if stream.is_json else None,
                payload=message,
                producer=producer,
            )
            stream.appends.append([message])
            stream.last_write_at = self.at
        if command.messages:
            del stream.appends[-len(command.messages) :]
            counts = command.counts if isinstance(command, Append) else ()
            left = list(command.messages)
            if counts and stream.is_json:
                self._mark_frames(command.bucket, counts)
            for count in counts or (len(left),):
                stream.appends.append(left[:count])
                del left[:count]
        if isinstance(command, Append) or command.messages:
            if producer is not None:
                stream.producers[producer.id] = (producer.epoch, producer.seq, stream.tail)
            if command.stream_seq is not None:
                stream.stream_seq = command.stream_seq
        if command.close:
            stream.closed = True
            stream.closed_by = producer if isinstance(command, Append) or command.messages else None
            self._row(command.bucket, stream, "close", index)

    def _mark_frames(self, bucket: str, counts: tuple[int, ...]) -> None:
        """The first message of each append of a JSON batch, but of the first, says that it is one."""
        rows = self.buckets[bucket].rows
        first = len(rows) - sum(counts)
        for frame, count in enumerate(counts):
            if frame:
                rows[first] = replace(rows[first], event={"frame": frame})
            first += count

    def _create(self, command: Create, index: int, unsplit: bool) -> AnyOutcome:
        bucket = self.buckets.get(command.bucket)
        if bucket is None and not command.make_bucket:
            return Refused("bucket_not_found", "")
        streams = {} if bucket is None else bucket.streams
        existing = streams.get(command.stream)
        seen = None if existing is None or existing.hidden else existing
        if command.incarnation is not None and (seen is None or seen.incarnation != command.incarnation):
            return Refused("incarnation_mismatch", "")
        if command.if_match is not None and (seen is None or not allows(command.if_match, seen)):
            return Refused("precondition_failed", "")
        if existing is not None:
            if seen is None or not as_asked(existing, command):
                return Refused("stream_exists", "")
            return self._created(existing, new=False)
        content_type, ttl, expires = command.content_type, command.ttl_seconds, command.expires_at
        source, shared, earliest = None, [], 0
        snapshot: Snapshot | None = None
        if command.fork is not None:
            source = streams.get(command.fork.source)
            if source is None:
                return Refused("stream_not_found", "")
            if source.hidden:
                return Refused("stream_exists", "")
            if content_type is not None and media(content_type) != media(source.content_type):
                return Refused("content_type_mismatch", "")
            offset = fork_offset(source, command.fork)
            if isinstance(offset, Refused):
                return offset
            earliest = source.earliest
            if source.snapshot is not None and source.snapshot.offset <= offset:
                snapshot = source.snapshot
            shared = source.before(offset)
            content_type = content_type or source.content_type
            if ttl is None and expires is None:
                ttl, expires = source.ttl_seconds, source.expires_at
        if command.messages or unsplit:
            refusal = fenced(command.producer, None)
            if refusal is not None:
                return refusal
        if unsplit:
            return Refused("invalid_json", "")
        stream = OracleStream(
            command.stream,
            f"{self.group}-{self.position}-{index}",
            content_type or "application/octet-stream",
            ttl,
            expires,
            expires,
            self.at,
            self.at,
            appends=shared,
            parent=source,
            fork=command.fork,
            earliest=earliest,
            snapshot=snapshot,
            attributes=None if command.attributes == b"{}" else command.attributes,
        )
        if command.fork is not None and command.fork.offset is None:
            stream.fork = ForkPoint(command.fork.source, stream.tail, command.fork.sub_offset)
        stream.slide(self.at)
        if bucket is None:
            bucket = self.buckets[command.bucket] = OracleBucket(self.position, self.at)
        bucket.streams[command.stream] = stream
        told: dict[str, Any] = {"ttl_seconds": ttl, "expires_at": expires, "attributes": None}
        if source is not None:
            told |= {"source": source.name, "offset": stream.tail}
        if stream.attributes is not None:
            told["attributes"] = msgspec.json.decode(stream.attributes)
        event = {name: value for name, value in told.items() if value is not None}
        self._row(command.bucket, stream, "create" if source is None else "fork", index, event=event or None)
        self._write(stream, command, index)
        return self._created(stream, new=True, written=len(command.messages))

    def _created(self, stream: OracleStream, new: bool, written: int = 0) -> Created:
        outcome = Created(
            new, stream.incarnation, stream.content_type, stream.tail, stream.closed, stream.deadline
        )
        if stream.is_json:
            outcome.record_next = len(stream.messages)
            outcome.record_start = outcome.record_next - written
        return outcome

    def _set_attributes(self, stream: OracleStream, command: SetAttributes, index: int) -> AttributesSet:
        if command.attributes != (stream.attributes or b"{}"):
            stream.attributes = None if command.attributes == b"{}" else command.attributes
            event = {"attributes": msgspec.json.decode(command.attributes)}
            self._row(command.bucket, stream, "attributes", index, event=event)
        return AttributesSet(stream.incarnation)

    def _publish(
        self, stream: OracleStream, command: PublishSnapshot, index: int
    ) -> SnapshotPublished | Refused:
        refusal = refuse_publish(stream, command)
        if refusal is not None:
            return refusal
        again = stream.snapshot is not None and stream.snapshot.offset == command.offset
        if not again:
            stream.snapshot = Snapshot(
                command.offset, command.blob, command.content_type, command.size, command.digest
            )
            self.blobs_once_shown.add(command.blob)
            event = {name: getattr(command, name) for name in ("offset", "content_type", "size", "digest")}
            event["blob"] = command.blob
            self._row(command.bucket, stream, "snapshot", index, command.offset, event=event)
        if command.trim:
            self._trim(stream, command, index)
        return SnapshotPublished(
            stream.incarnation, stream.tail, stream.closed, command.offset, command.digest, again
        )

    def _trim(self, stream: OracleStream, command: Trim | PublishSnapshot, index: int) -> StreamTrimmed:
        if command.offset > stream.earliest:
            stream.earliest = command.offset
            event = {"earliest": command.offset}
            self._row(command.bucket, stream, "trim", index, command.offset, event=event)
        return StreamTrimmed(stream.incarnation, stream.tail, stream.closed, stream.earliest)

    def _end(self, bucket: str, stream: OracleStream, kind: str, index: int) -> Ended:
        self._row(bucket, stream, kind, index)
        stream.hidden = True
        self.deleted.append(OracleGrave(bucket, stream, self.at))
        streams = self.buckets[bucket].streams
        while True:
            needed = [other.parent for other in streams.values()]
            freed = [name for name, other in streams.items() if other.hidden and other not in needed]
            if not freed:
                return Ended(stream.incarnation)
            for name in freed:
                del streams[name]

    def _undelete(self, command: Undelete, index: int) -> Undeleted | Refused:
        bucket = self.buckets.get(command.bucket)
        streams = {} if bucket is None else bucket.streams
        taken = streams.get(command.stream)
        deleted = [
            tombstone
            for tombstone in self.deleted
            if (tombstone.bucket, tombstone.stream.name) == (command.bucket, command.stream)
            and command.incarnation in {None, tombstone.stream.incarnation}
        ]
        stream = deleted[-1].stream if deleted else None
        if taken is not None and taken is not stream:
            return Refused("stream_exists", "")
        if stream is None:
            return Refused("stream_not_found", "")
        if taken is None and stream.parent is not None and stream.parent not in streams.values():
            return Refused("stream_not_found", "")
        self.deleted.remove(deleted[-1])
        if bucket is None:
            bucket = self.buckets[command.bucket] = OracleBucket(self.position, self.at)
        bucket.streams[stream.name] = stream
        stream.hidden = False
        if stream.expires_at is not None and stream.expires_at <= self.at:
            stream.expires_at = stream.deadline = None
        stream.slide(self.at)
        self._row(command.bucket, stream, "undelete", index)
        return Undeleted(stream.incarnation, stream.tail, stream.closed, stream.deadline)

    def _flushed(self, command: Flushed) -> Done | Ignored:
        if command.start != self.flushed or command.made_at < self.horizon:
            return Ignored()
        self.flushed = command.cut
        if command.segment is not None:
            self.segments.append(command.segment)
        if command.state.is_base:
            for state in self.chain:
                self.replaced[state.key] = (self.position, self.at)
            self.chain = []
        self.chain.append(command.state)
        return Done(command.cut)

    def _merge(self, command: Merge) -> Done | Ignored:
        keys = [segment.key for segment in self.segments]
        count = len(command.inputs)
        places = [at for at in range(len(keys)) if tuple(keys[at : at + count]) == command.inputs]
        if not places or command.made_at < self.horizon:
            return Ignored()
        merged = [] if command.output is None else [command.output]
        self.segments[places[0] : places[0] + count] = merged
        for key in command.inputs:
            self.replaced[key] = (self.position, self.at)
        return Done(self.position)

    def _collect(self, command: Collect) -> Done:
        self.horizon = max(self.horizon, command.horizon)
        for snapshot in [
            tombstone.stream.snapshot for tombstone in self.deleted if tombstone.at < command.horizon
        ]:
            if snapshot is not None and (key := f"blobs/{snapshot.blob}") in self.replaced:
                self.replaced[key] = (self.position, self.at)
        self.deleted = [tombstone for tombstone in self.deleted if tombstone.at >= command.horizon]
        for key, (position, at) in list(self.replaced.items()):
            if at < command.horizon and position <= command.manifest:
                del self.replaced[key]
                self.collected.add(key)
        return Done(self.position)

    def _row(
        self,
        bucket: str,
        stream: OracleStream,
        kind: str,
        index: int,
        offset: int | None = None,
        record: int | None = None,
        payload: bytes | None = None,
        producer: Producer | None = None,
        event: dict[str, Any] | None = None,
    ) -> None:
        start = stream.tail if offset is None else offset
        self.buckets[bucket].rows.append(
            Row(
                self.position,
                self.at,
                index,
                kind,
                stream.name,
                stream.incarnation,
                start,
                start + len(payload or b""),
                record,
                payload,
                None if producer is None else (producer.id, producer.epoch, producer.seq),
                event,
            )
        )


def media(content_type: str) -> str:
    """What of a content type is compared."""
    return content_type.split(";", maxsplit=1)[0].strip().lower()


def that_fit(messages: list[bytes], bytes_max: int) -> list[bytes]:
    """As many of the messages as fit, but at least one if there is one."""
    count = min(1, len(messages))
    while count < len(messages) and len(b"".join(messages[: count + 1])) <= bytes_max:
        count += 1
    return messages[:count]


def refuse_publish(stream: OracleStream, command: PublishSnapshot) -> Refused | None:
    """Why a snapshot cannot be published."""
    visible = stream.snapshot
    if visible is not None and command.offset == visible.offset:
        same = command.digest == visible.digest
        return None if same else Refused("snapshot_conflict", "")
    if command.offset < stream.earliest:
        return Refused("offset_trimmed", "", earliest=stream.earliest)
    if command.offset > stream.tail or (visible is not None and command.offset < visible.offset):
        return Refused("snapshot_conflict", "")
    return None if command.offset in stream.boundaries else Refused("invalid_offset", "")


def refuse_trim(stream: OracleStream, command: Trim) -> Refused | None:
    """Why a stream cannot be trimmed there."""
    if stream.snapshot is None or not stream.earliest <= command.offset <= stream.snapshot.offset:
        return Refused("snapshot_conflict", "")
    return None if command.offset in stream.boundaries else Refused("invalid_offset", "")


def seq_bytes(holder: Append | OracleStream) -> bytes:
    return (holder.stream_seq or "").encode()


def allows(condition: IfMatch, stream: OracleStream) -> bool:
    now = (stream.incarnation, stream.tail, stream.closed)
    return condition.any_version or now in [(v.incarnation, v.tail, v.closed) for v in condition.versions]


def fenced(producer: Producer | None, known: tuple[int, int, int] | None) -> Refused | None:
    """Why a producer's request that is no duplicate is refused."""
    if producer is None:
        return None
    expected = 0
    if known is not None:
        if producer.epoch < known[0]:
            return Refused("producer_epoch_stale", "", epoch=known[0])
        if producer.epoch > known[0] and producer.seq != 0:
            return Refused("producer_headers_invalid", "")
        expected = known[1] + 1 if producer.epoch == known[0] else 0
    if producer.seq != expected:
        return Refused("producer_seq_conflict", "", expected_seq=expected, received_seq=producer.seq)
    return None


def as_asked(stream: OracleStream, command: Create) -> bool:
    """Whether a repeated creation asks for what is there."""
    content_type, lifetime = command.content_type, (command.ttl_seconds, command.expires_at)
    if command.fork is not None and stream.parent is not None:
        content_type = content_type or stream.parent.content_type
        if lifetime == (None, None):
            lifetime = (stream.parent.ttl_seconds, stream.parent.expires_at)
    fork = command.fork
    if fork is not None and fork.offset is None and stream.fork is not None:
        fork = ForkPoint(fork.source, stream.fork.offset, fork.sub_offset)
    return (
        media(content_type or "application/octet-stream") == media(stream.content_type)
        and lifetime == (stream.ttl_seconds, stream.expires_at)
        and command.close == stream.closed
        and fork == stream.fork
        and command.attributes in {None, stream.attributes or b"{}"}
    )


def fork_offset(source: OracleStream, point: ForkPoint) -> int | Refused:
    """Where in the source a fork leaves it."""
    offset = source.tail if point.offset is None else point.offset
    if offset > source.tail:
        return Refused("offset_beyond_tail", "")
    if offset < source.earliest:
        return Refused("offset_trimmed", "", earliest=source.earliest)
    if source.is_json and offset not in source.boundaries:
        return Refused("invalid_offset", "")
    if point.sub_offset == 0:
        return offset
    start = 0
    for append in source.appends:
        end = start + len(b"".join(append))
        if start <= offset < end:
            if not source.is_json and offset + point.sub_offset <= end:
                return offset + point.sub_offset
            later = [boundary for boundary in source.boundaries if offset < boundary <= end]
            if source.is_json and point.sub_offset <= len(later):
                return later[point.sub_offset - 1]
        start = end
    return Refused("invalid_offset", "")
