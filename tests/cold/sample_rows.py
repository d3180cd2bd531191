"""Rows as a journal would hand them over: in log order, many streams mixed, events among the messages."""

import json
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from ursula.cold.segment.schema import SEGMENT_SCHEMA

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

Row = dict[str, Any]


def row(stream: str, kind: str, offset: int, position: int, payload: bytes | None = None, **more: Any) -> Row:
    """A row of bucket b, unless said otherwise."""
    fields: Row = dict.fromkeys(SEGMENT_SCHEMA.names)
    fields |= {
        "group": 0,
        "bucket": "b",
        "stream": stream,
        "incarnation": "1-1-0",
        "kind": kind,
        "offset": offset,
        "next_offset": offset + len(payload or b""),
        "position": position,
        "index": 0,
        "appended_at": _BEGIN + timedelta(milliseconds=position),
        "content_type": "application/json",
        "payload": payload,
        "event": None if kind == "append" else "{}",
    }
    return fields | more


def table_of(rows: Iterable[Row]) -> pa.Table:
    """Rows as a table."""
    return pa.Table.from_pylist(list(rows), schema=SEGMENT_SCHEMA)


def one_stream(payloads: Iterable[bytes], stream: str = "s") -> pa.Table:
    """A stream, one message an append."""
    rows, offset = [], 0
    for record, payload in enumerate(payloads):
        rows.append(row(stream, "append", offset, record, payload, record=record))
        offset += len(payload)
    return table_of(rows)


def mixed_rows(seed: int, row_count: int = 2000, stream_count: int = 20) -> list[Row]:
    """Streams of three buckets with creations, appends and events; some begin in the middle."""
    draw = random.Random(seed)
    rows: list[Row] = []
    tails: dict[tuple[str, str, str], int] = {}
    records: dict[tuple[str, str, str], int] = {}
    position = 0
    while len(rows) < row_count:
        position += 1
        number = draw.randrange(stream_count) if draw.random() < 0.7 else 0
        name = (f"b{number % 3}", f"s/é{number}", f"1-{draw.choice((1, 1, 1, 10))}-0")
        more: Row = {"bucket": name[0], "incarnation": name[2], "index": draw.randrange(3)}
        if name not in tails:
            tails[name], records[name] = draw.choice((0, 0, 5000)), draw.choice((0, 70))
            rows.append(row(name[1], "create", tails[name], position, **more))
        for _ in range(draw.choice((0, 1, 1, 1, 5))):
            payload = draw.randbytes(draw.choice((1, 30, 200, 3000)))
            rows.append(row(name[1], "append", tails[name], position, payload, record=records[name], **more))
            tails[name] += len(payload)
            records[name] += 1
        for _ in range(draw.choice((0, 0, 0, 0, 1, 30))):
            position += 1
            offset = draw.choice((tails[name], tails[name], draw.randrange(tails[name] + 1)))
            rows.append(row(name[1], "snapshot", offset, position, **more))
    return rows


def page_view(draw: random.Random, number: int) -> bytes:
    """An event of about 200 bytes, as web shops write them."""
    fields = {
        "type": "page_view",
        "user_id": draw.randrange(100_000),
        "session": f"{draw.randrange(5000):016x}",
        "timestamp": (_BEGIN + timedelta(milliseconds=number)).isoformat(),
        "path": draw.choice(["/", "/cart", f"/product/{draw.randrange(5000)}"]),
        "referrer": draw.choice(["https://example.com/", "https://search.example.com/?q=shoes", None]),
        "duration_ms": draw.randrange(5000),
    }
    return json.dumps(fields).encode()


def payloads(count: int, make: Callable[[random.Random, int], bytes]) -> list[bytes]:
    """Messages, the same each time."""
    draw = random.Random(7)
    return [make(draw, number) for number in range(count)]
