"""The flush as a whole, in miniature: two nodes, one log, a store of immutable objects, and crashes.

Everything that decides is the model's own; what the engine and the store do is done here in the plainest
way, in steps that can be interrupted anywhere. Each rule that the engine must keep has a name and can be
broken, to see that a loss would be noticed.
"""

import random
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec.structs import replace
from tests.model.clients import Clients
from tests.model.driving import as_proposed
from tests.model.storing import evict_stored, loaded

from ursula.model.checkpoint.checkpoint import all_keys, group_row, row_of
from ursula.model.commands import (
    AnyCommand,
    Collect,
    FlushBegin,
    Flushed,
    Merge,
    StoredSegment,
    StoredState,
)
from ursula.model.dump import dump
from ursula.model.journal import KIND_NAMES, Journal
from ursula.model.outcomes import AnyOutcome, Done
from ursula.model.state import State
from ursula.model.store_view.dirty_rows import Key, RowSnapshot
from ursula.model.stream.blob_slice import BlobSlice
from ursula.model.stream.row import read_row
from ursula.model.stream.stream import Stream

TICK = 1_000_000
KEEP_TICKS = 40
TURN_STEPS = 60

RULES = (
    "the cut is the end of the entry",
    "rows are captured before they change",
    "changes are those since the flushed position",
    "the segment begins at the flushed position",
    "the segment has the rows of deleted buckets",
    "rows that are gone leave a tombstone",
    "the group row is that of the cut",
    "a flush names where the cut began",
    "objects are as old as their names",
    "the manifest follows the flush",
    "the manifest has the chain of the cut",
    "the log is trimmed to a manifest that is there",
    "the log is trimmed to the manifest before",
    "memory keeps what is not flushed",
    "the manifest's segment is readable before its flush is replayed",
    "collection spares what the newest manifest names",
    "collection spares what the manifest at the horizon names",
    "collection spares what was replaced lately",
    "collection spares bodies that no segment has",
)


class Lost(Exception):
    """Something that was acknowledged is not there, or two that must agree do not."""


class Row(NamedTuple):
    """One row of a segment."""

    position: int
    at: int
    number: int
    bucket: str
    kind: str
    stream: str
    incarnation: str
    offset: int
    next_offset: int
    record: int
    payload: bytes | BlobSlice | None
    producer: Any
    event: bytes | None


def rows_of(bucket: str, journal: Journal) -> list[Row]:
    """The rows of a part of a journal."""
    rows = []
    entry = -1
    for number in range(len(journal)):
        while entry + 1 < len(journal.first_rows) and journal.first_rows[entry + 1] <= number:
            entry += 1
        stream = journal.streams[number]
        rows.append(
            Row(
                journal.positions[entry],
                journal.ats[entry],
                journal.indexes[number],
                bucket,
                KIND_NAMES[journal.kinds[number]],
                stream.name,
                stream.incarnation,
                journal.offsets[number],
                journal.next_offset(number),
                journal.records[number],
                journal.payloads[number],
                journal.producers[number],
                journal.events.get(number),
            )
        )
    return rows


def in_order(rows: list[Row]) -> list[Row]:
    """By position, and in one bucket as they happened."""
    return sorted(rows, key=lambda row: (row.position, row.bucket))


@dataclass
class Entry:
    """A log entry, and what it came to for one that keeps everything in memory."""

    position: int
    at: int
    commands: list[AnyCommand]
    outcomes: list[AnyOutcome]


@dataclass
class Manifest:
    """What makes up the group at a position."""

    position: int
    at: int
    segment: StoredSegment | None
    chain: tuple[StoredState, ...]
    group_row: bytes


class World:
    """The log, the store, the clock, and all that was ever acknowledged."""

    def __init__(self, seed: int, broken: str | None = None) -> None:
        self.random = random.Random(seed)
        self.broken = broken
        self.clock = 100
        self.log: list[Entry] = []
        self.trimmed = 0
        self.store: dict[str, Any] = {}
        self.made: dict[str, int] = {}
        self.manifests: list[Manifest] = []
        self.oracle = State(0)
        self.past: dict[int, bytes] = {}
        self.rows: list[Row] = []
        self.blobs: dict[str, bytes] = {}  # for ever
        self.count = 0
        self.clients = Clients(self)
        self.nodes = [Node(self), Node(self)]

    def keeps(self, rule: str) -> bool:
        """Whether this rule is kept."""
        if rule not in RULES:
            raise KeyError(rule)
        return rule != self.broken

    @property
    def now(self) -> int:
        return self.clock * TICK

    def put(self, kind: str, value: Any) -> str:
        """Store an object under a new key."""
        self.count += 1
        key = f"{kind}/{self.count}"
        self.store[key] = value
        self.made[key] = self.now
        return key

    def get(self, key: str) -> Any:
        if key not in self.store:
            raise Lost(f"{key} is gone")
        return self.store[key]

    def put_blob(self, value: bytes) -> str:
        """Store a blob; returns its name."""
        key = self.put("blobs", value).removeprefix("blobs/")
        self.blobs[key] = value
        return key

    def propose(self, commands: list[AnyCommand], at: int | None = None) -> None:
        """Log an entry. Who keeps everything in memory applies it at once."""
        oracle = self.oracle
        oracle.begin(oracle.position + self.random.randint(1, 3), self.now if at is None else at)
        outcomes = [oracle.apply(command, index) for index, command in enumerate(commands)]
        self.log.append(Entry(oracle.position, oracle.at, commands, outcomes))
        self.past[oracle.position] = dump(oracle)
        news = [
            row
            for bucket, part in oracle.parts
            if part.position == oracle.position
            for row in rows_of(bucket, part)
            if row.position == oracle.position
        ]
        self.rows += [self.resolved(row) for row in in_order(news)]

    def resolved(self, row: Row) -> Row:
        """A row with its bytes, as they were when they were acknowledged."""
        if not isinstance(row.payload, BlobSlice):
            return row
        part = row.payload
        return row._replace(payload=self.blobs[part.blob][part.start : part.end])

    def load(self, manifest: Manifest) -> State:
        """The state of a manifest, from the store alone."""
        state = loaded(
            manifest.group_row,
            [row for one in manifest.chain for row in self.get(one.key)],
        )
        if self.keeps("the manifest's segment is readable before its flush is replayed"):
            state.stored.ahead = manifest.segment
        return state

    def named(self, manifest: Manifest) -> set[str]:
        """The objects that a manifest needs."""
        keys = {one.key for one in manifest.chain} | {one.key for one in self.load(manifest).segments}
        return keys if manifest.segment is None else keys | {manifest.segment.key}

    def newest(self) -> Manifest | None:
        return max(self.manifests, key=lambda manifest: manifest.position, default=None)

    def last_at(self, time: int) -> Manifest | None:
        """The newest manifest at or before a time."""
        early = [manifest for manifest in self.manifests if manifest.at <= time]
        return max(early, key=lambda manifest: manifest.position, default=None)

    def restore(self, ticks_ago: int = 0) -> None:
        """All nodes and the log are lost: what the manifest of a moment says is there, and readable."""
        manifest = self.last_at(self.now - ticks_ago * TICK)
        if manifest is None:
            return
        state = self.load(manifest)
        if dump(state) != self.past[manifest.position]:
            raise Lost("what is restored is not what there was")
        View(self, state).check()

    def run(self, steps: int) -> None:
        """Let things happen in random order; afterwards everything must be there.

        In half of all worlds the nodes take turns: one sleeps, with whatever it had begun.
        """
        choose = self.random
        turns = choose.random() < 0.5
        for number in range(steps):
            self.clock += 1
            node = choose.choice(self.nodes)
            if turns and choose.random() < 0.97:
                node = self.nodes[number // TURN_STEPS % 2]
            chance = choose.random()
            if chance < 0.12:
                self.propose(self.clients.batch(3))
            elif chance < 0.4:
                for _ in range(choose.randint(1, choose.choice((6, 6, 40)))):
                    node.step()
            elif chance < 0.87:
                node.flush()
            elif chance < 0.92:
                node.merge()
            elif chance < 0.96:
                node.collect()
            elif chance < 0.98:
                node.start()
            elif chance < 0.985:
                node.start(damaged=True)
            else:
                self.restore(choose.choice((0, 0, KEEP_TICKS // 2, KEEP_TICKS)))
        for node in self.nodes:
            node.start()
            while node.state.position < self.oracle.position:
                node.step()
            View(self, node.state).check()
        for ticks_ago in range(0, KEEP_TICKS + 1, 10):
            self.restore(ticks_ago)


@dataclass
class Flush:
    """A flush under way: what was taken at the cut, and how far it came."""

    start: int
    cut: int
    cut_at: int
    group_row: bytes
    chain: tuple[StoredState, ...]
    is_base: bool
    parts: list[tuple[str, Journal]]
    capture: RowSnapshot
    step: str = "capture"
    segment: StoredSegment | None = None
    stored: StoredState | None = None
    command: Flushed | None = None
    at: int = 0
    outcome: AnyOutcome | None = None


class Node:
    """One replica: it applies the log, and flushes, merges and collects when it is told to."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.start()

    def start(self, damaged: bool = False) -> None:
        """Begin, also after a crash: with the newest manifest that is readable, and the log after it."""
        world = self.world
        self.flush_token: int | None = None
        self.job: Flush | None = None
        self.merging: tuple[Merge, int] | None = None
        self.collecting: int | None = None
        manifests = sorted(world.manifests, key=lambda manifest: manifest.position)
        if damaged and len(manifests) > 1:
            before = manifests[-2]
            if all(one.key in world.store for one in before.chain):
                manifests.pop()
        self.state = world.load(manifests[-1]) if manifests else State(0)
        if self.state.position < world.trimmed:
            raise Lost(
                f"the log begins after {world.trimmed}, and the manifest ends at {self.state.position}"
            )

    def step(self) -> None:
        """Apply the next entry."""
        world, state = self.world, self.state
        if state.position < world.trimmed:
            self.start()
            return
        entry = next((entry for entry in world.log if entry.position > state.position), None)
        if entry is None:
            return
        state.begin(entry.position, entry.at)
        for index, command in enumerate(entry.commands):
            outcome = state.apply(as_proposed(command), index)
            if outcome != entry.outcomes[index]:
                raise Lost(f"{command} came to {outcome}, and first to {entry.outcomes[index]}")
            if isinstance(command, FlushBegin) and not world.keeps("the cut is the end of the entry"):
                state.make_cut()
            if self.job is not None and command is self.job.command:
                self.job.outcome = outcome
        state.make_cut()
        for command in entry.commands:
            if isinstance(command, FlushBegin) and command.flusher == self.flush_token:
                self.take_cut()
            if isinstance(command, Collect) and command.horizon == self.collecting:
                self.sweep(command.horizon)
        if not world.keeps("memory keeps what is not flushed"):
            self.forget_all()
        elif world.random.random() < 0.7:
            evict_stored(state)
        if state.position == world.oracle.position:
            if dump(state) != dump(world.oracle):
                raise Lost("a replica differs")
            if world.random.random() < 0.2:
                View(world, state).check()

    def forget_all(self) -> None:
        """Drop what is before the last cut, whether it is stored or not."""
        for bucket in self.state.buckets.values():
            for stream in bucket.streams.values():
                stream.drop_stored(self.state.cut)

    # A flush, in steps

    def take_cut(self) -> None:
        """What must be taken at the cut itself."""
        world, state = self.world, self.state
        self.flush_token = None
        is_base = not state.stored.chain or world.random.random() < 0.2
        everything = all_keys(state) if is_base else None

        def row(key: Key) -> bytes | None:
            return row_of(state, key)

        capture = state.dirty_rows.begin_capture(row, everything)
        if not is_base and not world.keeps("changes are those since the flushed position"):
            last = state.dirty_rows.sealed[-1][1]
            capture = state.dirty_rows.capture = RowSnapshot(iter(last), [last], row)
        if not world.keeps("rows are captured before they change"):
            state.dirty_rows.end_capture()
        parts = [part for _, sealed in state.sealed_parts for part in sealed]
        if not world.keeps("the segment begins at the flushed position"):
            parts = state.sealed_parts[-1][1]
        if not world.keeps("the segment has the rows of deleted buckets"):
            parts = [part for part in parts if part[0] in state.buckets]
        stored = state.stored
        row_then = group_row(state)
        self.job = Flush(stored.flushed, state.cut, state.at, row_then, stored.chain, is_base, parts, capture)

    def flush(self) -> None:
        """The next step of a flush."""
        world, job = self.world, self.job
        if job is None:
            if self.flush_token is None or world.random.random() < 0.05:
                world.count += 1
                self.flush_token = world.count
                begin = FlushBegin(self.flush_token)
                world.propose([*world.clients.batch(2), begin, *world.clients.batch(2)])
            return
        getattr(self, f"_{job.step}")(job)

    def _capture(self, job: Flush) -> None:
        if job.capture.is_done:
            if self.state.dirty_rows.capture is job.capture:
                self.state.dirty_rows.end_capture()
            job.step = "store_segment"
            return
        job.capture.step(self.world.random.randint(1, 20))

    def _store_segment(self, job: Flush) -> None:
        world = self.world
        try:
            rows = [self.filled(row) for bucket, part in job.parts for row in rows_of(bucket, part)]
        except Lost:
            if world.oracle.stored.flushed == job.start:
                raise
            self.job = None  # another was faster, so long ago that a body is gone
            return
        job.step = "store_state"
        if rows:
            key = world.put("segments", in_order(rows))
            size = sum(len(row.payload or b"") for row in rows)
            job.segment = StoredSegment(job.start, job.cut, key, len(rows), size, size, 0, 0, "")

    def filled(self, row: Row) -> Row:
        """A row with its bytes, fetched if they are in a blob."""
        if not isinstance(row.payload, BlobSlice):
            return row
        blob = self.world.get(f"blobs/{row.payload.blob}")
        return row._replace(payload=blob[row.payload.start : row.payload.end])

    def _store_state(self, job: Flush) -> None:
        world = self.world
        rows = job.capture.rows
        if not world.keeps("rows that are gone leave a tombstone"):
            rows = [(key, row) for key, row in rows if row is not None]
        if not world.keeps("the group row is that of the cut"):
            job.group_row = group_row(self.state)
        job.stored = StoredState(world.put("state", rows), job.is_base, len(rows), len(rows), "")
        job.step = "form_entry"

    def _form_entry(self, job: Flush) -> None:
        """The entry gets its time now, and is sent later."""
        world = self.world
        assert job.stored is not None
        objects = [job.stored.key] if job.segment is None else [job.stored.key, job.segment.key]
        made_at = min(world.made[key] for key in objects)
        if not world.keeps("objects are as old as their names"):
            made_at = world.now
        job.command = Flushed(job.start, job.cut, job.segment, job.stored, made_at)
        job.at = world.now
        job.step = "send"
        if not world.keeps("the manifest follows the flush"):
            self.write_manifest(job)

    def _send(self, job: Flush) -> None:
        assert job.command is not None
        if not self.world.keeps("a flush names where the cut began"):
            job.command = replace(job.command, start=self.state.stored.flushed)
        self.world.propose([job.command], job.at)
        job.step = "wait"

    def _wait(self, job: Flush) -> None:
        world = self.world
        if job.outcome is None:
            return
        if not isinstance(job.outcome, Done):
            self.job = None
            return
        if not world.keeps("the log is trimmed to a manifest that is there"):
            self.trim(job.cut)
        job.step = "finish"

    def _finish(self, job: Flush) -> None:
        world = self.world
        self.write_manifest(job)
        positions = sorted(manifest.position for manifest in world.manifests)
        if not world.keeps("the log is trimmed to the manifest before"):
            self.trim(positions[-1])
        elif len(positions) > 1:
            self.trim(positions[-2])
        self.job = None

    def write_manifest(self, job: Flush) -> None:
        assert job.stored is not None
        chain = (job.stored,) if job.is_base else (*job.chain, job.stored)
        if not self.world.keeps("the manifest has the chain of the cut"):
            chain = self.state.stored.chain
        self.world.manifests.append(Manifest(job.cut, job.cut_at, job.segment, chain, job.group_row))

    def trim(self, position: int) -> None:
        world = self.world
        world.trimmed = max(world.trimmed, position)
        world.log = [entry for entry in world.log if entry.position > world.trimmed]

    # Merging and collecting

    def merge(self) -> None:
        """Put neighbouring segments together, and later say so."""
        world = self.world
        if self.merging is not None:
            command, at = self.merging
            self.merging = None
            world.propose([command], at)
            return
        segments = list(self.state.segments)
        if len(segments) < 2:
            return
        first = world.random.randrange(len(segments) - 1)
        inputs = segments[first : first + world.random.randint(2, 3)]
        if any(one.key not in world.store for one in inputs):
            return
        rows = [row for one in inputs for row in world.get(one.key)]
        key = world.put("segments", rows)
        size = sum(one.size for one in inputs)
        output = StoredSegment(inputs[0].first, inputs[-1].last, key, len(rows), size, size, 0, 0, "")
        made_at = world.made[key] if world.keeps("objects are as old as their names") else 2**60
        self.merging = (Merge(tuple(one.key for one in inputs), output, made_at), world.now)

    def collect(self) -> None:
        """Say what is about to be deleted."""
        world, manifest = self.world, self.world.newest()
        if self.collecting is not None or manifest is None:
            return
        reached = manifest.position
        self.collecting = world.now - KEEP_TICKS * TICK
        kept = world.last_at(self.collecting)
        if kept is not None and world.keeps("collection spares what the manifest at the horizon names"):
            reached = min(reached, kept.position)
        if not world.keeps("collection spares what the newest manifest names"):
            reached = world.oracle.position
        world.propose([Collect(self.collecting, reached)])

    def sweep(self, horizon: int) -> None:
        """Delete what is old enough and named by nothing."""
        world, state = self.world, self.state
        self.collecting = None
        manifest = world.newest()
        named = {one.key for one in state.segments} | {one.key for one in state.stored.chain}
        named |= {f"blobs/{blob}" for blob in state.blobs}
        if world.keeps("collection spares what was replaced lately"):
            named |= state.stored.replaced.keys()
        if world.keeps("collection spares bodies that no segment has"):
            named |= {f"blobs/{blob}" for _, blob in state.stored.bodies}
        if manifest is not None and world.keeps("collection spares what the newest manifest names"):
            named |= world.named(manifest)
        for key in [key for key in world.store if world.made[key] < horizon and key not in named]:
            del world.store[key]


class View:
    """What a reader gets of a state: bytes and rows from memory and from the store."""

    def __init__(self, world: World, state: State) -> None:
        self.world = world
        self.state = state
        self.acknowledged: dict[str, list[Row]] = {}
        for row in world.rows:
            if row.kind == "append" and row.position <= state.position:
                self.acknowledged.setdefault(row.incarnation, []).append(row)

    def check(self) -> None:
        """Every byte and every row that was acknowledged is there; nothing else is."""
        self.check_feed()
        self.check_graves()
        for bucket in self.state.buckets.values():
            for name in list(bucket.all_names()):
                stream = bucket.find(name)
                assert stream is not None
                if not stream.hidden:
                    self.check_stream(stream)
        for stream, name in self.state.residency.unparked.items():
            self.state.buckets[name].park(stream)
        self.state.residency.unparked.clear()

    def check_graves(self) -> None:
        for tombstone in self.state.deleted.incarnations.values():
            if (snapshot := read_row(tombstone.row).snapshot) is not None:
                self.world.get(f"blobs/{snapshot[1]}")

    def check_feed(self) -> None:
        state, reached = self.state, self.state.stored_to
        rows: list[Row] = []
        after = -1
        while (segment := state.segment_after(after)) is not None:
            rows += self.world.get(segment.key)
            after = segment.last
        hot = [part for _, sealed in state.sealed_parts for part in sealed] + state.parts
        kept = [row for bucket, part in hot for row in rows_of(bucket, part) if row.position > reached]
        rows += in_order([self.world.resolved(row) for row in kept])
        expected = [row for row in self.world.rows if row.position <= state.position]
        if in_order(rows) != in_order(expected):
            raise Lost(f"the feed has {len(rows)} rows of {len(expected)}, or others")

    def check_stream(self, stream: Stream) -> None:
        if stream.snapshot is not None:
            self.world.get(f"blobs/{stream.snapshot.blob}")
        offset = stream.earliest
        while offset < stream.tail:
            owner, limit = stream.owner_of(offset)
            expected = self.bytes_of(owner, offset, limit)
            if expected != (found := self.read(owner, offset, limit)):
                raise Lost(f"{stream.name} reads {found!r} at {offset}, and {expected!r} was acknowledged")
            offset = limit

    def bytes_of(self, owner: Stream, offset: int, limit: int) -> bytes:
        start = owner.fork_offset
        rows = self.acknowledged.get(owner.incarnation, [])
        content = b"".join(row.payload for row in rows if isinstance(row.payload, bytes))
        return content[offset - start : limit - start]

    def read(self, owner: Stream, offset: int, limit: int) -> bytes:
        """The bytes of one stream itself: from segments, then from memory."""
        found = []
        while offset < min(limit, owner.messages.start):
            ref = owner.ref_at(offset)
            segment = None if ref is None else self.state.segment_at(ref.position)
            if segment is None:
                if offset < owner.earliest:  # a fork came back whose source was trimmed: it is on its way
                    return self.bytes_of(owner, offset, limit)
                raise Lost(f"{owner.name} has nothing at {offset}: {ref}")
            row = self.row_at(owner, segment, offset)
            piece = row.payload[offset - row.offset : limit - row.offset]
            found.append(piece)
            offset += len(piece)
        if offset < limit:
            owner.messages.read(offset, limit, limit - offset, False, found)
        return b"".join(self.bytes_in(piece) for piece in found)

    def row_at(self, owner: Stream, segment: StoredSegment, offset: int) -> Any:
        for row in self.world.get(segment.key):
            if row.incarnation == owner.incarnation and row.offset <= offset < row.next_offset:
                return row
        raise Lost(f"{owner.name} has no row at {offset} in {segment.key}")

    def bytes_in(self, piece: Any) -> bytes:
        if isinstance(piece, BlobSlice):
            whole: bytes = self.world.get(f"blobs/{piece.blob}")
            return whole[piece.start : piece.end]
        return bytes(piece)
