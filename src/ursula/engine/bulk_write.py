"""Bulk writes in progress: reads staged objects step by step, and appends their rows in parts of about 1 MiB.

Nothing here must survive: the progress of a bulk write is in the state of its group. A request for a bulk
write that is not finished continues it, even after a restart.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ..cold.objects.store import ObjectDamaged, Store, StoreFailed
from ..cold.objects.ulid import new_ulid
from ..cold.staging import StagedInvalid, check_digest, open_staged
from ..model.commands import IngestBegin, IngestRow, IngestRows
from ..model.outcomes import AnyOutcome, Ignored, Ingest, Refused, RowsIngested
from ..model.text.json_messages import JsonInvalid, JsonTooLarge, split
from ..model.text.media_type import DEFAULT, JSON, media_type_of
from .failures import Failure, IngestStopped
from .group.group import Group

PART_BYTES = 1024 * 1024
PART_ROWS = 2048
BACKPRESSURE_SECONDS = 0.2
STALLED_SECONDS = 1.0
"""A bulk write that has not moved for this long is not driven by another node: this one continues it."""

logger = logging.getLogger(__name__)

Check = Callable[[str, str, int], tuple[str, str] | None]
"""Takes bucket, stream and size; returns why such an append is refused, as code and message, or None."""

Name = tuple[str, str]
"""Bucket and app."""


class IngestProgress(NamedTuple):
    """How far a bulk write has come: the next row of which object."""

    version: int
    object: int
    row: int

    @classmethod
    def of(cls, ingest: Ingest) -> "IngestProgress":
        """The progress in the state."""
        return cls(ingest.version, ingest.object, ingest.row)


class _Part(NamedTuple):
    """Some rows of a staged object."""

    first: int
    streams: list[str]
    values: list[bytes]
    content_types: list[str | None]
    is_end: bool


class Ingesters:
    """The bulk writes in progress on this node: at most one for each bucket and app."""

    def __init__(self, store: Store, scratch: Path, check: Check | None) -> None:
        self._store = store
        self._scratch = scratch
        self._check: Check = check or (lambda bucket, stream, size: None)
        self._tasks: dict[Name, asyncio.Task[None]] = {}
        self._driven_to: dict[Name, IngestProgress] = {}

    async def ingest(
        self, group: Group, command: IngestBegin, patience_seconds: float
    ) -> AnyOutcome | Failure:
        """Begin or continue a bulk write; returns its progress when it ends or after `patience_seconds`.

        Raises StoreFailed or IngestStopped if it cannot continue now.
        """
        name = command.bucket, command.app
        if not group.is_current:
            await group.current()  # another node may have ended it, and its objects may be gone
        give_up_at = asyncio.get_running_loop().time() + patience_seconds
        while True:
            known = group.state.ingests.get(name)
            if known is None or command.version > known.version:
                for key in command.objects:
                    await self._store.size(key)
            outcome = await group.propose_and_wait(command)
            if not isinstance(outcome, Ingest) or (outcome.ended and outcome.version == command.version):
                return outcome
            left = give_up_at - asyncio.get_running_loop().time()
            task = self._continue(group, name)
            done, _ = await asyncio.wait({task}, timeout=max(0.0, left))
            if not done:
                return outcome
            task.result()

    def stop(self) -> None:
        """Stop; the next request continues after a restart."""
        for task in self._tasks.values():
            task.cancel()

    async def drop(self) -> None:
        """Stop, and wait until nothing refers to a group any more."""
        tasks = list(self._tasks.values())
        self.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._driven_to.clear()

    def _continue(self, group: Group, name: Name) -> asyncio.Task[None]:
        task = self._tasks.get(name)
        if task is None:
            task = self._tasks[name] = asyncio.get_running_loop().create_task(self._drive(group, name))

            def ended(task: asyncio.Task[None]) -> None:
                del self._tasks[name]
                if task.cancelled() or (error := task.exception()) is None:
                    return
                if not isinstance(error, StoreFailed | IngestStopped):  # its callers may be gone by now
                    logger.error("a bulk write failed: %s/%s", *name, exc_info=error)

            task.add_done_callback(ended)
        return task

    async def _drive(self, group: Group, name: Name) -> None:
        """Append all rows that have not been appended yet."""
        while (ingest := group.state.ingests.get(name)) is not None and not ingest.ended:
            if not await self._is_ours(group, name, ingest):
                continue
            key = ingest.objects[ingest.object]
            local = self._store.local_path(key)
            path = local or self._scratch / f"staged-{new_ulid()}"
            try:
                if local is None:
                    await self._store.get_file(key, path)
                else:
                    await self._store.size(key)  # raises the usual error if it is missing
                await asyncio.to_thread(check_digest, key, path)
                await self._append_rows(group, name, ingest, path)
            except StagedInvalid as error:
                raise ObjectDamaged(key, str(error)) from error
            finally:
                if local is None:
                    await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _is_ours(self, group: Group, name: Name, ingest: Ingest) -> bool:
        """Whether this node should continue a bulk write: it has begun, is ours, or has stopped moving."""
        progress = IngestProgress.of(ingest)
        if progress == IngestProgress(ingest.version, 0, 0) or progress == self._driven_to.get(name):
            return True
        await asyncio.sleep(STALLED_SECONDS)
        now = group.state.ingests.get(name)
        if now is None or now.ended or IngestProgress.of(now) != progress:
            return False
        self._driven_to[name] = progress
        return True

    async def _append_rows(self, group: Group, name: Name, ingest: Ingest, path: Path) -> None:
        """Append the remaining rows of one object, unless another node appends them first."""
        parts = _parts(path, ingest.row)
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            types = self._types(group, name[0], part)
            rows = await asyncio.to_thread(self._rows, name[0], ingest, part, types)
            command = IngestRows(
                bucket=name[0],
                app=name[1],
                version=ingest.version,
                object=ingest.object,
                first=part.first,
                rows=rows,
                is_end=part.is_end,
            )
            outcome = await self._append_patiently(group, command)
            if isinstance(outcome, RowsIngested):
                self._driven_to[name] = IngestProgress.of(outcome.ingest)
            if isinstance(outcome, Ignored) or (isinstance(outcome, RowsIngested) and outcome.ingest.ended):
                return
            if not isinstance(outcome, RowsIngested):
                raise IngestStopped(outcome)  # type: ignore[arg-type]

    async def _append_patiently(self, group: Group, command: IngestRows) -> AnyOutcome | Failure:
        """Propose the command, and retry for as long as back-pressure rejects it."""
        while True:
            outcome = await group.propose_and_wait(command)
            if not isinstance(outcome, Refused) or outcome.code != "write_backpressure":
                return outcome
            await asyncio.sleep(BACKPRESSURE_SECONDS)

    def _types(self, group: Group, bucket: str, part: _Part) -> dict[str, str]:
        """The content types of the streams that exist."""
        found = {}
        for name in dict.fromkeys(part.streams):
            stream = group.state.visible(bucket, name, None)
            if not isinstance(stream, Refused):
                found[name] = stream.content_type
        return found

    def _rows(
        self, bucket: str, ingest: Ingest, part: _Part, types: Mapping[str, str]
    ) -> tuple[IngestRow, ...]:
        rows = []
        made: dict[str, str] = {}
        for stream, value, given in zip(part.streams, part.values, part.content_types, strict=True):
            content_type = given or types.get(stream) or made.get(stream) or ingest.content_type or DEFAULT
            made.setdefault(stream, content_type)
            problem = self._check(bucket, stream, len(value))
            messages: tuple[bytes, ...] = (value,)
            if problem is None and not value:
                problem = "empty_body", "an append needs a body"
            elif problem is None and media_type_of(content_type) == JSON:
                messages, problem = _split(value)
            rows.append(IngestRow(stream, () if problem else messages, content_type, given is None, problem))
        return tuple(rows)


def _split(value: bytes) -> tuple[tuple[bytes, ...], tuple[str, str] | None]:
    try:
        return split(value), None
    except JsonTooLarge as error:
        return (), ("body_too_large", str(error))
    except JsonInvalid as error:
        return (), ("invalid_json", str(error))


def _parts(path: Path, first: int) -> Iterator[_Part]:
    """The rows of an object from `first` on, about 1 MiB at a time; the last part may be empty."""
    row = 0
    waiting: _Part | None = None
    for batch in open_staged(path):
        begin = max(0, first - row)
        while begin < batch.num_rows:
            if waiting is not None:
                yield waiting
            end = _end(batch, begin)
            waiting = _part(batch, begin, end, row + begin)
            begin = end
        row += batch.num_rows
    yield _Part(max(row, first), [], [], [], True) if waiting is None else waiting._replace(is_end=True)


def _end(batch: pa.RecordBatch, begin: int) -> int:
    """Where the part that begins at `begin` ends: it has at least one row."""
    end, size = begin, 0
    lengths = pa.compute.binary_length(batch["value"].slice(begin, PART_ROWS)).to_pylist()
    for length in lengths:
        if size and size + length > PART_BYTES:
            break
        size += length
        end += 1
    return end


def _part(batch: pa.RecordBatch, begin: int, end: int, first: int) -> _Part:
    columns = {name: batch[name].slice(begin, end - begin).to_pylist() for name in batch.schema.names}
    types = columns.get("content_type") or [None] * (end - begin)
    return _Part(first, columns["stream"], columns["value"], types, False)
