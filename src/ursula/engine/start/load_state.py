"""Loading the state that a node starts from: that of the newest manifest. The log continues from there.

There is no other way to start.
"""

import asyncio
import logging
from typing import NamedTuple

from ...cold.objects.store import ObjectDamaged, ObjectMissing, Store
from ...cold.state import manifest as manifests
from ...cold.state.manifest import Manifest
from ...cold.state.state_rows import StateRow, read_state
from ...model.checkpoint.checkpoint import Loader
from ...model.state import State
from ...model.store_view.dirty_rows import RowKind
from ...model.stream.row import RowUnreadable
from ..pacing import TimeSlice
from ..segment_info import segment_from_facts, state_from_facts

logger = logging.getLogger(__name__)


class LoadedState(NamedTuple):
    """A state as of a manifest, and its streams that have deadlines."""

    state: State
    manifest: Manifest
    key: str
    previous_position: int
    deadlines: list[tuple[str, str]]


class StoreRefused(Exception):
    """Store and log do not fit together, or cannot be read; the text says what to do."""


async def load_newest(store: Store, group: int, log_first: int = 0) -> LoadedState | None:
    """The state of the newest manifest that can be read; None if there is no manifest at all.

    The log is trimmed to the manifest before the newest, so nothing is lost if the newest one is damaged: the
    previous one and the log lead to the same state. `log_first` is where the log begins; older manifests
    are of no use.
    """
    found = await manifests.find_manifests(store, group)
    problems: list[str] = []
    for number, one in enumerate(found):
        if problems and one.position < log_first:
            break
        before = found[number + 1].position if number + 1 < len(found) else 0
        try:
            manifest = await manifests.read_manifest(store, one.key)
            loaded = await load(store, manifest, one.key, before)
        except (ObjectDamaged, ObjectMissing) as error:
            if error.key != one.key:
                raise
            problems.append(str(error))
            continue
        for problem in problems:
            logger.warning(
                "%s; the node starts from %s, and the log has everything after that, so nothing is lost",
                problem,
                one.key,
            )
        return loaded
    if problems:
        raise StoreRefused(
            f"{', and '.join(problems)}; no other manifest is as new as the beginning of the log, position "
            f"{log_first}: put one of them back from a backup, or see `ursula restore --at`"
        )
    return None


async def load(store: Store, manifest: Manifest, key: str, previous_position: int = 0) -> LoadedState:
    """The state of a manifest; ObjectDamaged if manifest and state do not agree."""
    loader: Loader | None = None
    time_slice = TimeSlice()
    try:
        group_row = await _group_row(store, manifest)
        loader = Loader(group_row)
        for facts in manifest.state:
            if facts.base and facts is not manifest.state[0]:
                raise RowUnreadable(f"{facts.path} is a base in the middle of a chain")
            rows = await _rows(store, facts)
            while (some := await asyncio.to_thread(next, rows, None)) is not None:
                for row in some:
                    if row.kind != RowKind.GROUP:
                        loader.add(*row)
                await time_slice.end()
        for _ in loader.finish():
            await time_slice.end()
    except RowUnreadable as error:
        raise StoreRefused(f"the state that {key} names cannot be read: {error}") from None
    state = loader.state
    expected = manifest.group, manifest.position, manifest.start, manifest.at
    if expected != (state.group, state.position, state.stored.flushed, state.at):
        raise ObjectDamaged(key, "its positions or its time do not match the state that it names")
    if manifest.segment is not None:
        state.stored.ahead = segment_from_facts(manifest.segment)
    if manifest.start == manifest.position:  # the first of a generation: no `Flushed` will name its objects
        state.stored.chain = tuple(state_from_facts(facts) for facts in manifest.state)
    return LoadedState(state, manifest, key, previous_position, loader.deadlines)


async def _group_row(store: Store, manifest: Manifest) -> bytes:
    """The group's own row, which is the first row of the newest state object."""
    rows = await _rows(store, manifest.state[-1])
    first = await asyncio.to_thread(next, rows, None)
    if not first or first[0].kind != RowKind.GROUP or first[0].row is None:
        raise ObjectDamaged(manifest.state[-1].path, "it has no row of the group")
    return first[0].row


class _Rows:
    """The rows of an object; if they turn out to be damaged, the error names the object."""

    def __init__(self, key: str, data: bytes, digest: str) -> None:
        self._key = key
        self._rows = read_state(data, digest)

    def __iter__(self) -> "_Rows":
        return self

    def __next__(self) -> list[StateRow]:
        try:
            return next(self._rows)
        except ValueError as error:
            raise ObjectDamaged(self._key, str(error)) from None


async def _rows(store: Store, facts: manifests.StateFacts) -> _Rows:
    return _Rows(facts.path, await store.get(facts.path), facts.digest)
