"""What the log says of the store: cuts, what was flushed and merged, and what is not needed any more."""

from .commands import Collect, FlushBegin, Flushed, Merge, StoredSegment
from .contents import Contents
from .deleted import Grave
from .journal import Journal
from .outcomes import AnyOutcome, CutMade, Done, Ignored
from .store_view.dirty_rows import Key, RowKind
from .store_view.store_state import Replaced


class Keeping(Contents):
    """The part of the state machine that deals with the store."""

    def __init__(self, group: int) -> None:
        super().__init__(group)
        self._cutting = False
        self.settled: list[dict[Key, None]] = []  # keys whose rows are stored, for the engine to look after
        self.settled_parts: list[tuple[str, Journal]] = []  # parts of journals that are stored
        self.trimmed: dict[tuple[str, str], None] = {}  # streams with more in memory than they begin with

    def make_cut(self) -> None:
        """End the entry begun last: what comes now is after the cut. Does nothing if it is none."""
        if not self._cutting:
            return
        self._cutting = False
        self.cut = self.position
        self.changes.seal(self.cut)
        self.sealed_parts.append((self.cut, self.parts))
        self.parts = []

    def _flush_begin(self, command: FlushBegin, index: int) -> AnyOutcome:
        self._cutting = True
        return CutMade(self.position)

    def _flushed(self, command: Flushed, index: int) -> AnyOutcome:
        stored = self.stored
        if command.start != stored.flushed or self._too_old(command.made_at):
            return Ignored()
        stored.flushed = command.cut
        stored.ahead = None
        if command.segment is not None:
            self._add_segment(command.segment)
        if command.state.is_base:
            for replaced in stored.chain:
                self._replace(replaced.key)
            stored.chain = (command.state,)
        else:
            stored.chain += (command.state,)
        for position, blob in stored.bodies:
            if position <= command.cut:
                self._replace(f"blobs/{blob}")
        stored.bodies = [body for body in stored.bodies if body[0] > command.cut]
        self.settled += self.changes.settle(command.cut)
        for cut, parts in self.sealed_parts:
            if cut <= command.cut:
                self.settled_parts += parts
        self.sealed_parts = [sealed for sealed in self.sealed_parts if sealed[0] > command.cut]
        return Done(command.cut)

    def _merge(self, command: Merge, index: int) -> AnyOutcome:
        if not self.segments.are_neighbours(command.inputs) or self._too_old(command.made_at):
            return Ignored()
        for key in command.inputs:
            self.changes.note((RowKind.SEGMENT, key, ""))
            self.segments.remove(key)
            self._replace(key)
        if command.output is not None:
            self._add_segment(command.output)
        return Done(self.position)

    def _collect(self, command: Collect, index: int) -> AnyOutcome:
        self.stored.horizon = max(self.stored.horizon, command.horizon)
        ended = self.graves.before(command.horizon)
        for grave in ended:
            self.changes.note((RowKind.GRAVE, *grave.name))
        self.graves.remove_first(ended)
        for grave in ended:
            self._let_snapshot_go(grave)
        replaced = self.stored.replaced
        for key in replaced.by_time.before(command.horizon):
            if replaced[key].position <= command.manifest:
                self.changes.note((RowKind.REPLACED, key, ""))
                del replaced[key]
        return Done(self.position)

    def step_to(self, horizon: int, reached: int, count: int) -> int:
        """How far to go in one `Collect`, on the way from a horizon to a later one, so that it is short.

        Between the two lie no more than so many graves, and so many replaced objects, unless more are of one
        moment.
        """
        steps = (
            self.graves.by_time.step_after(reached, count),
            self.stored.replaced.by_time.step_after(reached, count),
        )
        return min((step for step in steps if step is not None and step < horizon), default=horizon)

    def _let_snapshot_go(self, grave: Grave) -> None:
        """Manifests of before have the ended stream, and need its snapshot for as long as they are kept."""
        if grave.blob is not None and (key := f"blobs/{grave.blob}") in self.stored.replaced:
            self._replace(key)

    def _add_segment(self, segment: StoredSegment) -> None:
        self.changes.note((RowKind.SEGMENT, segment.key, ""))
        self.segments.add(segment)

    def _too_old(self, made_at: int | None) -> bool:
        """Whether an object that is named only now may have been collected already."""
        return made_at is not None and made_at < self.stored.horizon

    def _want(self, key: str) -> None:
        """Something needs an object of the store, perhaps again."""
        if key in self.stored.replaced:
            self.changes.note((RowKind.REPLACED, key, ""))
            del self.stored.replaced[key]

    def _replace(self, key: str) -> None:
        """Nothing needs an object of the store any more."""
        self.changes.note((RowKind.REPLACED, key, ""))
        self.stored.replaced[key] = Replaced(self.position, self.at)
