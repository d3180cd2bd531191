"""Bulk writes: POST /cluster/staging stores rows, POST /cluster/ingest appends those of many objects."""

import asyncio
from typing import Any, Literal

import msgspec

from ...cold.objects.store import ObjectDamaged, ObjectMissing, StoreFailed
from ...cold.staging import STAGED_BYTES_MAX, StagedInvalid, check_staged, staged_at
from ...engine.failures import IngestStopped
from ...model.commands import IngestBegin
from ...model.outcomes import Ingest, Refused, RefusedRow
from ..body.read import BodyLimit
from ..body.to_file import receive
from ..errors import AnyErrorCode, Problem
from ..exchange import Exchange
from ..syntax.names import FLAT_PREFIX, Target, parse_stream_path
from ..syntax.query import parse_query

PATIENCE_SECONDS = 20.0
"""How long a request waits for a bulk write to end before it gets 202 and the client has to ask again."""

APP_CHARACTERS_MAX = 256
OBJECTS_MAX = 100_000

_LIMIT = BodyLimit(STAGED_BYTES_MAX)
_REQUEST_LIMIT = BodyLimit(16 * 1024 * 1024)
_BODY_HELP = (
    'the body must be {"bucket", "app", "version", "objects": [...], and optionally "create_streams", '
    '"content_type", "on_refused": "fail" or "drop"}'
)


class IngestRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A bulk write: its rows, its app and version, and what to do with rows that a stream refuses."""

    bucket: str
    app: str
    version: int
    objects: list[str]
    create_streams: bool = True
    content_type: str | None = None
    on_refused: Literal["fail", "drop"] = "fail"


async def stage(exchange: Exchange) -> None:
    """Store rows of a bulk write. They are not visible yet."""
    bucket = parse_query(exchange.request.query_string).get("bucket")
    if not bucket:
        raise Problem("invalid_parameter", "the parameter bucket is missing: which bucket are the rows for?")
    node = exchange.services.node
    exchange.target = Target(bucket, "", False)
    await exchange.wait_until_current()
    if isinstance(exchange.group.describe_bucket(bucket), Refused):
        raise Problem("bucket_not_found", f"there is no bucket {bucket!r}")
    try:
        writer = await receive(exchange, _LIMIT)
        try:
            rows = await asyncio.to_thread(check_staged, writer.path)
            key = await node.stage(bucket, writer)
        finally:
            await asyncio.to_thread(writer.discard)
    except StagedInvalid as error:
        raise Problem("invalid_rows", f"the body cannot be used: {error}") from None
    except StoreFailed as error:
        raise Problem("store_unavailable", f"the rows could not be stored: {error}") from error
    exchange.reply_json(201, {"object": key, "rows": rows})


async def ingest(exchange: Exchange) -> None:
    """Append the rows of staged objects, each exactly once no matter how often the request is sent."""
    request = await exchange.read_json(IngestRequest, _BODY_HELP, _REQUEST_LIMIT)
    if not request.app or len(request.app) > APP_CHARACTERS_MAX:
        raise Problem("invalid_parameter", f"app must have 1 to {APP_CHARACTERS_MAX} characters")
    if not 0 <= request.version < 2**63:
        raise Problem("invalid_parameter", "version must be a whole number from 0 to 2^63 - 1")
    if len(request.objects) > OBJECTS_MAX:
        raise Problem("invalid_parameter", f"there may be at most {OBJECTS_MAX} objects")
    exchange.target = Target(request.bucket, "", False)
    command = IngestBegin(
        bucket=request.bucket,
        app=request.app,
        version=request.version,
        objects=tuple(request.objects),
        create_streams=request.create_streams,
        content_type=request.content_type,
        drop_refused=request.on_refused == "drop",
        made_at=_made_at(exchange, request),
    )
    try:
        outcome = await exchange.services.node.ingest(command, PATIENCE_SECONDS)
    except IngestStopped as stopped:
        raise exchange.problem(stopped.failure) from None
    except ObjectMissing as error:
        raise Problem("object_not_found", str(error)) from None
    except ObjectDamaged as error:
        raise Problem("object_damaged", str(error)) from None
    except StoreFailed as error:
        raise Problem("store_unavailable", f"the rows could not be read: {error}") from error
    done = exchange.expect(Ingest, outcome)
    if done.failed:
        row = done.refused[0]
        message = f"row {row.row} of {done.objects[row.object]} was refused: {row.message}"
        raise Problem("ingest_refused", message, None, **_report(done), **_refused_row(done, row))
    is_done = done.ended and done.version == request.version
    exchange.reply_json(200 if is_done else 202, _report(done))


def _made_at(exchange: Exchange, request: IngestRequest) -> int:
    """When the oldest of the objects was staged."""
    times = []
    for key in request.objects:
        at = staged_at(key, request.bucket)
        if at is None:
            message = f"{key!r} is not an object that was staged for the bucket {request.bucket!r}"
            raise Problem("invalid_parameter", message)
        times.append(at)
    return min(times, default=exchange.services.node.now())


def _report(outcome: Ingest) -> dict[str, Any]:
    return {
        "appended": outcome.appended,
        "refused_count": outcome.refused_count,
        "refused": [_refused_row(outcome, row) for row in outcome.refused],
    }


def _refused_row(outcome: Ingest, row: RefusedRow) -> dict[str, Any]:
    return {
        "object": outcome.objects[row.object],
        "row": row.row,
        "stream": row.stream,
        "reason": row.code,
        "detail": row.message,
    }


def check_row(append_bytes: int, bucket: str, stream: str, size: int) -> tuple[AnyErrorCode, str] | None:
    """Why a row cannot be appended to a stream of this name, whether or not the stream exists."""
    try:
        parse_stream_path(f"{FLAT_PREFIX}{bucket}/{stream}")
    except Problem as problem:
        return problem.code, problem.message
    if size > append_bytes:
        return "body_too_large", f"an append may have at most {append_bytes} bytes, this one has {size}"
    return None
