"""The state machine of a group: `apply` in log order, and `look` ahead of the log.

Deterministic: the same commands at the same positions and times give the same state and the same
outcomes, on every replica and in every process. No clock, no randomness, no I/O, and no iteration
over anything whose order could differ.
"""

from collections.abc import Callable
from typing import Any

from .bucket import Bucket
from .codec import events
from .commands import (
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
    IngestBegin,
    IngestRow,
    IngestRows,
    Merge,
    PlainAppend,
    PublishSnapshot,
    Renew,
    SetAttributes,
    Trim,
    Undelete,
)
from .deleted import Grave
from .journal import Journal, Kind
from .keeping import Keeping
from .outcomes import (
    AnyOutcome,
    Appended,
    AttributesSet,
    BucketCreated,
    BucketDeleted,
    Created,
    Ended,
    Ignored,
    Ingest,
    Refused,
    Renewed,
    RowsIngested,
    Snapshot,
    Undeleted,
)
from .store_view.dirty_rows import RowKind
from .stream.row import decode_stream, read_row
from .stream.stream import Stream
from .text.attributes import NO_ATTRIBUTES
from .text.media_type import JSON, media_type_of
from .transitions.append import (
    bucket_not_found,
    decide_append,
    message_count,
    write,
)
from .transitions.bulk_write import Progress, begun, decide_ingest, is_mistaken, is_next
from .transitions.create import created, decide_create
from .transitions.fast_append import append_fast
from .transitions.snapshot import decide_publish, decide_trim, published, trimmed

REFS_MAX = 16
"""With more than these a stream looks for some that lead to the same segment."""


class State(Keeping):
    """The contents of a group, and how commands change them."""

    def begin(self, position: int, at: int) -> None:
        """Go to the next log entry. Time never runs backwards, whatever the proposer's clock says."""
        if self._cutting:
            self.make_cut()
        self.position = position
        self.at = max(self.at, at)

    def apply(self, command: AnyCommand, index: int) -> AnyOutcome:
        """Do one command of the entry begun last: decide, then change everything at once."""
        return _APPLY[type(command)](self, command, index)

    def apply_all(self, commands: list[AnyCommand]) -> list[AnyOutcome]:
        """Do all commands of the entry begun last. Most are plain appends: they are spared one call."""
        apply = self.apply
        return [
            append_fast(self, command, index) if type(command) is PlainAppend else apply(command, index)
            for index, command in enumerate(commands)
        ]

    def look(self, command: AnyCommand, unsplit: str | None = None) -> AnyOutcome | None:
        """What the command would come to without changing anything; None if it would change something."""
        if type(command) is Append:
            verdict = decide_append(self.buckets, command, unsplit)
            return None if type(verdict) is Stream else verdict  # type: ignore[return-value]
        if isinstance(command, SetAttributes | PublishSnapshot | Trim):
            target = self.visible(command.bucket, command.stream, command.incarnation)
            return target if isinstance(target, Refused) else self._settled(target, command)
        if isinstance(command, Create):
            plan = decide_create(self.buckets, command, unsplit)
            return plan if isinstance(plan, Created | Refused) else None
        if isinstance(command, CreateBucket):
            return self._bucket_exists(command)
        if isinstance(command, Delete):
            found = self.visible(command.bucket, command.stream, command.incarnation)
            return found if isinstance(found, Refused) else None
        if isinstance(command, Expire):
            return None if self._expirable(command) is not None else Ignored()
        if isinstance(command, Renew):
            stream = self._renewable(command)
            if stream is None:
                return Ignored()
            if stream.deadline_after(command.seen_at) == stream.deadline:
                return Renewed(stream.deadline or 0)
            return None
        if isinstance(command, Undelete):
            grave = self._revivable(command)
            return grave if isinstance(grave, Refused) else None
        if isinstance(command, IngestBegin):
            return decide_ingest(self.buckets, self.ingests.get((command.bucket, command.app)), command)
        if isinstance(command, IngestRows):
            known = self.ingests.get((command.bucket, command.app))
            return None if is_next(known, command) else Ignored()
        return self._undeletable(command) if isinstance(command, DeleteBucket) else None

    # Before a change

    def _touch(self, bucket: str, stream: Stream) -> None:
        """A stream is about to change."""
        if stream.changed <= self.cut:
            self.changes.note((RowKind.STREAM, bucket, stream.name))
        stream.changed = self.position

    def enter(self, bucket: Bucket) -> Journal:
        """The bucket's journal, ready for rows of the entry begun last."""
        journal = bucket.journal
        if journal.position == self.position:
            return journal
        if journal.position <= self.cut:
            if len(journal):
                bucket.parts.append(journal)
            journal = bucket.journal = Journal(self.gauge)
            self.parts.append((bucket.name, journal))
        journal.enter(self.position, self.at)
        return journal

    def refer(self, stream: Stream) -> None:
        """A stream is about to get its first message after a cut."""
        refs = stream.refs
        if refs is not None and len(refs) >= 3 * REFS_MAX:
            stream.keep_refs(self._needed_refs(stream))
        stream.refer(self.position)

    def _needed_refs(self, stream: Stream) -> list[int]:
        """Which refs lead to a segment of their own, or to none yet; by number. One may be gone for good."""
        needed, before = [], None
        for number, position in enumerate(stream.refs[1::3] if stream.refs is not None else ()):
            segment = self.segments.at(position)
            is_gone = segment is None and position <= self.stored.flushed
            if not is_gone and (segment is None or segment is not before):
                needed.append(number)
            before = segment
        return needed

    # One function per command

    def append(self, command: Append, index: int) -> AnyOutcome:
        """Add messages to a stream, close it, or both."""
        stream = decide_append(self.buckets, command)
        if type(stream) is not Stream:
            return stream  # type: ignore[return-value]
        if command.body is not None and self._too_old(command.body.made_at):
            return _stored_too_long_ago()
        bucket = self.buckets[command.bucket]
        if bucket.journal.position != self.position:
            self.enter(bucket)
        if stream.changed <= self.cut:
            self.changes.note((RowKind.STREAM, command.bucket, stream.name))
        stream.changed = self.position
        if command.body is not None:
            self.stored.bodies.append((self.position, command.body.blob))
        if stream.referred <= self.cut and (command.messages or command.body is not None):
            self.refer(stream)
        write(bucket, stream, command, index, self.at, command.counts)
        producer = command.producer
        if command.close:
            self._close(bucket, stream, command, index)
        outcome = Appended(stream.incarnation, stream.tail, stream.tail, stream.closed)
        if producer is not None:
            outcome.epoch, outcome.seq = producer.epoch, producer.seq
        if stream.media_type == JSON:
            outcome.record_next = stream.next_record
            outcome.record_start = outcome.record_next - message_count(command)
        return outcome

    def _create(self, command: Create, index: int) -> AnyOutcome:
        plan = decide_create(self.buckets, command)
        if isinstance(plan, Created | Refused):
            return plan
        if command.body is not None and self._too_old(command.body.made_at):
            return _stored_too_long_ago()
        bucket = self.buckets.get(command.bucket) or self._add_bucket(command.bucket)
        self.changes.note((RowKind.STREAM, command.bucket, command.stream))
        stream = Stream(command.stream, f"{self.group}-{self.position}-{index}", plan.content_type, self.at)
        stream.changed = self.position
        stream.set_lifetime(plan.ttl_seconds, plan.expires_at, self.at)
        if plan.parent is not None:
            stream.fork = command.fork
            self._touch(command.bucket, plan.parent)
            stream.branch_from(plan.parent, plan.fork_offset, plan.fork_record)
            if stream.snapshot is not None:
                self.blobs[stream.snapshot.blob] += 1
        if command.attributes is not None and command.attributes != NO_ATTRIBUTES:
            stream.attributes = command.attributes
        bucket.streams[command.stream] = stream
        bucket.names.add(command.stream)
        self.stream_count += 1
        kind = Kind.CREATE if plan.parent is None else Kind.FORK
        journal = self.enter(bucket)
        journal.add(index, kind, stream, stream.tail, event=events.creation(command, stream))
        written = message_count(command)
        if written:
            if command.body is not None:
                self.stored.bodies.append((self.position, command.body.blob))
            self.refer(stream)
            write(bucket, stream, command, index, self.at)
        if command.close:
            self._close(bucket, stream, command, index)
        return created(stream, new=True, written=written)

    def _close(self, bucket: Bucket, stream: Stream, command: Append | Create, index: int) -> None:
        stream.closed = True
        producer = command.producer
        if producer is not None and stream.producers is not None:  # a PUT without a body has no producer
            stream.closed_by = (producer.id, producer.epoch, producer.seq)
        bucket.journal.add(index, Kind.CLOSE, stream, stream.tail)

    def _create_bucket(self, command: CreateBucket, index: int) -> AnyOutcome:
        refusal = self._bucket_exists(command)
        if refusal is not None:
            return refusal
        self._add_bucket(command.bucket)
        return BucketCreated(command.bucket)

    def _bucket_exists(self, command: CreateBucket) -> Refused | None:
        if command.bucket in self.buckets:
            return Refused("bucket_exists", f"the bucket {command.bucket!r} exists")
        return None

    def _add_bucket(self, name: str) -> Bucket:
        self.changes.note((RowKind.BUCKET, name, ""))
        bucket = self.buckets[name] = Bucket(name, self.position, self.at, self.gauge, self.unparked)
        self.bucket_names.add(name)
        return bucket

    def _delete_bucket(self, command: DeleteBucket, index: int) -> AnyOutcome:
        refusal = self._undeletable(command)
        if refusal is not None:
            return refusal
        self.changes.note((RowKind.BUCKET, command.bucket, ""))
        for key in [key for key in self.ingests if key[0] == command.bucket]:
            self._forget_ingest(key)
        del self.buckets[command.bucket]
        self.bucket_names.remove(command.bucket)
        return BucketDeleted(command.bucket)

    def _undeletable(self, command: DeleteBucket) -> Refused | None:
        bucket = self.buckets.get(command.bucket)
        if bucket is None:
            return bucket_not_found(command.bucket)
        if not bucket.is_empty:
            count = len(bucket.names)
            streams = "1 stream" if count == 1 else f"{count} streams"
            return Refused("bucket_not_empty", f"the bucket is not empty: it has {streams}")
        return None

    def _settled(self, stream: Stream, command: SetAttributes | PublishSnapshot | Trim) -> AnyOutcome | None:
        """What the command comes to without changing the stream; None if it changes it."""
        if isinstance(command, PublishSnapshot):
            return decide_publish(stream, command)
        if isinstance(command, Trim):
            return decide_trim(stream, command)
        if command.attributes == (stream.attributes or NO_ATTRIBUTES):
            return AttributesSet(stream.incarnation)
        return None

    def _change(self, command: SetAttributes | PublishSnapshot | Trim, index: int) -> AnyOutcome:
        """Do one of the commands that change a stream beside its messages."""
        stream = self.visible(command.bucket, command.stream, command.incarnation)
        if isinstance(stream, Refused):
            return stream
        outcome = self._settled(stream, command)
        if outcome is not None:
            return outcome
        bucket = self.buckets[command.bucket]
        if isinstance(command, PublishSnapshot) and self._too_old(command.made_at):
            return _stored_too_long_ago()
        self.enter(bucket)
        self._touch(command.bucket, stream)
        if isinstance(command, PublishSnapshot):
            return self._publish(bucket, stream, command, index)
        if isinstance(command, Trim):
            return self._trim(bucket, stream, command, index)
        cleared = command.attributes == NO_ATTRIBUTES
        stream.attributes = None if cleared else command.attributes
        event = events.attributes(command.attributes)
        bucket.journal.add(index, Kind.ATTRIBUTES, stream, stream.tail, event=event)
        return AttributesSet(stream.incarnation)

    def _publish(self, bucket: Bucket, stream: Stream, command: PublishSnapshot, index: int) -> AnyOutcome:
        visible = stream.snapshot
        is_visible = visible is not None and visible.offset == command.offset
        if not is_visible:
            self._show_blob(command.blob)
            self._hide_snapshot(stream)
            stream.snapshot = Snapshot(
                command.offset, command.blob, command.content_type, command.size, command.digest
            )
            event = events.snapshot(command)
            bucket.journal.add(index, Kind.SNAPSHOT, stream, command.offset, event=event)
        if command.trim and command.offset > stream.earliest:
            self._trim(bucket, stream, command, index)
        return published(stream, command.offset, command.digest, duplicate=is_visible)

    def _trim(
        self, bucket: Bucket, stream: Stream, command: Trim | PublishSnapshot, index: int
    ) -> AnyOutcome:
        record = stream.record_at(command.offset) if command.record is None else command.record
        stream.trim(command.offset, record, self.at)
        self._drop_trimmed(bucket, stream)
        bucket.journal.add(index, Kind.TRIM, stream, command.offset, event=events.trim(command))
        return trimmed(stream)

    def _hide_snapshot(self, stream: Stream) -> None:
        if stream.snapshot is None:
            return
        blob = stream.snapshot.blob
        stream.snapshot = None
        self.blobs[blob] -= 1
        if not self.blobs[blob]:
            del self.blobs[blob]
            self._replace(f"blobs/{blob}")

    def _show_blob(self, blob: str) -> None:
        self.blobs[blob] = self.blobs.get(blob, 0) + 1
        self._want(f"blobs/{blob}")

    def _delete(self, command: Delete, index: int) -> AnyOutcome:
        stream = self.visible(command.bucket, command.stream, command.incarnation)
        if isinstance(stream, Refused):
            return stream
        return self._end(command.bucket, stream, Kind.DELETE, index)

    def _expire(self, command: Expire, index: int) -> AnyOutcome:
        stream = self._expirable(command)
        if stream is None:
            return Ignored()
        return self._end(command.bucket, stream, Kind.EXPIRE, index)

    def _expirable(self, command: Expire) -> Stream | None:
        stream = self._same(command)
        return stream if stream is not None and stream.deadline == command.deadline else None

    def _renew(self, command: Renew, index: int) -> AnyOutcome:
        stream = self._renewable(command)
        if stream is None:
            return Ignored()
        self._touch(command.bucket, stream)
        stream.renew(command.seen_at)
        return Renewed(stream.deadline or 0)

    def _renewable(self, command: Renew) -> Stream | None:
        stream = self._same(command)
        return stream if stream is not None and stream.ttl_seconds is not None else None

    def _same(self, command: Expire | Renew) -> Stream | None:
        """The stream that the command is about, if it is still there."""
        stream = self.find(command.bucket, command.stream)
        if stream is None or stream.gone or stream.incarnation != command.incarnation:
            return None
        return stream

    def _end(self, bucket_name: str, stream: Stream, kind: Kind, index: int) -> Ended:
        bucket = self.buckets[bucket_name]
        self.enter(bucket).add(index, kind, stream, stream.tail)
        self._touch(bucket_name, stream)
        self.changes.note((RowKind.GRAVE, bucket_name, stream.name))
        self.graves.add(Grave.of_stream(bucket_name, stream, self.at))
        stream.gone = True
        stream.deadline = None
        bucket.names.remove(stream.name)
        bucket.hidden[stream.name] = None
        self._hide_snapshot(stream)
        self._release(bucket, stream)
        return Ended(stream.incarnation)

    def _release(self, bucket: Bucket, stream: Stream) -> None:
        """Forget a stream that nobody sees or forks any more, and then perhaps its parent."""
        ended: Stream | None = stream
        while ended is not None and ended.gone and ended.fork_count == 0:
            self._touch(bucket.name, ended)
            del bucket.streams[ended.name]
            del bucket.hidden[ended.name]
            self.unparked.pop(ended, None)
            self.stream_count -= 1
            parent = ended.parent
            if parent is not None:
                parent.fork_count -= 1
                self._drop_trimmed(bucket, parent)
            ended = parent

    def _drop_trimmed(self, bucket: Bucket, stream: Stream) -> None:
        """Let go of what was trimmed; if it is very much, the engine lets go of the rest bit by bit."""
        if not stream.drop_trimmed():
            self.trimmed[bucket.name, stream.name] = None

    # Coming back

    def _revivable(self, command: Undelete) -> Grave | Refused:
        """What is left of the stream that is to come back, or why it cannot."""
        name = command.stream
        taken = self.find(command.bucket, name)
        grave = self.graves.find(command.bucket, name, command.incarnation)
        if taken is not None and (not taken.gone or grave is None or taken.incarnation != grave.incarnation):
            return Refused("stream_exists", f"the name {name!r} is taken", taken.incarnation)
        if grave is None:
            return Refused("stream_not_found", f"nothing is kept of a stream {name!r}")
        parent = read_row(grave.row).parent
        if parent is not None and taken is None:
            source = self.find(command.bucket, parent[0])
            if source is None or source.incarnation != parent[1]:
                message = f"it is a fork of {parent[0]!r}, which is gone too: bring that back first"
                return Refused("stream_not_found", message)
        return grave

    def _undelete(self, command: Undelete, index: int) -> AnyOutcome:
        grave = self._revivable(command)
        if isinstance(grave, Refused):
            return grave
        bucket = self.buckets.get(command.bucket) or self._add_bucket(command.bucket)
        self.changes.note((RowKind.STREAM, command.bucket, command.stream))
        self.changes.note((RowKind.GRAVE, command.bucket, command.stream))
        self.graves.remove(grave)
        stream = self._revive(bucket, command.stream, grave)
        if stream.snapshot is not None:
            self._show_blob(stream.snapshot.blob)
        if stream.expires_at is not None and stream.expires_at <= self.at:
            stream.expires_at = stream.deadline = None
        stream.renew(self.at)
        bucket.names.add(stream.name)
        bucket.hidden.pop(stream.name, None)
        self.enter(bucket).add(index, Kind.UNDELETE, stream, stream.tail)
        return Undeleted(stream.incarnation, stream.tail, stream.closed, stream.deadline)

    def _revive(self, bucket: Bucket, name: str, grave: Grave) -> Stream:
        """The stream as it was: what forks kept of it, or made from its row."""
        stream = decode_stream(name, grave.row)
        kept = bucket.streams.get(name)
        if kept is not None:
            kept.gone, kept.snapshot, kept.deadline = False, stream.snapshot, stream.deadline
            kept.changed = self.position
            return kept
        stream.changed = self.position
        if grave.stream is not None:  # what the store does not have yet
            stream.messages, stream.record_base = grave.stream.messages, grave.stream.record_base
        parent = read_row(grave.row).parent
        source = bucket.find(parent[0]) if parent is not None else None
        if source is not None:
            self._touch(bucket.name, source)
            stream.parent = source
            source.fork_count += 1
        bucket.streams[name] = stream
        self.stream_count += 1
        return stream

    # Bulk writes

    def _ingest_begin(self, command: IngestBegin, index: int) -> AnyOutcome:
        name = command.bucket, command.app
        outcome = decide_ingest(self.buckets, self.ingests.get(name), command)
        if outcome is not None:
            return outcome
        if self._too_old(command.made_at):
            return _stored_too_long_ago()
        self.changes.note((RowKind.INGEST, *name))
        for key in command.objects:
            self._want(key)
        ingest = self.ingests[name] = begun(command)
        return ingest

    def _ingest_rows(self, command: IngestRows, index: int) -> AnyOutcome:
        name = command.bucket, command.app
        known, bucket = self.ingests.get(name), self.buckets.get(command.bucket)
        if known is None or bucket is None or not is_next(known, command):
            return Ignored()
        if any(is_mistaken(bucket, row) for row in command.rows):
            return Ignored()
        self.changes.note((RowKind.INGEST, *name))
        progress = Progress(known, command.first)
        incarnations: dict[str, None] = {}
        for number, row in enumerate(command.rows):
            outcome = self._ingest_row(bucket, row, known.create_streams, index + number)
            progress.add(row.stream, outcome if isinstance(outcome, Refused) else None)
            if isinstance(outcome, Appended | Created):
                incarnations[outcome.incarnation] = None
            if progress.failed:
                break
        ingest = self.ingests[name] = progress.result(command.is_end)
        if ingest.ended:
            self._release_staged(ingest)
        return RowsIngested(ingest, list(incarnations))

    def _ingest_row(self, bucket: Bucket, row: IngestRow, may_create: bool, index: int) -> AnyOutcome:
        """One row: an append to a stream, which may be made for it."""
        if row.problem is not None:
            return Refused(*row.problem)
        if may_create and bucket.find(row.stream) is None:
            return self._create(Create(bucket.name, row.stream, row.content_type, row.messages), index)
        media_type = media_type_of(row.content_type)
        return self.append(Append(bucket.name, row.stream, row.messages, media_type), index)

    def _forget_ingest(self, name: tuple[str, str]) -> None:
        self.changes.note((RowKind.INGEST, *name))
        ingest = self.ingests.pop(name)
        if not ingest.ended:
            self._release_staged(ingest)

    def _release_staged(self, ended: Ingest) -> None:
        """A bulk write needs its objects no more."""
        needed = {key for ingest in self.ingests.values() if not ingest.ended for key in ingest.objects}
        for key in dict.fromkeys(ended.objects):
            if key not in needed:
                self._replace(key)


def _stored_too_long_ago() -> Refused:
    """The bytes that a command names were not named for so long that they may be gone."""
    return Refused("unavailable", "it took too long: what was stored for it may be gone again")


_APPLY: dict[type, Callable[[State, Any, int], AnyOutcome]] = {
    CreateBucket: State._create_bucket,
    Create: State._create,
    Append: State.append,
    PlainAppend: append_fast,
    Delete: State._delete,
    Expire: State._expire,
    Renew: State._renew,
    DeleteBucket: State._delete_bucket,
    SetAttributes: State._change,
    PublishSnapshot: State._change,
    Trim: State._change,
    Undelete: State._undelete,
    IngestBegin: State._ingest_begin,
    IngestRows: State._ingest_rows,
    FlushBegin: State._flush_begin,
    Flushed: State._flushed,
    Merge: State._merge,
    Collect: State._collect,
}
