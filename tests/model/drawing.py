"""Commands as clients might send them, drawn with an eye on what exists, so that most mean something."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec.structs import replace
from tests.model.oracle import Oracle, OracleStream, fork_offset, media
from tests.model.storing import segment, state_object

from ursula.model.codec.entry import encode
from ursula.model.commands import (
    AnyCommand,
    Append,
    BucketCommand,
    Collect,
    Create,
    CreateBucket,
    Delete,
    DeleteBucket,
    Expire,
    FlushBegin,
    Flushed,
    ForkedAt,
    ForkPoint,
    IfMatch,
    Merge,
    Producer,
    PublishSnapshot,
    Renew,
    RequestFlush,
    SetAttributes,
    StoreCommand,
    Trim,
    Undelete,
    Version,
)
from ursula.model.outcomes import Refused

BUCKETS = ["b", "c"]
NAMES = ["s", "sa", "t", "ta/1", "t\u00e9", "tz", "u", "v", "\U0001f600"]
ATTRIBUTES = [b"{}", b'{"title":"one"}', b'{"metadata":{"n":1},"title":"two"}']
DIGESTS = ["sha256:aa", "sha256:bb"]
CONTENT_TYPES = ["text/plain", "Text/Plain; charset=utf-8", "application/json", "application/JSON;v=1"]
PROPOSER = 7

sometimes = st.sampled_from([False, False, False, True])
rarely = st.sampled_from([False] * 7 + [True])
hardly_ever = st.sampled_from([False] * 31 + [True])
payloads = st.binary(min_size=1, max_size=6)
times = st.integers(0, 20).map(lambda tenths: 1_000_000 + tenths * 100_000)


PREFIXES = ["", "s", "t", "ta", "t\u00e9", "z", "\uffff"]
CURSORS = ["", "a", "zz", "\uffff", *NAMES]


def any_stream(stream: OracleStream) -> bool:
    return True


def can_be_trimmed(stream: OracleStream) -> bool:
    return stream.snapshot is not None and stream.snapshot.offset > stream.earliest


@st.composite
def places(
    draw: DrawFn, oracle: Oracle, preferred: Callable[[OracleStream], bool] = any_stream
) -> tuple[str, str, OracleStream | None]:
    """A bucket, a name in it, and what a client sees there; mostly something."""
    taken = [
        (bucket, name, None if stream.hidden else stream)
        for bucket, found in oracle.buckets.items()
        for name, stream in found.streams.items()
    ]
    if not taken or draw(hardly_ever):
        return draw(st.sampled_from(BUCKETS)), draw(st.sampled_from(NAMES)), None
    better = [place for place in taken if place[2] is not None and preferred(place[2])]
    return draw(st.sampled_from(better if better and not draw(rarely) else taken))


@st.composite
def bodies(draw: DrawFn, content_type: str | None) -> tuple[bytes, ...]:
    """The messages of one append: several for JSON, one for anything else."""
    count_max = 4 if content_type is not None and media(content_type) == "application/json" else 1
    return tuple(draw(st.lists(payloads, min_size=1, max_size=count_max)))


@st.composite
def producers(draw: DrawFn, stream: OracleStream | None) -> Producer | None:
    """None, or a request of a producer: the next one, a repeated one, or one out of order."""
    if draw(sometimes):
        return None
    identity = draw(st.sampled_from(["p", "q"]))
    epoch, seq = 0, -1
    if stream is not None and identity in stream.producers:
        epoch, seq, _ = stream.producers[identity]
    epoch += draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    seq = draw(st.sampled_from([seq + 1, seq + 1, seq + 1, seq, seq - 1, seq + 2, 0]))
    return Producer(identity, max(epoch, 0), max(seq, 0))


@st.composite
def conditions(draw: DrawFn, stream: OracleStream | None) -> IfMatch | None:
    """None, or an If-Match that holds, or one that does not."""
    if not draw(sometimes):
        return None
    if draw(rarely):
        return IfMatch((), any_version=True)
    versions = [Version("7-0-0", 0, False)]
    if stream is not None:
        now = Version(stream.incarnation, stream.tail, stream.closed)
        versions += [now, now, Version(stream.incarnation, stream.tail + 1, stream.closed)]
        versions += [Version(stream.incarnation, stream.tail, not stream.closed)]
    return IfMatch(tuple(draw(st.lists(st.sampled_from(versions), min_size=1, max_size=2))))


@st.composite
def incarnations(draw: DrawFn, stream: OracleStream | None) -> str | None:
    """None, or the incarnation that is there, or another."""
    if not draw(sometimes):
        return None
    return draw(st.sampled_from(["7-0-0", stream.incarnation if stream is not None else "7-0-1"]))


@st.composite
def plain_appends(draw: DrawFn, oracle: Oracle) -> Append:
    bucket, name, stream = draw(places(oracle, lambda stream: not stream.closed))
    content_type = stream.content_type if stream is not None else "text/plain"
    return Append(bucket, name, draw(bodies(content_type)), media(content_type))


@st.composite
def producer_appends(draw: DrawFn, oracle: Oracle) -> Append:
    bucket, name, stream = draw(places(oracle, lambda stream: not stream.closed))
    content_type = stream.content_type if stream is not None else "text/plain"
    producer = draw(producers(stream))
    close = draw(rarely)
    body = () if close and draw(st.booleans()) else draw(bodies(content_type))
    return Append(bucket, name, body, media(content_type), close, producer)


@st.composite
def appends(draw: DrawFn, oracle: Oracle) -> Append:
    """An append with anything that it can have."""
    bucket, name, stream = draw(places(oracle))
    content_type = stream.content_type if stream is not None else "text/plain"
    if draw(rarely):
        content_type = draw(st.sampled_from(CONTENT_TYPES))
    close = draw(rarely)
    close_only = close and draw(st.booleans())
    return Append(
        bucket,
        name,
        () if close_only else draw(bodies(content_type)),
        media(content_type),
        close,
        draw(producers(stream)) if draw(st.booleans()) else None,
        draw(st.sampled_from([None, None, None, "a", "aa", "b", "é", "z"])),
        draw(conditions(stream)),
        draw(incarnations(stream)),
        record_match=draw(record_matches(stream)),
    )


@st.composite
def record_matches(draw: DrawFn, stream: OracleStream | None) -> int | None:
    """None, or the ordinal of the next message, or another."""
    if not draw(sometimes):
        return None
    following = len(stream.messages) if stream is not None else 0
    return draw(st.sampled_from([following, following, following, following + 1, 0]))


@st.composite
def batches(draw: DrawFn, oracle: Oracle) -> Append:
    """Several appends in one, perhaps of a producer."""
    bucket, name, stream = draw(places(oracle, lambda stream: not stream.closed))
    content_type = stream.content_type if stream is not None else "text/plain"
    frames = draw(st.lists(bodies(content_type), min_size=1, max_size=4))
    return Append(
        bucket,
        name,
        tuple(message for frame in frames for message in frame),
        media(content_type),
        producer=draw(producers(stream)) if draw(sometimes) else None,
        counts=tuple(map(len, frames)),
    )


@st.composite
def closing_retries(draw: DrawFn, oracle: Oracle) -> Append:
    """The request that closed a stream again, or one that is nearly it."""
    bucket, name, stream = draw(places(oracle, lambda stream: stream.closed))
    closed_by = stream.closed_by if stream is not None else None
    if closed_by is not None and draw(sometimes):
        closed_by = Producer(closed_by.id, closed_by.epoch, closed_by.seq + 1)
    body = draw(st.sampled_from([(), (b"x",)]))
    return Append(bucket, name, body, "text/plain", close=True, producer=closed_by)


@st.composite
def new_names(draw: DrawFn, oracle: Oracle, bucket: str) -> str:
    """Mostly a name that is free."""
    taken = oracle.buckets[bucket].streams if bucket in oracle.buckets else {}
    free = [name for name in NAMES if name not in taken]
    return draw(st.sampled_from(free if free and not draw(rarely) else NAMES))


lifetimes = st.sampled_from([(None, None), (None, None), (0, None), (2, None), (None, 3_000_000)])


@st.composite
def creates(draw: DrawFn, oracle: Oracle) -> Create:
    bucket = draw(st.sampled_from(BUCKETS))
    name = draw(new_names(oracle, bucket))
    content_type = draw(st.sampled_from([None, *CONTENT_TYPES]))
    ttl, expires = draw(lifetimes)
    found = oracle.visible(bucket, name)
    stream = found if isinstance(found, OracleStream) else None
    return Create(
        bucket,
        name,
        content_type,
        draw(bodies(content_type)) if draw(st.booleans()) else (),
        draw(rarely),
        ttl,
        expires,
        draw(st.booleans()),
        None,
        draw(producers(None)) if draw(sometimes) else None,
        draw(st.sampled_from([None, "b"])),
        draw(conditions(stream)) if draw(rarely) else None,
        draw(st.sampled_from(["0-0-0", stream.incarnation if stream else ""])) if draw(hardly_ever) else None,
        draw(st.sampled_from(ATTRIBUTES)) if draw(sometimes) else None,
    )


@st.composite
def forks(draw: DrawFn, oracle: Oracle) -> Create:
    """A fork: at the tail, at an offset, or inside an append; often of another fork."""
    forked = draw(st.booleans())
    bucket, name, source = draw(places(oracle, lambda stream: (stream.fork is not None) == forked))
    point = ForkPoint(name)
    if source is not None and not draw(sometimes):
        lowest = 0 if draw(rarely) else source.earliest
        where = [boundary for boundary in source.boundaries if boundary >= lowest]
        where = where[draw(st.integers(0, 1)) :] or where
        offsets = st.sampled_from(where) if source.is_json else st.integers(lowest, source.tail)
        offset = source.tail + 1 if draw(hardly_ever) else draw(offsets)
        point = ForkPoint(name, offset, draw(st.sampled_from([0, 1, 2, 5])))
    content_type = source.content_type if source is not None else None
    ttl, expires = draw(lifetimes)
    return Create(
        bucket,
        draw(new_names(oracle, bucket)),
        draw(st.sampled_from(CONTENT_TYPES)) if draw(rarely) else None,
        draw(bodies(content_type)) if draw(st.booleans()) else (),
        draw(rarely),
        ttl,
        expires,
        fork=point,
        attributes=draw(st.sampled_from(ATTRIBUTES)) if draw(rarely) else None,
    )


@st.composite
def repeated_creates(draw: DrawFn, oracle: Oracle) -> Create:
    """A creation of what is there already, perhaps with one thing changed."""
    forked = draw(st.booleans())
    bucket, name, stream = draw(places(oracle, lambda stream: (stream.fork is not None) == forked))
    if stream is None:
        return draw(creates(oracle))
    fork, ttl, expires = stream.fork, stream.ttl_seconds, stream.expires_at
    if fork is not None and draw(st.booleans()):
        fork = ForkPoint(fork.source, None, fork.sub_offset)
    if draw(sometimes):
        ttl = expires = None
    return Create(
        bucket,
        name,
        None if stream.fork is not None and draw(st.booleans()) else stream.content_type.upper(),
        (b"ignored",) if draw(st.booleans()) else (),
        stream.closed != draw(rarely),
        ttl,
        expires,
        fork=fork if not draw(rarely) else None,
        if_match=draw(conditions(stream)) if draw(rarely) else None,
        incarnation=draw(st.sampled_from(["0-0-0", stream.incarnation])) if draw(rarely) else None,
        attributes=draw(st.sampled_from([stream.attributes, *ATTRIBUTES])) if draw(st.booleans()) else None,
    )


@st.composite
def bucket_deletes(draw: DrawFn, oracle: Oracle) -> DeleteBucket:
    """The end of a bucket, mostly of one that is empty."""
    empty = [name for name, bucket in oracle.buckets.items() if not bucket.streams]
    return DeleteBucket(draw(st.sampled_from(empty if empty and not draw(rarely) else BUCKETS)))


@st.composite
def attributes(draw: DrawFn, oracle: Oracle) -> SetAttributes:
    bucket, name, stream = draw(places(oracle))
    return SetAttributes(bucket, name, draw(st.sampled_from(ATTRIBUTES)), draw(incarnations(stream)))


@st.composite
def publications(draw: DrawFn, oracle: Oracle) -> PublishSnapshot:
    """A snapshot with a blob of its own: mostly newer than the visible one, sometimes the same again."""
    forked = draw(st.booleans())
    bucket, name, stream = draw(places(oracle, lambda stream: (stream.fork is not None) == forked))
    where = [0, 1]
    if stream is not None:
        newest = max(stream.earliest, stream.snapshot.offset if stream.snapshot else 0)
        where = [boundary for boundary in stream.boundaries if boundary >= newest]
        if draw(sometimes):
            where = [stream.tail]
        elif draw(sometimes):
            where = list(range(stream.tail + 2))
    return PublishSnapshot(
        bucket,
        name,
        draw(st.sampled_from(where)),
        f"blob-{len(oracle.blobs_once_shown)}",
        draw(st.sampled_from(["text/plain", "text/plain", "image/png"])),
        draw(st.integers(0, 9)),
        draw(st.sampled_from([*DIGESTS, DIGESTS[0]])),
        draw(st.booleans()),
        draw(incarnations(stream)) if draw(rarely) else None,
    )


@st.composite
def trims(draw: DrawFn, oracle: Oracle) -> Trim:
    """A trim, mostly of a stream with a snapshot and not beyond it."""
    bucket, name, stream = draw(places(oracle, can_be_trimmed))
    where = [0, 1]
    if stream is not None:
        end = stream.snapshot.offset if stream.snapshot else stream.tail
        where = [boundary for boundary in stream.boundaries if stream.earliest <= boundary <= end]
        if draw(rarely):
            where = list(range(stream.tail + 2))
    return Trim(
        bucket, name, draw(st.sampled_from(where)), draw(incarnations(stream)) if draw(rarely) else None
    )


@st.composite
def deletes(draw: DrawFn, oracle: Oracle) -> Delete:
    forked = draw(st.booleans())
    bucket, name, stream = draw(places(oracle, lambda stream: (stream.fork is not None) == forked))
    return Delete(bucket, name, draw(incarnations(stream)))


@st.composite
def expiries(draw: DrawFn, oracle: Oracle) -> Expire:
    bucket, name, stream = draw(places(oracle, lambda stream: stream.deadline is not None))
    deadline = stream.deadline if stream is not None and stream.deadline is not None else 0
    deadline += draw(rarely)
    return Expire(bucket, name, draw(incarnations(stream)) or _now(stream), deadline)


@st.composite
def renewals(draw: DrawFn, oracle: Oracle) -> Renew:
    bucket, name, stream = draw(places(oracle, lambda stream: stream.ttl_seconds is not None))
    return Renew(bucket, name, draw(incarnations(stream)) or _now(stream), draw(times))


def _now(stream: OracleStream | None) -> str:
    return stream.incarnation if stream is not None else "7-0-0"


@st.composite
def undeletes(draw: DrawFn, oracle: Oracle) -> Undelete:
    """The return of a stream that has ended, mostly of one that has."""
    ended = [(tombstone.bucket, tombstone.stream.name, tombstone.stream) for tombstone in oracle.deleted]
    if not ended or draw(rarely):
        return Undelete(*draw(places(oracle))[:2])
    bucket, name, stream = draw(st.sampled_from(ended))
    return Undelete(bucket, name, stream.incarnation if draw(st.booleans()) else draw(incarnations(stream)))


@st.composite
def flushes(draw: DrawFn, oracle: Oracle) -> Flushed:
    """That everything up to a cut is stored; hardly ever by a flusher that was too late."""
    cuts = [cut for cut in oracle.cuts if cut > oracle.flushed]
    cut = draw(st.sampled_from(cuts)) if cuts else oracle.flushed
    start = oracle.flushed - draw(rarely)
    tag = f"{start}-{cut}-{oracle.position}"
    state = state_object(f"state/{tag}", not oracle.chain or draw(rarely))
    return Flushed(
        start, cut, segment(start, cut, f"segments/{tag}"), state, oracle.at - draw(rarely) * 500_000
    )


@st.composite
def merges(draw: DrawFn, oracle: Oracle) -> Merge:
    """One segment for two or three, hardly ever for what is not there."""
    count = draw(st.integers(2, 3))
    first = draw(st.integers(0, max(0, len(oracle.segments) - 2)))
    inputs = oracle.segments[first : first + count]
    if not inputs or draw(hardly_ever):
        return Merge(("segments/none",), None, oracle.at)
    tag = f"segments/merged-{inputs[0].first}-{inputs[-1].last}-{oracle.position}"
    output = segment(inputs[0].first, inputs[-1].last, tag)
    return Merge(tuple(one.key for one in inputs), output, oracle.at - draw(rarely) * 500_000)


@st.composite
def collections(draw: DrawFn, oracle: Oracle) -> Collect:
    """The end of what was replaced or ended some time ago."""
    horizon = max(0, oracle.at - draw(st.sampled_from([0, 200_000, 500_000, 1_000_000])))
    return Collect(horizon, draw(st.sampled_from([0, oracle.flushed, oracle.position])))


@st.composite
def store_commands(draw: DrawFn, oracle: Oracle) -> StoreCommand:
    """What the node itself logs; mostly flushes, as long as there is a cut to flush."""
    if not any(cut > oracle.flushed for cut in oracle.cuts) or draw(sometimes):
        if not draw(rarely):
            return FlushBegin(1)
        return draw(merges(oracle) | collections(oracle) | st.builds(RequestFlush, st.booleans()))
    return draw(flushes(oracle))


def proven(oracle: Oracle, command: AnyCommand) -> AnyCommand | None:
    """The command with what must be known before it is logged; None if it is refused for that already."""
    if isinstance(command, PublishSnapshot | Trim):
        stream = oracle.visible(command.bucket, command.stream)
        if isinstance(stream, Refused) or command.offset not in stream.boundaries:
            return command
        record = stream.records_before(command.offset) if stream.is_json else 0
        return replace(command, record=record, incarnation=command.incarnation or stream.incarnation)
    if isinstance(command, Create) and command.fork is not None and command.fork.offset is not None:
        source = oracle.visible(command.bucket, command.fork.source)
        if isinstance(source, Refused):
            return command
        offset = fork_offset(source, command.fork)
        if isinstance(offset, Refused):
            return None if offset.code == "invalid_offset" else command
        record = source.records_before(offset) if source.is_json else 0
        return replace(command, forked_at=ForkedAt(source.incarnation, offset, record))
    return command


@st.composite
def any_commands(draw: DrawFn, oracle: Oracle) -> BucketCommand:
    if not oracle.buckets or draw(rarely):
        return draw(st.sampled_from(BUCKETS).map(CreateBucket))
    if sum(len(bucket.streams) for bucket in oracle.buckets.values()) == 0:
        return draw(creates(oracle) | undeletes(oracle))
    kinds: list[Callable[[Oracle], SearchStrategy[Any]]]
    kinds = [plain_appends, producer_appends, appends, creates, forks, repeated_creates, closing_retries]
    kinds += [plain_appends, producer_appends, appends, deletes, expiries, renewals, batches]
    kinds += [bucket_deletes, attributes, publications, publications, trims, batches, undeletes]
    command: BucketCommand = draw(draw(st.sampled_from(kinds))(oracle))
    return command


@st.composite
def batched(
    draw: DrawFn, entries_max: int = 12, prove: bool = False
) -> list[tuple[int, int, list[AnyCommand]]]:
    """A log: positions, times that go back and forth, and commands; some are of the node itself.

    With `prove`, every command is resolved: it has what depends on bytes that may be in the store.
    """
    oracle = Oracle(0)
    entries = []
    for _ in range(draw(st.integers(1, entries_max))):
        position, at = oracle.position + draw(st.integers(1, 3)), draw(times)
        oracle.begin(position, at)
        commands: list[AnyCommand] = []
        for _ in range(draw(st.integers(1, 4))):
            drawn: AnyCommand = draw(store_commands(oracle) if draw(sometimes) else any_commands(oracle))
            command = proven(oracle, drawn) if prove else drawn
            if command is not None:
                oracle.apply(command, len(commands))
                commands.append(command)
        entries.append((position, at, commands))
    return entries


def logs() -> SearchStrategy[list[tuple[int, bytes]]]:
    """A log with encoded entries."""
    return batched().map(
        lambda entries: [(position, encode(PROPOSER, at, commands)) for position, at, commands in entries]
    )
