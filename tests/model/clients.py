"""Requests as clients of a small world make them, by a seeded choice: most mean something."""

from typing import TYPE_CHECKING

from ursula.model.commands import (
    AnyCommand,
    Append,
    Body,
    Create,
    CreateBucket,
    Delete,
    DeleteBucket,
    Expire,
    ForkedAt,
    ForkPoint,
    Producer,
    PublishSnapshot,
    Renew,
    SetAttributes,
    Undelete,
)
from ursula.model.stream.stream import Stream

if TYPE_CHECKING:
    from tests.model.flushing import World

BUCKETS = ("b", "b", "b", "c")
NAMES = tuple("stuvwxyz")
JSON = "application/json"
TEXT = "text/plain"


class Clients:
    """All of them. They know what was acknowledged, as of when they begin a batch."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.random = world.random
        self.count = 0

    def batch(self, count_max: int) -> list[AnyCommand]:
        """Some commands that reach the log together."""
        return [self.command() for _ in range(self.random.randint(0, count_max))]

    def command(self) -> AnyCommand:
        """One request."""
        bucket = self.random.choice(BUCKETS)
        name = self.random.choice(NAMES if bucket == "b" else NAMES[:2])
        stream = self.world.oracle.find(bucket, name)
        chance = self.random.random()
        if stream is None or stream.hidden:
            if chance < 0.35:
                return Undelete(bucket, name)
            if chance < (0.4 if bucket == "b" else 0.7):
                return DeleteBucket(bucket)
            return self.create(bucket, name)
        if chance < 0.6:
            return self.append(bucket, stream)
        if chance < 0.68:
            return self.publish(bucket, stream)
        if chance < 0.76:
            return self.fork(bucket, stream)
        if chance < 0.88:
            return Delete(bucket, name)
        if chance < 0.93:
            return Expire(bucket, name, stream.incarnation, stream.deadline or 0)
        if chance < 0.96:
            return Renew(bucket, name, stream.incarnation, self.world.now)
        if chance < 0.98:
            return SetAttributes(bucket, name, b'{"title":"%d"}' % self.random.randint(0, 3))
        return CreateBucket(bucket)

    def message(self) -> bytes:
        self.count += 1
        return f"<{self.count}>".encode()

    def create(self, bucket: str, name: str) -> Create:
        content_type = self.random.choice((JSON, TEXT))
        messages = (self.message(),) if self.random.random() < 0.5 else ()
        ttl = self.random.choice((None, None, 30))
        return Create(bucket, name, content_type, messages, ttl_seconds=ttl, make_bucket=True)

    def append(self, bucket: str, stream: Stream) -> Append:
        messages = tuple(self.message() for _ in range(self.random.randint(1, 3) if stream.is_json else 1))
        producer = None
        if self.random.random() < 0.3:
            known = (stream.producers or {}).get("p")
            following = 0 if known is None else known.seq + 1
            producer = Producer("p", 0, max(0, following - self.random.choice((0, 0, 0, 1))))
        close = self.random.random() < 0.03
        if self.random.random() < 0.1:
            blob = self.world.put_blob(b"".join(messages))
            body = Body(blob, tuple(map(len, messages)), self.world.now)
            return Append(bucket, stream.name, (), stream.media_type, close, producer, body=body)
        return Append(bucket, stream.name, messages, stream.media_type, close, producer)

    def fork(self, bucket: str, source: Stream) -> Create:
        name = self.random.choice(NAMES)
        ends = [end for end in source.messages.ends if end >= source.earliest]
        if not ends or self.random.random() < 0.5:
            return Create(bucket, name, None, (self.message(),), fork=ForkPoint(source.name))
        offset = self.random.choice(ends)
        known = ForkedAt(source.incarnation, offset, source.record_at(offset))
        return Create(bucket, name, None, fork=ForkPoint(source.name, offset), forked_at=known)

    def publish(self, bucket: str, stream: Stream) -> PublishSnapshot:
        offset = self.random.choice([stream.tail, *stream.messages.ends])
        offset = max(offset, stream.earliest)
        record = stream.next_record if offset == stream.tail else stream.record_at(offset)
        if offset == stream.earliest:
            record = stream.first_record
        blob = self.world.put_blob(b"state")
        return PublishSnapshot(
            bucket,
            stream.name,
            offset,
            blob,
            TEXT,
            5,
            "sha256:aa",
            self.random.random() < 0.5,
            stream.incarnation,
            record,
            self.world.now,
        )
