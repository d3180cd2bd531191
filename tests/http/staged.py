"""Bulk writes on the wire: rows are staged, then ingested."""

from collections.abc import Sequence
from typing import Any

import httpx
import pyarrow as pa

Row = tuple[str, bytes] | tuple[str, bytes, str | None]


def arrow(rows: Sequence[Row], batch_rows: int = 1000) -> bytes:
    """Rows as an Arrow stream."""
    columns: dict[str, pa.Array] = {
        "stream": pa.array([row[0] for row in rows], pa.string()),
        "value": pa.array([row[1] for row in rows], pa.binary()),
    }
    if any(len(row) > 2 for row in rows):
        columns["content_type"] = pa.array([row[2] if len(row) > 2 else None for row in rows], pa.string())
    return arrow_table(pa.table(columns), batch_rows)


def arrow_table(table: pa.Table, batch_rows: int = 1000) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, max_chunksize=batch_rows)
    return bytes(sink.getvalue())


def stage(api: httpx.Client, bucket: str, rows: Sequence[Row], batch_rows: int = 1000) -> str:
    """Stage rows; returns the object."""
    answer = api.post("/cluster/staging", params={"bucket": bucket}, content=arrow(rows, batch_rows))
    assert answer.status_code == 201, answer.text
    assert answer.json()["rows"] == len(rows)
    found: str = answer.json()["object"]
    return found


def ingest(
    api: httpx.Client, bucket: str, version: int, objects: Sequence[str], app: str = "job", **more: Any
) -> httpx.Response:
    """Ask for a bulk write until it is at an end."""
    body = {"bucket": bucket, "app": app, "version": version, "objects": list(objects), **more}
    while True:
        answer = api.post("/cluster/ingest", json=body)
        if answer.status_code != 202:
            return answer
