"""What streams are, said as simply as possible: each holds all its bytes, and a fork copies everything.

Slow on purpose, and shares nothing with the model but its commands and outcomes. Of a refusal it
tells the code and what a client must be told with it, never the text.
"""

from dataclasses import dataclass, field

from ursula.model.commands import (
    AnyCommand,
    Append,
    Create,
    CreateBucket,
    Delete,
    Expire,
    ForkPoint,
    IfMatch,
    Producer,
    Renew,
)
from ursula.model.outcomes import (
    AnyOutcome,
    Appended,
    BucketCreated,
    Created,
    Ended,
    Ignored,
    Refused,
    Renewed,
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


@dataclass(eq=False)
class OracleStream:
    """A stream with its whole content: a list of appends, each a list of messages."""

    name: str
    incarnation: str
    content_type: str
    ttl_seconds: int | None
    expires_at: int | None
    deadline: int | None
    last_write_at: int
    appends: list[list[bytes]] = field(default_factory=list)
    closed: bool = False
    closed_by: Producer | None = None
    stream_seq: str | None = None
    producers: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    parent: "OracleStream | None" = None
    fork: ForkPoint | None = None
    gone: bool = False

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
    streams: dict[str, OracleStream] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)


class Oracle:
    """The same commands, the same outcomes, in the plainest way."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.position = 0
        self.at = 0
        self.buckets: dict[str, OracleBucket] = {}

    def begin(self, position: int, at: int) -> None:
        self.position = position
        self.at = max(self.at, at)

    def apply(self, command: AnyCommand, index: int, unsplit: bool = False) -> AnyOutcome:
        """Do the command; `unsplit`: its body could not be split into messages."""
        match command:
            case CreateBucket():
                if command.bucket in self.buckets:
                    return Refused("bucket_exists", "")
                self.buckets[command.bucket] = OracleBucket()
                return BucketCreated(command.bucket)
            case Create():
                return self._create(command, index, unsplit)
            case Append():
                return self._append(command, index, unsplit)
            case Delete():
                found = self.visible(command.bucket, command.stream)
                if isinstance(found, Refused):
                    return found
                if command.incarnation not in {None, found.incarnation}:
                    return Refused("incarnation_mismatch", "")
                return self._end(command.bucket, found, "delete", index)
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

    def visible(self, bucket: str, name: str) -> OracleStream | Refused:
        """The stream that a client sees at a name, or why it sees none."""
        if bucket not in self.buckets:
            return Refused("bucket_not_found", "")
        stream = self.buckets[bucket].streams.get(name)
        if stream is None:
            return Refused("stream_not_found", "")
        return Refused("stream_gone", "") if stream.gone else stream

    def read(
        self, bucket: str, name: str, offset: int, bytes_max: int, whole: bool
    ) -> Refused | tuple[list[bytes], int, int]:
        """The pieces of messages that a read gives, where it begins and where it ends."""
        stream = self.visible(bucket, name)
        if isinstance(stream, Refused):
            return stream
        offset = {-1: 0, -2: stream.tail}.get(offset, offset)
        if offset > stream.tail:
            return Refused("offset_beyond_tail", "")
        if stream.is_json and offset not in stream.boundaries:
            return Refused("invalid_offset", "")
        if not (whole or stream.is_json):
            piece = stream.content[offset : offset + bytes_max]
            return ([piece] if piece else []), offset, offset + len(piece)
        taken: list[bytes] = []
        position = 0
        for message in stream.messages:
            piece = message[max(0, offset - position) :]
            position += len(message)
            if not piece:
                continue
            if taken and len(b"".join(taken)) + len(piece) > bytes_max:
                break
            taken.append(piece)
            if len(b"".join(taken)) >= bytes_max:
                break
        return taken, offset, offset + len(b"".join(taken))

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
                return self._appended(stream, stream.tail, True, producer.epoch, producer.seq)
            if producer is None and command.close and not has_body:
                return self._appended(stream, stream.tail, True)
            return Refused("stream_closed", "", stream.incarnation, stream.tail, True)
        if has_body and command.media_type != media(stream.content_type):
            return Refused("content_type_mismatch", "")
        known = stream.producers.get(producer.id) if producer is not None else None
        if producer is not None and known is not None:
            epoch, seq, end = known
            if producer.epoch == epoch and producer.seq <= seq:
                return self._appended(stream, end if producer.seq == seq else stream.tail, True, epoch, seq)
        if command.if_match is not None and not allows(command.if_match, stream):
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
            return self._appended(stream, stream.tail, False)
        return self._appended(stream, stream.tail, False, producer.epoch, producer.seq)

    def _appended(
        self,
        stream: OracleStream,
        next_offset: int,
        duplicate: bool,
        epoch: int | None = None,
        seq: int | None = None,
    ) -> Appended:
        return Appended(stream.incarnation, stream.tail, next_offset, stream.closed, duplicate, epoch, seq)

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
        if len(command.messages) > 1:
            stream.appends[-len(command.messages) :] = [list(command.messages)]
        if isinstance(command, Append) or command.messages:
            if producer is not None:
                stream.producers[producer.id] = (producer.epoch, producer.seq, stream.tail)
            if command.stream_seq is not None:
                stream.stream_seq = command.stream_seq
        if command.close:
            stream.closed = True
            stream.closed_by = producer if isinstance(command, Append) or command.messages else None
            self._row(command.bucket, stream, "close", index)

    def _create(self, command: Create, index: int, unsplit: bool) -> AnyOutcome:
        bucket = self.buckets.get(command.bucket)
        if bucket is None and not command.make_bucket:
            return Refused("bucket_not_found", "")
        streams = {} if bucket is None else bucket.streams
        existing = streams.get(command.stream)
        seen = None if existing is None or existing.gone else existing
        if command.incarnation is not None and (seen is None or seen.incarnation != command.incarnation):
            return Refused("incarnation_mismatch", "")
        if command.if_match is not None and (seen is None or not allows(command.if_match, seen)):
            return Refused("precondition_failed", "")
        if existing is not None:
            if seen is None or not as_asked(existing, command):
                return Refused("stream_exists", "")
            return self._created(existing, new=False)
        content_type, ttl, expires = command.content_type, command.ttl_seconds, command.expires_at
        source, shared = None, []
        if command.fork is not None:
            source = streams.get(command.fork.source)
            if source is None:
                return Refused("stream_not_found", "")
            if source.gone:
                return Refused("stream_exists", "")
            if content_type is not None and media(content_type) != media(source.content_type):
                return Refused("content_type_mismatch", "")
            offset = fork_offset(source, command.fork)
            if isinstance(offset, Refused):
                return offset
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
            appends=shared,
            parent=source,
            fork=command.fork,
        )
        if command.fork is not None and command.fork.offset is None:
            stream.fork = ForkPoint(command.fork.source, stream.tail, command.fork.sub_offset)
        stream.slide(self.at)
        self.buckets.setdefault(command.bucket, OracleBucket()).streams[command.stream] = stream
        self._row(command.bucket, stream, "create" if source is None else "fork", index)
        self._write(stream, command, index)
        return self._created(stream, new=True)

    def _created(self, stream: OracleStream, new: bool) -> Created:
        return Created(
            new, stream.incarnation, stream.content_type, stream.tail, stream.closed, stream.deadline
        )

    def _end(self, bucket: str, stream: OracleStream, kind: str, index: int) -> Ended:
        self._row(bucket, stream, kind, index)
        stream.gone = True
        streams = self.buckets[bucket].streams
        while True:
            needed = [other.parent for other in streams.values()]
            freed = [name for name, other in streams.items() if other.gone and other not in needed]
            if not freed:
                return Ended(stream.incarnation)
            for name in freed:
                del streams[name]

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
            )
        )


def media(content_type: str) -> str:
    """What of a content type is compared."""
    return content_type.split(";", maxsplit=1)[0].strip().lower()


def seq_bytes(holder: Append | OracleStream) -> bytes:
    return (holder.stream_seq or "").encode()


def allows(condition: IfMatch, stream: OracleStream) -> bool:
    now = (stream.incarnation, stream.tail, stream.closed)
    return condition.anything or now in [(v.incarnation, v.tail, v.closed) for v in condition.versions]


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
    )


def fork_offset(source: OracleStream, point: ForkPoint) -> int | Refused:
    """Where in the source a fork leaves it."""
    offset = source.tail if point.offset is None else point.offset
    if offset > source.tail:
        return Refused("offset_beyond_tail", "")
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
