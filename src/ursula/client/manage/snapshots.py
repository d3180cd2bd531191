"""Snapshots: an application's own summary of a stream up to an offset, which replaces the data before it."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..connection.retry import perform
from ..connection.steps import Answer, Request, Steps, open_answer, receive, work
from ..errors import NotFound, OutcomeUnknown
from ..results import offset_or_none
from ..target import StreamTarget, get, head


@dataclass(frozen=True, slots=True)
class Published:
    """A snapshot that is now the visible one."""

    offset: str
    digest: str
    next_offset: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot and its content. `data` is empty if the snapshot was saved to a file."""

    offset: str
    content_type: str
    digest: str | None
    next_offset: str
    data: bytes

    @classmethod
    def of(cls, answer: Answer, offset: str) -> "Snapshot":
        """Read the response to a GET."""
        headers = answer.headers
        return cls(
            offset=offset_or_none(answer, "stream-snapshot-offset") or offset,
            content_type=headers.get("content-type", ""),
            digest=headers.get("stream-snapshot-digest"),
            next_offset=headers.get("stream-next-offset", ""),
            data=answer.body,
        )


def publish_snapshot(
    target: StreamTarget,
    offset: str,
    data: bytes | Path,
    *,
    content_type: str = "application/octet-stream",
    trim: bool = True,
) -> Steps[Published]:
    """Publish a snapshot at an offset, from memory or from a file, which is sent while it is read.

    Data before the offset can then no longer be read, unless `trim` is false.
    """
    path = target.address.part("snapshot", offset)
    params = {} if trim else {"trim": "false"}
    # Publishing the same bytes at the same offset again is idempotent.
    request = Request("PUT", path, params, {"content-type": content_type}, data, repeatable=True)
    answer = yield from perform(request, target.patience)
    headers = answer.headers
    return Published(
        offset=headers.get("stream-snapshot-offset", offset),
        digest=headers.get("stream-snapshot-digest", ""),
        next_offset=headers.get("stream-next-offset", ""),
    )


def read_snapshot(target: StreamTarget, offset: str) -> Steps[Snapshot]:
    """The snapshot at an offset."""
    answer = yield from get(target, target.address.part("snapshot", offset))
    snapshot = Snapshot.of(answer, offset)
    _verify(snapshot, hashlib.sha256(snapshot.data).hexdigest())
    return snapshot


def latest_snapshot(target: StreamTarget) -> Steps[Snapshot | None]:
    """The visible snapshot; None if the stream has none."""
    return (yield from _latest(target, lambda offset: read_snapshot(target, offset)))


def save_snapshot(target: StreamTarget, path: Path, offset: str | None = None) -> Steps[Snapshot | None]:
    """Save a snapshot to a file while it arrives: the one at an offset, or the visible one, if any."""
    if offset is not None:
        return (yield from _save(target, path, offset))
    return (yield from _latest(target, lambda visible: _save(target, path, visible)))


def delete_snapshot(target: StreamTarget, offset: str) -> Steps[None]:
    """Delete a snapshot. The server refuses to delete the visible one."""
    yield from perform(Request("DELETE", target.address.part("snapshot", offset)), target.patience)


def trim(target: StreamTarget, offset: str) -> Steps[str]:
    """Drop the data before an offset that a snapshot covers. Returns the new earliest offset."""
    request = Request("PUT", target.address.part("retention", offset), repeatable=True)
    answer = yield from perform(request, target.patience)
    return str(answer.headers.get("stream-earliest-offset", offset))


def _latest(target: StreamTarget, fetch: Callable[[str], Steps[Snapshot]]) -> Steps[Snapshot | None]:
    missed = None
    while True:
        offset = (yield from head(target)).snapshot_offset
        if offset is None:
            return None
        try:
            return (yield from fetch(offset))
        except NotFound:
            # A newer one may have replaced it; if not, it is really missing.
            if offset == missed:
                raise
            missed = offset


def _save(target: StreamTarget, path: Path, offset: str) -> Steps[Snapshot]:
    request = Request("GET", target.address.part("snapshot", offset), repeatable=True)
    answer = yield from open_answer(request)
    partial = path.with_name(path.name + ".partial")
    digest = hashlib.sha256()
    file = yield from work(lambda: partial.open("wb"))
    try:
        while piece := (yield from receive()):
            digest.update(piece)
            yield from work(lambda piece=piece: file.write(piece))  # type: ignore[misc]
        file.close()
        snapshot = Snapshot.of(answer, offset)
        _verify(snapshot, digest.hexdigest())
        yield from work(lambda: partial.replace(path))
    finally:
        file.close()
        partial.unlink(missing_ok=True)
    return snapshot


def _verify(snapshot: Snapshot, digest: str) -> None:
    if snapshot.digest is not None and snapshot.digest != f"sha256:{digest}":
        raise OutcomeUnknown(
            "digest_mismatch", f"the snapshot at {snapshot.offset} arrived damaged: read it again"
        )
