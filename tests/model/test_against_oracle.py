"""The model and the oracle get the same commands, and must never differ.

There are two states of the model: one keeps all bytes in memory, the other evicts what is stored and parks
idle streams. What is in memory must never show in an outcome, a description or a dump.
"""

import dataclasses
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from hypothesis.strategies import DataObject
from msgspec.structs import replace
from tests.model import drawing
from tests.model.driving import as_proposed
from tests.model.oracle import Oracle, OracleStream, Row, fork_offset, refuse_publish, refuse_trim
from tests.model.rows import all_rows_of
from tests.model.storing import evict_stored, flushed

from ursula.model.codec.entry import decode, encode
from ursula.model.commands import (
    AnyCommand,
    Append,
    BucketCommand,
    Create,
    CreateBucket,
    FlushBegin,
    ForkPoint,
    PublishSnapshot,
    Trim,
)
from ursula.model.dump import dump
from ursula.model.offsets import BEGINNING
from ursula.model.outcomes import (
    AnyOutcome,
    BucketDescription,
    Description,
    FeedEntry,
    FeedPage,
    Listed,
    Listing,
    Page,
    RecordPage,
    Refused,
)
from ursula.model.read.feed import ROW_BYTES
from ursula.model.read.not_in_memory import FeedNotInMemory, NotInMemory
from ursula.model.state import State
from ursula.model.stream.stream import Stream


class ModelAgainstOracle(RuleBasedStateMachine):
    """Every rule is a request; every request is looked at, applied, and compared with all that is stored."""

    def __init__(self) -> None:
        super().__init__()
        self.state, self.oracle, self.index = State(0), Oracle(0), 0
        self.frugal = State(0)  # drops and parks what it can
        self.begin(1, 0)

    @initialize()
    def begin_with_streams_and_forks(self) -> None:
        self.send(CreateBucket("b"))
        self.send(Create("b", "s", "text/plain", (b"abc",)))
        self.send(Create("b", "t", "application/json", (b"1", b"22", b"[3]")))
        self.send(Append("b", "t", (b"4", b"5", b"6"), "application/json", counts=(2, 1)))
        self.send(Create("b", "tz", None, (b"abcde",), ttl_seconds=2))
        self.send(Create("b", "sa", None, (b"de", b"f"), fork=ForkPoint("s", 2)))
        self.send(Create("b", "ta/1", None, (b"7", b"88"), fork=ForkPoint("t", 3)))

    def begin(self, position: int, at: int) -> None:
        for one in (self.state, self.frugal, self.oracle):
            one.begin(position, at)
        self.index = 0

    @rule(skip=st.integers(1, 3), at=drawing.times)
    def next_entry(self, skip: int, at: int) -> None:
        self.begin(self.state.position + skip, at)

    @rule(name=st.sampled_from(drawing.BUCKETS))
    def create_bucket(self, name: str) -> None:
        self.send(CreateBucket(name))

    @precondition(lambda self: self.streams_seen() < 8)
    @rule(data=st.data())
    def create(self, data: DataObject) -> None:
        self.send(data.draw(drawing.creates(self.oracle)))

    @rule(data=st.data())
    def repeat_a_creation(self, data: DataObject) -> None:
        self.send(data.draw(drawing.repeated_creates(self.oracle)))

    @precondition(lambda self: self.streams_seen() < 10)
    @rule(data=st.data())
    def fork(self, data: DataObject) -> None:
        self.send(data.draw(drawing.forks(self.oracle)))

    @rule(data=st.data())
    def append(self, data: DataObject) -> None:
        self.send(data.draw(drawing.plain_appends(self.oracle)))

    @rule(data=st.data())
    def append_as_a_producer(self, data: DataObject) -> None:
        self.send(data.draw(drawing.producer_appends(self.oracle)))

    @rule(data=st.data())
    def append_on_conditions(self, data: DataObject) -> None:
        self.send(data.draw(drawing.appends(self.oracle)))

    @rule(data=st.data())
    def append_again(self, data: DataObject) -> None:
        command = data.draw(drawing.appends(self.oracle) | drawing.producer_appends(self.oracle))
        self.send(command)
        self.send(command)

    @rule(data=st.data())
    def close_again(self, data: DataObject) -> None:
        self.send(data.draw(drawing.closing_retries(self.oracle)))

    @precondition(lambda self: self.streams_seen() > 2)
    @rule(data=st.data())
    def delete(self, data: DataObject) -> None:
        self.send(data.draw(drawing.deletes(self.oracle)))

    @precondition(lambda self: self.streams_seen() > 2)
    @rule(data=st.data())
    def expire(self, data: DataObject) -> None:
        self.send(data.draw(drawing.expiries(self.oracle)))

    @rule(data=st.data())
    def renew(self, data: DataObject) -> None:
        self.send(data.draw(drawing.renewals(self.oracle)))

    @rule(data=st.data())
    def append_a_batch(self, data: DataObject) -> None:
        self.send(data.draw(drawing.batches(self.oracle)))

    @rule(data=st.data())
    def delete_a_bucket(self, data: DataObject) -> None:
        self.send(data.draw(drawing.bucket_deletes(self.oracle)))

    @rule(data=st.data())
    def set_attributes(self, data: DataObject) -> None:
        self.send(data.draw(drawing.attributes(self.oracle)))

    @rule(data=st.data())
    def publish_a_snapshot(self, data: DataObject) -> None:
        self.send(data.draw(drawing.publications(self.oracle)))

    @rule(data=st.data(), trim=st.booleans())
    def publish_a_snapshot_again(self, data: DataObject, trim: bool) -> None:
        command = data.draw(drawing.publications(self.oracle))
        self.send(command)
        self.send(replace(command, blob=f"{command.blob}-again", trim=trim))

    @rule(data=st.data())
    def publish_a_snapshot_and_trim_later(self, data: DataObject) -> None:
        self.send(replace(data.draw(drawing.publications(self.oracle)), trim=False))
        self.send(data.draw(drawing.trims(self.oracle)))

    @rule(data=st.data())
    def trim(self, data: DataObject) -> None:
        self.send(data.draw(drawing.trims(self.oracle)))

    @rule(data=st.data())
    def undelete(self, data: DataObject) -> None:
        self.send(data.draw(drawing.undeletes(self.oracle)))

    @rule(data=st.data())
    def delete_and_undelete(self, data: DataObject) -> None:
        self.send(data.draw(drawing.deletes(self.oracle)))
        if data.draw(st.booleans()):
            self.flush_all()
        self.send(data.draw(drawing.undeletes(self.oracle)))

    @rule(data=st.data())
    def log_what_the_node_itself_does(self, data: DataObject) -> None:
        self.send(data.draw(drawing.store_commands(self.oracle)))

    @rule(data=st.data())
    def collect(self, data: DataObject) -> None:
        self.send(data.draw(drawing.collections(self.oracle)))

    @rule(data=st.data())
    def merge(self, data: DataObject) -> None:
        self.send(data.draw(drawing.merges(self.oracle)))

    @rule()
    def flush_all(self) -> None:
        """A cut at the end of this entry; in the next one all of it is stored, and then evicted."""
        self.send(FlushBegin(1))
        self.begin(self.state.position + 1, self.state.at)
        self.send(flushed(self.state))
        self.evict_stored()

    @rule()
    def evict_stored(self) -> None:
        evict_stored(self.frugal)
        self.compare_all()

    @rule(data=st.data())
    def send_what_is_no_json(self, data: DataObject) -> None:
        """A body that cannot be split is refused before the log, in its place in the order of checks."""
        drawn = data.draw(drawing.appends(self.oracle) | drawing.creates(self.oracle))
        command = replace(drawn, messages=())
        before = dump(self.state)
        outcome = self.state.look(command, "not JSON")
        assert outcome is not None
        assert told(outcome) == told(self.oracle.apply(command, self.index, unsplit=True))
        assert dump(self.state) == before

    @rule(data=st.data(), bytes_max=st.integers(1, 20), whole=st.booleans())
    def read(self, data: DataObject, bytes_max: int, whole: bool) -> None:
        bucket, name, stream = data.draw(drawing.places(self.oracle))
        offsets = st.integers(-2, 3)
        if stream is not None:
            offsets = st.sampled_from(stream.boundaries) | st.integers(-2, stream.tail + 2)
        self.compare_page(bucket, name, data.draw(offsets), bytes_max, whole)

    def compare_page(self, bucket: str, name: str, offset: int, bytes_max: int, whole: bool) -> None:
        page = self.state.reads.read(bucket, name, offset, bytes_max, whole)
        self.compare_frugal_page(page, self.frugal.reads.read(bucket, name, offset, bytes_max, whole))
        expected = self.oracle.read(bucket, name, offset, bytes_max, whole)
        if isinstance(page, NotInMemory):
            return
        if isinstance(expected, Refused):
            assert isinstance(page, Refused)
            assert told(page) == told(expected)
            return
        assert isinstance(page, Page)
        pieces, start, end = expected
        assert (page.offset, page.next_offset) == (start, end)
        assert b"".join(page.chunks) == b"".join(pieces)
        if whole or page.media_type == "application/json":
            assert page.chunks == pieces

    def compare_frugal_page(self, page: object, frugal: object) -> None:
        """Pages are the same, or the bytes where one begins are in the store, and the result says where."""
        if not isinstance(frugal, NotInMemory):
            assert frugal == page
            return
        if isinstance(page, NotInMemory):
            self.compare_not_held(page)
            return
        if isinstance(page, Refused):
            assert page.code == "invalid_offset"  # as whoever reads the store finds out
            return
        assert isinstance(page, Page)
        assert page.offset < page.tail
        owner, _ = frugal.stream.owner_of(page.offset)
        ref = owner.ref_at(page.offset)
        assert ref is not None
        assert ref.offset <= page.offset < owner.messages.start
        if isinstance(page, RecordPage):
            assert ref == owner.ref_of_record(page.record)
            assert frugal.record in {None, page.record}
        found = self.frugal.segment_at(ref.position)
        assert found is not None
        assert found.last <= self.frugal.stored.flushed

    def compare_not_held(self, missing: NotInMemory) -> None:
        """One that drops nothing lacks only what a fork shared, and its source was trimmed of meanwhile."""
        stream, offset = missing.stream, missing.offset
        if offset is None:
            assert missing.record is not None
            owner = stream.owner_of_record(missing.record)
            if missing.record < owner.record_base:
                assert missing.record < owner.first_record
                assert owner is not stream
                return
            offset = stream.offset_of(missing.record)
        while offset < stream.tail:
            owner, limit = stream.owner_of(offset)
            if offset < owner.messages.start:
                assert offset < owner.earliest
                assert owner is not stream
                return
            offset = limit
        raise AssertionError("nothing is missing")

    def holds_all(self, bucket: str, name: str) -> bool:
        """Whether one that drops nothing has all bytes of a stream."""
        stream = self.state.find(bucket, name)
        return stream is None or stream.holds(stream.earliest)

    @rule(data=st.data())
    def look_at_every_fork(self, data: DataObject) -> None:
        """Whether a stream can be forked is right for each offset and sub-offset."""
        forked = data.draw(st.booleans())
        places = drawing.places(self.oracle, lambda stream: (stream.fork is not None) == forked)
        bucket, name, stream = data.draw(places)
        if stream is None or not self.holds_all(bucket, name):
            return
        for offset in range(stream.tail + 2):
            for sub_offset in range(5):
                point = ForkPoint(name, offset, sub_offset)
                foreseen = self.state.look(Create(bucket, "never made", None, fork=point))
                assert why(foreseen) == why(fork_offset(stream, point))

    @rule(data=st.data())
    def look_at_every_snapshot_and_trim(self, data: DataObject) -> None:
        """Whether a snapshot can be published, and a stream trimmed, is right for each offset."""
        bucket, name, stream = data.draw(drawing.places(self.oracle))
        if stream is None or not self.holds_all(bucket, name):
            return
        for offset in range(stream.tail + 2):
            publication = PublishSnapshot(bucket, name, offset, "blob", "text/plain", 1, drawing.DIGESTS[0])
            trim = Trim(bucket, name, offset)
            assert why(self.state.look(publication)) == why(refuse_publish(stream, publication))
            assert why(self.state.look(trim)) == why(refuse_trim(stream, trim))

    @rule(data=st.data(), records_max=st.integers(1, 5), bytes_max=st.integers(1, 20))
    def read_from_every_record(self, data: DataObject, records_max: int, bytes_max: int) -> None:
        bucket, name, stream = data.draw(drawing.places(self.oracle, lambda stream: stream.is_json))
        following = len(stream.messages) if stream is not None else 0
        for number in [None, *range(following + 2)]:
            self.compare_records(bucket, name, number, None, records_max, bytes_max)
            self.compare_records(bucket, name, None, number, records_max, bytes_max)

    def compare_records(
        self,
        bucket: str,
        name: str,
        record: int | None,
        tail_records: int | None,
        records_max: int,
        bytes_max: int,
    ) -> None:
        asked = (bucket, name, record, tail_records, records_max, bytes_max)
        page = self.state.reads.read_records(*asked)
        self.compare_frugal_page(page, self.frugal.reads.read_records(*asked))
        expected = self.oracle.read_records(bucket, name, record, tail_records, records_max, bytes_max)
        if isinstance(page, NotInMemory):
            return
        if isinstance(expected, Refused):
            assert isinstance(page, Refused)
            assert told(page) == told(expected)
            return
        assert isinstance(page, RecordPage)
        messages, first, offset = expected
        stream = self.oracle.visible(bucket, name)
        assert isinstance(stream, OracleStream)
        assert (page.chunks, page.record, page.offset) == (messages, first, offset)
        assert page.next_offset == offset + len(b"".join(messages))
        assert page.first_record == stream.records_before(stream.earliest)
        assert page.next_record == len(stream.messages)

    @rule(bucket=st.sampled_from(drawing.BUCKETS), count=st.integers(1, 4))
    def list_streams_in_every_way(self, bucket: str, count: int) -> None:
        for prefix in drawing.PREFIXES:
            for after in drawing.CURSORS:
                self.compare_list(bucket, prefix, after, count)

    def compare_list(self, bucket: str, prefix: str, after: str, count: int) -> None:
        listing = self.state.reads.list_streams(bucket, prefix, after, count)
        if bucket not in self.oracle.buckets:
            assert why(listing) == "bucket_not_found"
            return
        expected = self.oracle.list_streams(bucket, prefix, after)
        assert isinstance(listing, Listing)
        assert listing.streams == [listed(stream) for stream in expected[:count]]
        assert listing.has_more == (len(expected) > count)

    @rule(after=st.sampled_from(["", "a", "b", "bb", "c"]), count=st.integers(1, 2))
    def list_buckets(self, after: str, count: int) -> None:
        expected = [
            BucketDescription(name, len(self.oracle.list_streams(name, "", "")), bucket.created_at)
            for name, bucket in sorted(self.oracle.buckets.items())
        ]
        listed_now = self.state.reads.list_buckets(after, count)
        assert listed_now == [bucket for bucket in expected if bucket.name > after][:count]
        assert [self.state.reads.describe_bucket(bucket.name) for bucket in expected] == expected

    @rule(name=st.sampled_from(drawing.BUCKETS), bytes_max=st.integers(1, 3000))
    def follow_the_feed_from_everywhere(self, name: str, bytes_max: int) -> None:
        if name not in self.oracle.buckets:
            assert why(self.state.reads.read_feed(name, None, None, bytes_max)) == "bucket_not_found"
            return
        positions = [None, *range(self.state.position + 2)]
        for after in positions:
            for until in positions:
                self.compare_feed(name, after, until, bytes_max)

    def compare_feed(self, name: str, after: int | None, until: int | None, bytes_max: int) -> None:
        """Pages of the feed, one after the other, are the rows of the journal, each once and in order."""
        bucket = self.oracle.buckets[name]
        page = self.state.reads.read_feed(name, after, until, bytes_max)
        self.compare_frugal_feed(page, self.frugal.reads.read_feed(name, after, until, bytes_max))
        if isinstance(page, FeedNotInMemory):
            assert page.after < self.oracle.flushed
            return
        named = [position for position in (after, until) if position is not None]
        is_before = after is not None and after < bucket.position - 1
        if is_before or (until is not None and until < bucket.position):
            assert why(page) == "position_trimmed"
            return
        if named and max(named) > self.state.position:
            assert why(page) == "offset_beyond_tail"
            return
        first = -1 if after is None else after
        last = self.state.position if until is None else until
        # Where the appends of a batch begin is for segments only.
        expected = [
            dataclasses.replace(row, event=None) if row.kind == "append" else row
            for row in bucket.rows
            if first < row.position <= last
        ]
        got: list[Row] = []
        while True:
            assert isinstance(page, FeedPage)
            sizes = [feed_bytes(entry) for entry in page.entries]
            assert sum(sizes[:-1]) < bytes_max
            got += [row for entry in page.entries for row in feed_rows(entry)]
            if len(got) >= len(expected):
                break
            assert sum(sizes) >= bytes_max
            assert page.next_position == page.entries[-1].position
            assert page.next_position < page.tail
            page = self.state.reads.read_feed(name, page.next_position, until, bytes_max)
        assert got == expected
        assert max(first, bucket.position) <= page.next_position <= self.state.position
        if until is None:
            assert page.next_position == page.tail
        missed = [row for row in bucket.rows if last < row.position <= page.next_position]
        assert first >= last or missed == []

    def compare_frugal_feed(self, page: object, frugal: object) -> None:
        """What is stored is read from the store, also by one that has it in memory; the rest is the same."""
        if isinstance(frugal, FeedPage):
            assert isinstance(page, FeedPage)
            assert frugal.entries == page.entries
        else:
            assert frugal == page

    @rule(data=st.data(), whole=st.booleans())
    def read_in_pages_of_every_size(self, data: DataObject, whole: bool) -> None:
        bucket, name, stream = data.draw(drawing.places(self.oracle, lambda stream: stream.fork is not None))
        for bytes_max in range(1, stream.tail + 1 if stream is not None else 1):
            self.compare_page(bucket, name, BEGINNING, bytes_max, whole)

    def send(self, drawn: AnyCommand) -> None:
        """Look, apply, compare: what was answered, what is stored, and that looking was only looking."""
        command = drawing.proven(self.oracle, drawn)
        if command is None:
            self.compare_refusal(drawn)
            return
        assert decode(encode(0, 0, [command])).commands == [command]
        before = dump(self.state)
        foreseen = self.state.look(command)
        assert self.frugal.look(command) == foreseen
        assert dump(self.state) == dump(self.frugal) == before
        proposing, replaying = (self.state, self.frugal) if self.index % 2 else (self.frugal, self.state)
        outcome = proposing.apply(as_proposed(command), self.index)
        assert replaying.apply(command, self.index) == outcome
        expected = self.oracle.apply(command, self.index)
        self.index += 1
        assert told(outcome) == told(expected)
        if foreseen is not None:
            assert foreseen == outcome
            assert dump(self.state) == before
        elif isinstance(command, BucketCommand):
            assert dump(self.state) != before
        self.compare_all()

    def compare_refusal(self, command: AnyCommand) -> None:
        """What is refused for the bytes in the store is refused before it is logged."""
        assert isinstance(command, Create)
        if command.fork is None or not self.holds_all(command.bucket, command.fork.source):
            return
        before = dump(self.state)
        outcome = self.state.apply(command, self.index)
        assert told(outcome) == told(self.oracle.apply(command, self.index))
        assert dump(self.state) == before

    def streams_seen(self) -> int:
        streams = [stream for bucket in self.oracle.buckets.values() for stream in bucket.streams.values()]
        return sum(not stream.hidden for stream in streams)

    def compare_all(self) -> None:
        assert dump(self.frugal) == dump(self.state)
        self.compare_contents()
        assert dump(self.frugal) == dump(self.state)

    def compare_contents(self) -> None:
        assert self.state.buckets.keys() == self.oracle.buckets.keys()
        assert [bucket.name for bucket in self.state.reads.list_buckets("", 9)] == sorted(self.oracle.buckets)
        assert (self.state.position, self.state.at) == (self.oracle.position, self.oracle.at)
        for bucket, expected in self.oracle.buckets.items():
            assert self.state.buckets[bucket].streams.keys() == expected.streams.keys()
            listing = self.state.reads.list_streams(bucket, "", "", 100)
            assert isinstance(listing, Listing)
            assert listing.streams == [listed(s) for s in self.oracle.list_streams(bucket, "", "")]
            assert self.frugal.reads.list_streams(bucket, "", "", 100) == listing
            for name in drawing.NAMES:
                self.compare_stream(bucket, name)
            assert all_rows_of(self.state.buckets[bucket]) == expected.rows
            kept = [row for row in expected.rows if row.position > self.oracle.flushed]
            assert all_rows_of(self.frugal.buckets[bucket])[-len(kept) or len(expected.rows) :] == kept
        count = sum(len(bucket.streams) for bucket in self.oracle.buckets.values())
        assert self.state.stream_count == count
        self.compare_blobs()

    def compare_blobs(self) -> None:
        """A blob, a segment, a state is released once, and as soon as nothing needs it."""
        shown = self.oracle.blobs_shown
        assert self.state.blobs == {blob: shown.count(blob) for blob in shown}
        replaced = {key: (one.position, one.at) for key, one in self.state.stored.replaced.items()}
        assert replaced == self.oracle.replaced
        assert list(self.state.segments) == self.oracle.segments
        assert list(self.state.stored.chain) == self.oracle.chain

    def compare_stream(self, bucket: str, name: str) -> None:
        described = self.state.reads.describe(bucket, name)
        expected = self.oracle.visible(bucket, name)
        if isinstance(expected, Refused):
            assert isinstance(described, Refused)
            assert described.code == expected.code
            return
        assert described == description_of(expected)
        assert self.frugal.reads.describe(bucket, name) == described
        page = self.state.reads.read(bucket, name, BEGINNING, 10_000, whole=True)
        if isinstance(page, NotInMemory):
            self.compare_not_held(page)
        else:
            assert isinstance(page, Page)
            assert page.chunks == expected.kept
        found = self.state.find(bucket, name)
        assert found is not None
        assert (found.deadline, found.last_write_at) == (expected.deadline, expected.last_write_at)
        self.compare_memory(found, expected)

    def compare_memory(self, found: Stream, expected: OracleStream) -> None:
        """A stream holds its own messages and no others; trimmed ones only while it has forks."""
        held = found.messages
        if found.fork_count == 0:
            assert held.start == max(found.fork_offset, expected.earliest)
        assert held.start >= found.fork_offset
        assert not held.has_slices
        assert b"".join(held.payloads) == expected.content[held.start :]  # type: ignore[arg-type]
        assert held.ends.tolist() == [end for end in expected.boundaries if end > held.start]
        append_ends = held.ends if held.append_ends is None else held.append_ends
        assert append_ends.tolist() == [end for end in expected.append_ends if end > held.start]


def told(outcome: AnyOutcome) -> Any:
    """What of an outcome a client gets to know: of a refusal, not its text."""
    if not isinstance(outcome, Refused):
        return outcome
    known = (
        outcome.code,
        outcome.epoch,
        outcome.expected_seq,
        outcome.received_seq,
        outcome.earliest,
    )
    if outcome.code == "stream_closed":
        return (*known, outcome.incarnation, outcome.tail, outcome.closed)
    return known


def why(outcome: object) -> str | None:
    """The code of a refusal; None for anything else."""
    return outcome.code if isinstance(outcome, Refused) else None


def feed_bytes(entry: FeedEntry) -> int:
    return sum(ROW_BYTES + len(row.payload or b"") for row in entry.rows)


def feed_rows(entry: FeedEntry) -> list[Row]:
    """The rows of one entry of the feed, as the oracle writes them."""
    return [
        Row(
            entry.position,
            entry.at,
            row.index,
            row.kind,
            row.stream,
            row.incarnation,
            row.offset,
            row.next_offset,
            row.record,
            row.payload,
            None if row.producer is None else (row.producer.id, row.producer.epoch, row.producer.seq),
            None if row.event is None else msgspec.json.decode(row.event),
        )
        for row in entry.rows
    ]


def listed(stream: OracleStream) -> Listed:
    return Listed(
        stream.name,
        stream.closed,
        stream.content_type,
        stream.tail,
        stream.created_at,
        stream.last_write_at,
    )


def description_of(stream: OracleStream) -> Description:
    return Description(
        stream.incarnation,
        stream.content_type,
        stream.tail,
        stream.closed,
        stream.ttl_seconds,
        stream.expires_at,
        stream.earliest,
        stream.snapshot,
        stream.attributes,
        stream.records_before(stream.earliest) if stream.is_json else None,
        len(stream.messages) if stream.is_json else None,
    )


TestTheModelAgreesWithTheOracle = ModelAgainstOracle.TestCase
TestTheModelAgreesWithTheOracle.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
