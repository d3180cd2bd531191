"""The state machine of a group: `apply` in log order, and `look` ahead of the log.

Every command is decided first; if the decision is a plan, the change follows. `DECIDE` and `CHANGE` are the
transition table. It is deterministic: the same commands at the same positions and times give the same state
and the same outcomes, on every replica and in every process. So there is no clock, no randomness, no I/O and
no iteration over anything whose order could differ.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sortedcontainers import SortedList

from .bucket import Bucket
from .change.append import change_append
from .change.bucket import change_create_bucket, change_delete_bucket
from .change.bulk_write import change_ingest_begin, change_ingest_rows
from .change.create import change_create
from .change.fast_append import append_fast
from .change.snapshot import change_publish, change_trim
from .change.store import (
    change_collect,
    change_flush_begin,
    change_flushed,
    change_merge,
    change_request_flush,
)
from .change.stream import (
    change_delete,
    change_expire,
    change_renew,
    change_set_attributes,
    change_undelete,
)
from .codec.entry import Batch
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
    IngestRows,
    Merge,
    PlainAppend,
    PublishSnapshot,
    Renew,
    RequestFlush,
    SetAttributes,
    StoredSegment,
    Trim,
    Undelete,
)
from .decide.append import decide_append
from .decide.bucket import decide_create_bucket, decide_delete_bucket
from .decide.bulk_write import decide_ingest_begin, decide_ingest_rows
from .decide.create import decide_create
from .decide.refusals import bucket_not_found, incarnation_mismatch, stream_not_found
from .decide.snapshot import decide_publish, decide_trim
from .decide.store import (
    decide_collect,
    decide_flush_begin,
    decide_flushed,
    decide_merge,
    decide_request_flush,
)
from .decide.stream import (
    decide_delete,
    decide_expire,
    decide_renew,
    decide_set_attributes,
    decide_undelete,
)
from .deleted import DeletedStreams
from .entry_hash import hash_entry
from .journal import Gauge, Journal
from .outcomes import AnyOutcome, Ingest, Outcome, Refused
from .read.reads import Reads
from .residency import Residency
from .store_view.dirty_rows import DirtyRows, RowKind
from .store_view.segments import SegmentTable
from .store_view.store_state import StoreState
from .stream.stream import Stream

REFS_MAX = 16
"""With more references than this, a stream drops those that lead to the same segment as another."""

DECIDE: dict[type, Callable[..., Any]] = {
    CreateBucket: decide_create_bucket,
    DeleteBucket: decide_delete_bucket,
    Create: decide_create,
    Append: decide_append,
    PlainAppend: decide_append,
    Delete: decide_delete,
    Expire: decide_expire,
    Renew: decide_renew,
    Undelete: decide_undelete,
    SetAttributes: decide_set_attributes,
    PublishSnapshot: decide_publish,
    Trim: decide_trim,
    IngestBegin: decide_ingest_begin,
    IngestRows: decide_ingest_rows,
    FlushBegin: decide_flush_begin,
    Flushed: decide_flushed,
    Merge: decide_merge,
    Collect: decide_collect,
    RequestFlush: decide_request_flush,
}
"""By command: (state, command) -> the outcome if nothing changes, otherwise the plan of the change."""

CHANGE: dict[type, Callable[..., AnyOutcome]] = {
    CreateBucket: change_create_bucket,
    DeleteBucket: change_delete_bucket,
    Create: change_create,
    Append: change_append,
    PlainAppend: change_append,
    Delete: change_delete,
    Expire: change_expire,
    Renew: change_renew,
    Undelete: change_undelete,
    SetAttributes: change_set_attributes,
    PublishSnapshot: change_publish,
    Trim: change_trim,
    IngestBegin: change_ingest_begin,
    IngestRows: change_ingest_rows,
    FlushBegin: change_flush_begin,
    Flushed: change_flushed,
    Merge: change_merge,
    Collect: change_collect,
    RequestFlush: change_request_flush,
}
"""By command: (state, command, plan, index in the log entry) -> the outcome."""


class State:
    """All buckets and streams of one group, as of the log position `position`."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.position = 0
        self.at = 0
        self.entry_count = 0  # how many entries of the log were applied
        self.entries_hash = b""  # the running hash over them; kept only where several nodes share the log
        self.buckets: dict[str, Bucket] = {}
        self.bucket_names: SortedList[str] = SortedList()
        self.stream_count = 0
        self.blobs: dict[str, int] = {}  # blobs that are visible snapshots, each with its number of streams
        self.deleted = DeletedStreams()
        self.ingests: dict[tuple[str, str], Ingest] = {}  # the newest bulk write by bucket and app
        self.dropped_at = -1  # when a stream was last removed or trimmed; -1 if none was since the start
        self.gauge = Gauge()
        self.reads = Reads(self)
        self.residency = Residency(self)
        self.dirty_rows = DirtyRows()
        self.segments = SegmentTable()
        self.stored = StoreState()
        self.cut = 0  # the position of the last entry that ended with a cut
        self._ends_with_cut = False
        self.parts: list[tuple[str, Journal]] = []  # parts of journals begun after the cut, by bucket
        self.sealed_parts: list[tuple[int, list[tuple[str, Journal]]]] = []  # by the cut that sealed them

    # The state machine

    def begin(self, position: int, at: int) -> None:
        """Begin the next log entry. Time never runs backwards, whatever the clock of the proposer says."""
        if self._ends_with_cut:
            self.make_cut()
        self.position = position
        self.entry_count += 1
        self.at = max(self.at, at)

    def hash_entry(self, payload: bytes, outcomes: Sequence[AnyOutcome]) -> None:
        """Add the entry begun last, with all its outcomes, to the running hash."""
        self.entries_hash = hash_entry(self.entries_hash, payload, outcomes)

    def note_entry_blob(self, blob: str, made_at: int) -> bool:
        """Note that the entry begun last is in a blob; False if the entry must be ignored.

        The blob may have been collected if it was stored long before it was logged. Then nothing of the entry
        counts, whether or not the blob is still there: all replicas must decide alike.
        """
        if self.may_be_collected(made_at):
            return False
        self.stored.bodies.append((self.position, blob))
        return True

    def apply(self, command: AnyCommand, index: int) -> AnyOutcome:
        """Apply one command of the entry begun last: decide it, then make the change."""
        kind = type(command)
        decision = DECIDE[kind](self, command)
        if isinstance(decision, Outcome):
            return decision  # type: ignore[return-value]
        return CHANGE[kind](self, command, decision, index)

    def apply_all(self, commands: list[AnyCommand]) -> list[AnyOutcome]:
        """Apply all commands of the entry begun last. Most are plain appends, which take the fast path."""
        apply = self.apply
        return [
            append_fast(self, command, index) if type(command) is PlainAppend else apply(command, index)
            for index, command in enumerate(commands)
        ]

    def apply_batches(self, batches: list[Batch]) -> list[AnyOutcome]:
        """Apply all batches of the entry begun last.

        The indexes of their commands continue from one to the next. The rows of a bulk write have an index
        each.
        """
        if len(batches) == 1:
            return self.apply_all(batches[0].commands)
        outcomes, index = [], 0
        commands = (command for batch in batches for command in batch.commands)
        for command in commands:
            outcomes.append(self.apply(command, index))
            index += len(command.rows) if isinstance(command, IngestRows) else 1
        return outcomes

    def look(self, command: AnyCommand, json_problem: str | None = None) -> AnyOutcome | None:
        """The outcome of a command that would change nothing; None if it would change something.

        `json_problem`: see `decide_append`.
        """
        decide = DECIDE[type(command)]
        decision = decide(self, command) if json_problem is None else decide(self, command, json_problem)
        return decision if isinstance(decision, Outcome) else None  # type: ignore[return-value]

    def end_with_cut(self) -> None:
        """Make the end of the entry begun last a cut."""
        self._ends_with_cut = True

    def make_cut(self) -> None:
        """Make the cut at the end of the entry begun last, if it ends with one: what follows is after it."""
        if not self._ends_with_cut:
            return
        self._ends_with_cut = False
        self.cut = self.position
        self.dirty_rows.seal(self.cut)
        self.sealed_parts.append((self.cut, self.parts))
        self.parts = []

    # Lookups

    def find(self, bucket: str, name: str) -> Stream | None:
        """The stream with this name, even if it is hidden."""
        found = self.buckets.get(bucket)
        return None if found is None else found.find(name)

    def visible(self, bucket: str, name: str, incarnation: str | None) -> Stream | Refused:
        """The stream with this name if clients may see it, otherwise the refusal."""
        found = self.buckets.get(bucket)
        if found is None:
            return bucket_not_found(bucket)
        stream = found.streams.get(name) or found.find(name)
        if stream is None or stream.hidden:
            return stream_not_found(name, stream)
        if incarnation is not None and incarnation != stream.incarnation:
            return incarnation_mismatch(stream)
        return stream

    def segment_at(self, position: int) -> StoredSegment | None:
        """The segment that has a position of the log; None if it is not or no longer stored."""
        ahead = self.stored.ahead
        if ahead is not None and ahead.first < position <= ahead.last:
            return ahead
        return self.segments.at(position)

    def segment_after(self, position: int) -> StoredSegment | None:
        """The first segment that may have rows after a position."""
        ahead = self.stored.ahead
        found = self.segments.after(position)
        return ahead if found is None and ahead is not None and ahead.last > position else found

    @property
    def stored_to(self) -> int:
        """The position up to which segments have everything."""
        ahead = self.stored.ahead
        return self.stored.flushed if ahead is None else max(self.stored.flushed, ahead.last)

    def may_be_collected(self, made_at: int | None) -> bool:
        """Whether an object made at this time, but not named until now, may already have been collected."""
        return made_at is not None and made_at < self.stored.horizon

    def collection_step(self, horizon: int, reached: int, count: int) -> int:
        """The horizon of the next `Collect` on the way from `reached` to a horizon, so that each is short.

        It covers at most `count` tombstones and as many replaced objects, or more if they have the same time.
        """
        steps = (
            self.deleted.by_time.step_after(reached, count),
            self.stored.replaced.by_time.step_after(reached, count),
        )
        return min((step for step in steps if step is not None and step < horizon), default=horizon)

    # Preparing a change

    def touch(self, bucket: str, stream: Stream) -> None:
        """Note that a stream is about to change."""
        if stream.dirty_at <= self.cut:
            self.dirty_rows.note((RowKind.STREAM, bucket, stream.name))
        stream.dirty_at = self.position

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
        """Add a reference: a stream is about to get its first message after a cut."""
        refs = stream.refs
        if refs is not None and len(refs) >= 3 * REFS_MAX:
            stream.keep_refs(self._needed_refs(stream))
        stream.refer(self.position)

    def _needed_refs(self, stream: Stream) -> list[int]:
        """The numbers of the refs to keep: each leads to a segment of its own, or to rows not yet stored."""
        needed, before = [], None
        for number, position in enumerate(stream.refs[1::3] if stream.refs is not None else ()):
            segment = self.segments.at(position)
            is_gone = segment is None and position <= self.stored.flushed
            if not is_gone and (segment is None or segment is not before):
                needed.append(number)
            before = segment
        return needed
