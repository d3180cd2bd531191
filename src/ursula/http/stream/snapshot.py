"""Snapshots: publish, find, read; and trimming a stream up to one."""

import re

from ...cold.blobs import BlobFile, Blobs, made_at
from ...cold.objects.store import StoreFailed
from ...engine.failures import OutcomeUnknown
from ...model.commands import PublishSnapshot, Trim
from ...model.limits import SNAPSHOT_BYTES_MAX
from ...model.outcomes import Description, Refused, Snapshot, SnapshotPublished, StreamTrimmed
from ...model.text.media_type import DEFAULT
from ..body.read import BodyLimit
from ..body.to_file import receive
from ..errors import Problem
from ..exchange import Exchange
from ..store_problems import unreadable_snapshot
from ..syntax.query import parse_query
from ..syntax.tokens import format_offset, parse_offset, tag_matches
from ..wire.headers import HeaderList

_LIMIT = BodyLimit(SNAPSHOT_BYTES_MAX)
_RANGE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)


async def publish_snapshot(exchange: Exchange) -> None:
    """PUT on a snapshot."""
    offset, target = _offset(exchange), exchange.target
    trim = parse_query(exchange.request.query_string).get("trim", "true")
    if trim not in ("true", "false"):
        raise Problem("invalid_parameter", "trim must be true or false")
    await exchange.wait_until_current()
    found = exchange.expect(Description, exchange.described())
    node = exchange.services.node
    try:
        writer = await receive(exchange, _LIMIT)
        key = node.blobs.new_key(target.bucket, found.incarnation)
        await node.blobs.keep(writer, key)
    except StoreFailed as error:
        raise Problem("store_unavailable", f"the snapshot could not be stored: {error}") from error
    command = PublishSnapshot(
        bucket=target.bucket,
        stream=target.stream,
        offset=offset,
        blob=key,
        content_type=exchange.headers.get("content-type") or DEFAULT,
        size=writer.size,
        digest=writer.digest,
        trim=trim == "true",
        incarnation=found.incarnation,
        made_at=made_at(key),
    )
    outcome = await exchange.group.propose_and_wait(command, len(key))
    is_named = isinstance(outcome, SnapshotPublished) and not outcome.duplicate
    if not is_named and not isinstance(outcome, OutcomeUnknown):
        node.forget_blob(key)
    if isinstance(outcome, Refused) and _was_replaced(exchange, outcome):
        raise Problem("stream_not_found", "the stream was deleted in the meantime")
    published = exchange.expect(SnapshotPublished, outcome)
    headers = exchange.state_headers(published.incarnation, published.tail, published.tail, published.closed)
    headers.append(("stream-snapshot-offset", format_offset(published.offset)))
    headers.append(("stream-snapshot-digest", published.digest))
    exchange.reply_empty(204, headers)


def _was_replaced(exchange: Exchange, outcome: Refused) -> bool:
    """Whether the name passed to another incarnation while the body arrived, and the request names none."""
    return outcome.code == "incarnation_mismatch" and "stream-incarnation" not in exchange.headers


async def find_snapshot(exchange: Exchange) -> None:
    """GET or HEAD on the snapshot without an offset: redirect to the visible one."""
    found = await exchange.describe()
    snapshot = _snapshot_of(exchange, found)
    bucket, stream, *_ = exchange.target
    location = exchange.location(f"/{bucket}/{stream}/snapshot/{format_offset(snapshot.offset)}")
    exchange.reply_empty(307, [*_headers(exchange, found, snapshot), ("location", location)])


async def get_snapshot(exchange: Exchange) -> None:
    """GET or HEAD on a snapshot."""
    offset = _offset(exchange)
    found = await exchange.describe()
    snapshot = _snapshot_of(exchange, found)
    if offset != snapshot.offset:
        message = f"the snapshot is at {format_offset(snapshot.offset)}"
        raise Problem("snapshot_not_found", message, _named(exchange, found))
    await _send(exchange, found, snapshot)


def _snapshot_of(exchange: Exchange, found: Description) -> Snapshot:
    if found.snapshot is None:
        raise Problem("snapshot_not_found", "the stream has no snapshot", _named(exchange, found))
    return found.snapshot


def _named(exchange: Exchange, found: Description) -> HeaderList:
    return [("stream-incarnation", exchange.incarnation(found.incarnation))]


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
    blobs = exchange.services.node.blobs
    blob = None if is_known or is_head else await open_snapshot(blobs, snapshot)
    if blob is None:
        await _measure(blobs, snapshot)
    if is_known:
        exchange.reply_empty(304, headers)
        return
    part = None
    if not is_head and exchange.headers.get("if-range", tag) == tag:  # never a part of a different snapshot
        part = _parse_range(exchange.headers.get("range"), snapshot.size)
    status, (start, end) = 200, part or (0, snapshot.size)
    if part is not None:
        status = 206
        headers.append(("content-range", f"bytes {start}-{end - 1}/{snapshot.size}"))
    if blob is None or start == end:
        exchange.reply_empty(status, [*headers, ("content-length", str(end - start))])
    else:
        exchange.reply_file(status, headers, str(blob.path), start, end)


async def open_snapshot(blobs: Blobs, snapshot: Snapshot) -> BlobFile:
    """The bytes of a snapshot as a file, checked against its digest."""
    try:
        blob = await blobs.file(snapshot.blob)
        _check(blob.size, snapshot)
        await blobs.check(snapshot.blob, blob, snapshot.digest)
    except StoreFailed as error:
        raise unreadable_snapshot(error) from error
    return blob


async def read_snapshot(blobs: Blobs, snapshot: Snapshot) -> bytes:
    """The bytes of a snapshot, checked against its digest."""
    try:
        return await blobs.read(snapshot.blob, snapshot.digest)
    except StoreFailed as error:
        raise unreadable_snapshot(error) from error


async def _measure(blobs: Blobs, snapshot: Snapshot) -> None:
    """Check that a snapshot exists, without reading it."""
    try:
        size = await blobs.size(snapshot.blob)
    except StoreFailed as error:
        raise unreadable_snapshot(error) from error
    _check(size, snapshot)


def _check(size: int, snapshot: Snapshot) -> None:
    """Refuse to send a snapshot that has changed since it was stored."""
    if size != snapshot.size:
        raise Problem(
            "object_damaged",
            f"the snapshot blobs/{snapshot.blob} has {size} bytes instead of {snapshot.size}",
        )


async def delete_snapshot(exchange: Exchange) -> None:
    """DELETE on a snapshot, which is never possible."""
    offset = _offset(exchange)
    await exchange.wait_until_current()
    found = exchange.expect(Description, exchange.described())
    headers = _named(exchange, found)
    if found.snapshot is None or found.snapshot.offset != offset:
        raise Problem("snapshot_not_found", "there is no snapshot at this offset", headers)
    raise Problem(
        "snapshot_conflict", "the visible snapshot cannot be deleted: publish a newer one instead", headers
    )


async def put_retention(exchange: Exchange) -> None:
    """PUT on retention: drop the messages before the offset."""
    target = exchange.target
    command = Trim(target.bucket, target.stream, _offset(exchange), exchange.requested_incarnation())
    await exchange.wait_until_current()  # what the offset means is looked up in this incarnation
    trimmed = exchange.expect(StreamTrimmed, await exchange.group.propose_and_wait(command))
    headers = exchange.state_headers(trimmed.incarnation, trimmed.tail, trimmed.tail, trimmed.closed)
    headers.append(("stream-earliest-offset", format_offset(trimmed.earliest)))
    exchange.reply_empty(204, headers)


def _offset(exchange: Exchange) -> int:
    offset = parse_offset(exchange.target.argument or "")
    if offset < 0:
        raise Problem("invalid_offset", "the offset here must be one that the server has sent, in digits")
    return offset


def _headers(exchange: Exchange, found: Description, snapshot: Snapshot) -> HeaderList:
    headers = [
        ("stream-next-offset", format_offset(snapshot.offset)),
        ("stream-snapshot-offset", format_offset(snapshot.offset)),
        ("stream-incarnation", exchange.incarnation(found.incarnation)),
        ("cache-control", "no-store"),
    ]
    if snapshot.offset == found.tail and exchange.doubt is None:
        headers.append(("stream-up-to-date", "true"))
        if found.closed:
            headers.append(("stream-closed", "true"))
    return headers


def _parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The requested bytes; None, which means all of them, if the header is not one range of bytes."""
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
