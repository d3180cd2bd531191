"""Snapshots: published from a body that goes to a file as it arrives, and read back; and trimming."""

import re

from ...cold.blobs import BlobFile, Blobs, made_at
from ...cold.store import StoreFailed, StoreUnavailable
from ...engine.failures import OutcomeUnknown
from ...model.commands import PublishSnapshot, Trim
from ...model.limits import SNAPSHOT_BYTES_MAX
from ...model.media_type import DEFAULT
from ...model.outcomes import Description, Refused, Snapshot, SnapshotPublished, Trimmed
from ..body.read import BodyLimit
from ..body.to_file import receive
from ..errors import Problem
from ..exchange import Exchange
from ..syntax.query import parse_query
from ..syntax.tokens import format_offset, parse_offset, tag_matches
from ..wire.headers import HeaderList
from .append import AnyAnswer, refusal
from .read import Handler, settle

_LIMIT = BodyLimit(SNAPSHOT_BYTES_MAX)
_RANGE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)


def publish_snapshot(exchange: Exchange) -> None:
    """PUT on a snapshot."""
    offset = _offset(exchange)
    trim = parse_query(exchange.request.query_string).get("trim", "true")
    if trim not in ("true", "false"):
        raise Problem("invalid_parameter", "trim is true or false")
    found = _describe(exchange, publish_snapshot)
    if found is not None:
        exchange.app.spawn(exchange, _publish(exchange, found.incarnation, offset, trim == "true"))


async def _publish(exchange: Exchange, incarnation: str, offset: int, trim: bool) -> None:
    app, target = exchange.app, exchange.target
    blobs = app.node.blobs
    try:
        writer = await receive(exchange, blobs, _LIMIT)
        key = blobs.new_key(target.bucket, incarnation)
        await blobs.keep(writer, key)
    except StoreFailed as error:
        raise Problem("store_unavailable", f"the snapshot could not be stored: {error}") from error

    def on_outcome(outcome: AnyAnswer) -> None:
        is_named = isinstance(outcome, SnapshotPublished) and not outcome.duplicate
        if not is_named and not isinstance(outcome, OutcomeUnknown):
            app.node.forget_blob(key)
        if isinstance(outcome, SnapshotPublished):
            headers = exchange.state_headers(outcome.incarnation, outcome.tail, outcome.tail, outcome.closed)
            headers.append(("stream-snapshot-offset", format_offset(outcome.offset)))
            headers.append(("stream-snapshot-digest", outcome.digest))
            exchange.empty(204, headers)
        elif isinstance(outcome, Refused) and _was_replaced(exchange, outcome):
            exchange.refuse(Problem("stream_not_found", "the stream was deleted in the meantime"))
        else:
            exchange.refused(refusal(outcome))

    content_type = exchange.headers.get("content-type") or DEFAULT
    command = PublishSnapshot(
        target.bucket,
        target.stream,
        offset,
        key,
        content_type,
        writer.size,
        writer.digest,
        trim,
        incarnation,
        made_at=made_at(key),
    )
    app.node.group_of(target.bucket).propose(command, on_outcome, len(key))


def _was_replaced(exchange: Exchange, outcome: Refused) -> bool:
    """Whether the name went to another stream while the body came; nobody asked for this one by name."""
    return outcome.code == "incarnation_mismatch" and "stream-incarnation" not in exchange.headers


def get_snapshot(exchange: Exchange) -> None:
    """GET or HEAD on a snapshot; without an offset, where the newest is."""
    wanted = None if exchange.target.argument is None else _offset(exchange)
    found = _describe(exchange, get_snapshot)
    if found is None:
        return
    snapshot = found.snapshot
    named = [("stream-incarnation", exchange.incarnation(found.incarnation))]
    if snapshot is None:
        raise Problem("snapshot_not_found", "the stream has no snapshot", named)
    if wanted is None:
        bucket, stream, *_ = exchange.target
        location = exchange.app.location(
            exchange, f"/{bucket}/{stream}/snapshot/{format_offset(snapshot.offset)}"
        )
        exchange.empty(307, [*_headers(exchange, found, snapshot), ("location", location)])
    elif wanted != snapshot.offset:
        raise Problem("snapshot_not_found", f"the snapshot is at {format_offset(snapshot.offset)}", named)
    else:
        exchange.app.spawn(exchange, _send(exchange, found, snapshot))


async def _send(exchange: Exchange, found: Description, snapshot: Snapshot) -> None:
    tag = f'"{snapshot.digest}"'
    headers = [
        *_headers(exchange, found, snapshot),
        ("content-type", snapshot.content_type),
        ("stream-snapshot-digest", snapshot.digest),
        ("etag", tag),
        ("accept-ranges", "bytes"),
    ]
    known = exchange.headers.get("if-none-match")
    is_head = exchange.request.method == "HEAD"
    is_known = known is not None and tag_matches(known, tag)
    blobs = exchange.app.node.blobs
    blob = None if is_known or is_head else await open_snapshot(blobs, snapshot)
    if blob is None:
        await _measure(blobs, snapshot)
    if is_known:
        exchange.empty(304, headers)
        return
    stretch = None
    if not is_head and exchange.headers.get("if-range", tag) == tag:  # who resumes, resumes just that
        stretch = _range(exchange.headers.get("range"), snapshot.size)
    status, (start, end) = 200, stretch or (0, snapshot.size)
    if stretch is not None:
        status = 206
        headers.append(("content-range", f"bytes {start}-{end - 1}/{snapshot.size}"))
    if blob is None or start == end:
        exchange.empty(status, [*headers, ("content-length", str(end - start))])
    else:
        exchange.file(status, headers, str(blob.path), start, end)


async def open_snapshot(blobs: Blobs, snapshot: Snapshot) -> BlobFile:
    """The bytes of a snapshot as a file, if they are what was stored."""
    try:
        blob = await blobs.file(snapshot.blob)
        _check(blob.size, snapshot)
        await blobs.check(snapshot.blob, blob, snapshot.digest)
    except StoreFailed as error:
        raise _lost(error) from error
    return blob


async def read_snapshot(blobs: Blobs, snapshot: Snapshot) -> bytes:
    """The bytes of a snapshot, if they are what was stored."""
    try:
        return await blobs.read(snapshot.blob, snapshot.digest)
    except StoreFailed as error:
        raise _lost(error) from error


async def _measure(blobs: Blobs, snapshot: Snapshot) -> None:
    """Make sure that a snapshot is there without reading it."""
    try:
        size = await blobs.size(snapshot.blob)
    except StoreFailed as error:
        raise _lost(error) from error
    _check(size, snapshot)


def _lost(error: StoreFailed) -> Problem:
    if isinstance(error, StoreUnavailable):
        return Problem("store_unavailable", str(error))
    return Problem("object_damaged", f"the bytes of the snapshot are lost: {error}")


def _check(size: int, snapshot: Snapshot) -> None:
    """Refuse to send what is not what was stored."""
    if size != snapshot.size:
        raise Problem(
            "object_damaged",
            f"the snapshot blobs/{snapshot.blob} has {size} bytes instead of {snapshot.size}",
        )


def delete_snapshot(exchange: Exchange) -> None:
    """DELETE on a snapshot: never possible."""
    wanted = _offset(exchange)
    found = _describe(exchange, delete_snapshot)
    if found is None:
        return
    headers = [("stream-incarnation", exchange.incarnation(found.incarnation))]
    if found.snapshot is None or found.snapshot.offset != wanted:
        raise Problem("snapshot_not_found", "there is no snapshot at this offset", headers)
    raise Problem("snapshot_conflict", "the visible snapshot stays: publish a newer one instead", headers)


def put_retention(exchange: Exchange) -> None:
    """PUT on retention: drop what lies before the offset."""

    def on_outcome(outcome: AnyAnswer) -> None:
        if isinstance(outcome, Trimmed):
            headers = exchange.state_headers(outcome.incarnation, outcome.tail, outcome.tail, outcome.closed)
            headers.append(("stream-earliest-offset", format_offset(outcome.earliest)))
            exchange.empty(204, headers)
        else:
            exchange.refused(refusal(outcome))

    target = exchange.target
    command = Trim(target.bucket, target.stream, _offset(exchange), exchange.wanted_incarnation())
    exchange.app.node.group_of(target.bucket).propose(command, on_outcome)


def _offset(exchange: Exchange) -> int:
    text = exchange.target.argument
    if text is None:
        raise Problem(
            "method_not_allowed", "name the offset of the snapshot", [("allow", "GET, HEAD, OPTIONS")]
        )
    offset = parse_offset(text)
    if offset < 0:
        raise Problem("invalid_offset", "the offset here is the digits that the server gave")
    return offset


def _describe(exchange: Exchange, again: Handler) -> Description | None:
    """What the stream is; None if the request was answered, or will be when that is certain."""
    target = exchange.target
    group = exchange.app.node.group_of(target.bucket)
    if not settle(exchange, group, again):
        return None
    found = group.describe(target.bucket, target.stream, exchange.wanted_incarnation())
    if isinstance(found, Refused):
        exchange.refused(found)
        return None
    return found


def _headers(exchange: Exchange, found: Description, snapshot: Snapshot) -> HeaderList:
    headers = [
        ("stream-next-offset", format_offset(snapshot.offset)),
        ("stream-snapshot-offset", format_offset(snapshot.offset)),
        ("stream-incarnation", exchange.incarnation(found.incarnation)),
        ("cache-control", "no-store"),
    ]
    if snapshot.offset == found.tail:
        headers.append(("stream-up-to-date", "true"))
        if found.closed:
            headers.append(("stream-closed", "true"))
    return headers


def _range(header: str | None, size: int) -> tuple[int, int] | None:
    """The stretch that is asked for; None, which is all of it, for what is not one range of bytes."""
    match = _RANGE.fullmatch(header.strip()) if header is not None else None
    if match is None or match.group() == "bytes=-" or max(map(len, match.groups())) > 30:
        return None
    first, last = match.groups()
    if last and first and int(last) < int(first):
        return None
    if first:
        start, end = int(first), min(int(last) + 1, size) if last else size
    else:
        start, end = max(0, size - int(last)), size
    if start >= size:
        raise Problem(
            "range_not_satisfiable", f"the snapshot has {size} bytes", [("content-range", f"bytes */{size}")]
        )
    return start, end
