"""The model and the oracle get the same commands, and must never be told apart."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from hypothesis.strategies import DataObject
from msgspec.structs import replace
from tests.model import drawing
from tests.model.oracle import Oracle, OracleStream, fork_offset
from tests.model.rows import rows_of

from ursula.model.commands import AnyCommand, Create, CreateBucket, ForkPoint
from ursula.model.dump import dump
from ursula.model.entry import decode, encode
from ursula.model.outcomes import AnyOutcome, Description, Page, Refused
from ursula.model.state import State


class ModelAgainstOracle(RuleBasedStateMachine):
    """Every rule is a request; every request is looked at, applied, and compared with all that is stored."""

    def __init__(self) -> None:
        super().__init__()
        self.state, self.oracle, self.index = State(0), Oracle(0), 0
        self.begin(1, 0)

    @initialize()
    def begin_with_three_streams(self) -> None:
        self.send(CreateBucket("b"))
        self.send(Create("b", "s", "text/plain", (b"abc",)))
        self.send(Create("b", "t", "application/json", (b"1", b"22", b"[3]")))
        self.send(Create("b", "u", None, (b"abcde",), ttl_seconds=2))

    def begin(self, position: int, at: int) -> None:
        self.state.begin(position, at)
        self.oracle.begin(position, at)
        self.index = 0

    @rule(skip=st.integers(1, 3), at=drawing.times)
    def next_entry(self, skip: int, at: int) -> None:
        self.begin(self.state.position + skip, at)

    @rule(name=st.sampled_from(drawing.BUCKETS))
    def create_bucket(self, name: str) -> None:
        self.send(CreateBucket(name))

    @precondition(lambda self: self.streams_seen() < 6)
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
        page = self.state.read(bucket, name, offset, bytes_max, whole)
        expected = self.oracle.read(bucket, name, offset, bytes_max, whole)
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

    @rule(data=st.data())
    def look_at_every_fork(self, data: DataObject) -> None:
        """Whether a stream can be forked is right for each offset and sub-offset."""
        bucket, name, stream = data.draw(drawing.places(self.oracle, lambda stream: stream.fork is not None))
        for offset in range(stream.tail + 2 if stream is not None else 0):
            for sub_offset in range(5):
                point = ForkPoint(name, offset, sub_offset)
                foreseen = self.state.look(Create(bucket, "never made", None, fork=point))
                assert stream is not None
                expected = fork_offset(stream, point)
                assert getattr(foreseen, "code", None) == getattr(expected, "code", None)

    @rule(data=st.data(), whole=st.booleans())
    def read_in_pages_of_every_size(self, data: DataObject, whole: bool) -> None:
        bucket, name, stream = data.draw(drawing.places(self.oracle, lambda stream: stream.fork is not None))
        for bytes_max in range(1, stream.tail + 1 if stream is not None else 1):
            self.compare_page(bucket, name, 0, bytes_max, whole)

    def send(self, command: AnyCommand) -> None:
        """Look, apply, compare: what was answered, what is stored, and that looking was only looking."""
        assert decode(encode(0, 0, [command])).commands == [command]
        before = dump(self.state)
        foreseen = self.state.look(command)
        assert dump(self.state) == before
        outcome = self.state.apply(command, self.index)
        expected = self.oracle.apply(command, self.index)
        self.index += 1
        assert told(outcome) == told(expected)
        if foreseen is None:
            assert dump(self.state) != before
        else:
            assert foreseen == outcome
            assert dump(self.state) == before
        self.compare_all()

    def streams_seen(self) -> int:
        streams = [stream for bucket in self.oracle.buckets.values() for stream in bucket.streams.values()]
        return sum(not stream.gone for stream in streams)

    def compare_all(self) -> None:
        assert self.state.buckets.keys() == self.oracle.buckets.keys()
        assert (self.state.position, self.state.at) == (self.oracle.position, self.oracle.at)
        for bucket, expected in self.oracle.buckets.items():
            assert self.state.buckets[bucket].streams.keys() == expected.streams.keys()
            for name in drawing.NAMES:
                self.compare_stream(bucket, name)
            assert rows_of(self.state.buckets[bucket].journal) == expected.rows
        count = sum(len(bucket.streams) for bucket in self.oracle.buckets.values())
        assert self.state.stream_count == count

    def compare_stream(self, bucket: str, name: str) -> None:
        described = self.state.describe(bucket, name)
        expected = self.oracle.visible(bucket, name)
        if isinstance(expected, Refused):
            assert isinstance(described, Refused)
            assert described.code == expected.code
            return
        assert described == description_of(expected)
        page = self.state.read(bucket, name, 0, 10_000, whole=True)
        assert isinstance(page, Page)
        assert page.chunks == expected.messages
        found = self.state.find(bucket, name)
        assert found is not None
        assert (found.deadline, found.last_write_at) == (expected.deadline, expected.last_write_at)


def told(outcome: AnyOutcome) -> Any:
    """What of an outcome a client gets to know: of a refusal, not its text."""
    if not isinstance(outcome, Refused):
        return outcome
    known = (outcome.code, outcome.epoch, outcome.expected_seq, outcome.received_seq)
    if outcome.code == "stream_closed":
        return (*known, outcome.incarnation, outcome.tail, outcome.closed)
    return known


def description_of(stream: OracleStream) -> Description:
    return Description(
        stream.incarnation,
        stream.content_type,
        stream.tail,
        stream.closed,
        stream.ttl_seconds,
        stream.expires_at,
    )


TestTheModelAgreesWithTheOracle = ModelAgainstOracle.TestCase
TestTheModelAgreesWithTheOracle.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
