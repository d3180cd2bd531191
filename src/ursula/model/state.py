"""The state machine of a group: `apply` in log order, and `look` ahead of the log.

Deterministic: the same commands at the same positions and times give the same state and the same
outcomes, on every replica and in every process. No clock, no randomness, no I/O, and no iteration
over anything whose order could differ.
"""

from collections.abc import Callable
from typing import Any

from . import events
from .append import (
    bucket_not_found,
    decide_append,
    write,
)
from .attributes import NO_ATTRIBUTES
from .commands import (
    AnyCommand,
    Append,
    Create,
    CreateBucket,
    Delete,
    DeleteBucket,
    Expire,
    PublishSnapshot,
    Renew,
    SetAttributes,
    Trim,
)
from .contents import Contents
from .create import created, decide_create
from .journal import Kind
from .media_type import JSON
from .outcomes import (
    AnyOutcome,
    Appended,
    AttributesSet,
    BucketCreated,
    BucketDeleted,
    Created,
    Ended,
    Ignored,
    Refused,
    Renewed,
    Snapshot,
)
from .snapshot import decide_publish, decide_trim, published, trimmed
from .stream import Bucket, Stream


class State(Contents):
    """The contents of a group, and how commands change them."""

    def begin(self, position: int, at: int) -> None:
        """Go to the next log entry. Time never runs backwards, whatever the proposer's clock says."""
        self.position = position
        self.at = max(self.at, at)

    def apply(self, command: AnyCommand, index: int) -> AnyOutcome:
        """Do one command of the entry begun last: decide, then change everything at once."""
        return _APPLY[type(command)](self, command, index)

    def apply_all(self, commands: list[AnyCommand]) -> list[AnyOutcome]:
        """Do all commands of the entry begun last. Most are appends: they are spared one call."""
        append, apply = self._append, self.apply
        return [
            append(command, index) if type(command) is Append else apply(command, index)
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
        return self._undeletable(command) if isinstance(command, DeleteBucket) else None

    # One function per command

    def _append(self, command: Append, index: int) -> AnyOutcome:
        stream = decide_append(self.buckets, command)
        if type(stream) is not Stream:
            return stream  # type: ignore[return-value]
        bucket = self.buckets[command.bucket]
        if bucket.journal.position != self.position:
            bucket.journal.enter(self.position, self.at)
        write(bucket, stream, command, index, self.at, command.counts)
        producer = command.producer
        if command.close:
            self._close(bucket, stream, command, index)
        outcome = Appended(stream.incarnation, stream.tail, stream.tail, stream.closed)
        if producer is not None:
            outcome.epoch, outcome.seq = producer.epoch, producer.seq
        if stream.media_type == JSON:
            outcome.record_next = stream.next_record
            outcome.record_start = outcome.record_next - len(command.messages)
        return outcome

    def _create(self, command: Create, index: int) -> AnyOutcome:
        plan = decide_create(self.buckets, command)
        if isinstance(plan, Created | Refused):
            return plan
        bucket = self.buckets.get(command.bucket) or self._add_bucket(command.bucket)
        stream = Stream(command.stream, f"{self.group}-{self.position}-{index}", plan.content_type, self.at)
        stream.set_lifetime(plan.ttl_seconds, plan.expires_at, self.at)
        if plan.parent is not None:
            stream.fork = command.fork
            stream.branch_from(plan.parent, plan.fork_offset)
            if stream.snapshot is not None:
                self.blobs[stream.snapshot.blob] += 1
        if command.attributes is not None and command.attributes != NO_ATTRIBUTES:
            stream.attributes = command.attributes
        bucket.streams[command.stream] = stream
        bucket.names.add(command.stream)
        self.stream_count += 1
        bucket.journal.enter(self.position, self.at)
        kind = Kind.CREATE if plan.parent is None else Kind.FORK
        bucket.journal.add(index, kind, stream, stream.tail, event=events.creation(command, stream))
        if command.messages:
            write(bucket, stream, command, index, self.at)
        if command.close:
            self._close(bucket, stream, command, index)
        return created(stream, new=True, written=len(command.messages))

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
        bucket = self.buckets[name] = Bucket(name, self.position, self.at)
        self.bucket_names.add(name)
        return bucket

    def _delete_bucket(self, command: DeleteBucket, index: int) -> AnyOutcome:
        refusal = self._undeletable(command)
        if refusal is not None:
            return refusal
        del self.buckets[command.bucket]
        self.bucket_names.remove(command.bucket)
        return BucketDeleted(command.bucket)

    def _undeletable(self, command: DeleteBucket) -> Refused | None:
        bucket = self.buckets.get(command.bucket)
        if bucket is None:
            return bucket_not_found(command.bucket)
        if bucket.streams:
            count = len(bucket.names)
            return Refused("bucket_not_empty", f"the bucket has {count} streams: delete them first")
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
        bucket.journal.enter(self.position, self.at)
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
            self.blobs[command.blob] = self.blobs.get(command.blob, 0) + 1
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
        stream.trim(command.offset)
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
            self.released.append(blob)

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
        bucket.journal.enter(self.position, self.at)
        bucket.journal.add(index, kind, stream, stream.tail)
        stream.gone = True
        stream.deadline = None
        bucket.names.remove(stream.name)
        self._hide_snapshot(stream)
        self._release(bucket, stream)
        return Ended(stream.incarnation)

    def _release(self, bucket: Bucket, stream: Stream) -> None:
        """Forget a stream that nobody sees or forks any more, and then perhaps its parent."""
        ended: Stream | None = stream
        while ended is not None and ended.gone and ended.fork_count == 0:
            del bucket.streams[ended.name]
            self.stream_count -= 1
            parent = ended.parent
            if parent is not None:
                parent.fork_count -= 1
                parent.trim(parent.earliest)
            ended = parent


_APPLY: dict[type, Callable[[State, Any, int], AnyOutcome]] = {
    CreateBucket: State._create_bucket,
    Create: State._create,
    Append: State._append,
    Delete: State._delete,
    Expire: State._expire,
    Renew: State._renew,
    DeleteBucket: State._delete_bucket,
    SetAttributes: State._change,
    PublishSnapshot: State._change,
    Trim: State._change,
}
