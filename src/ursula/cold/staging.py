"""Staged objects: rows of a bulk write as an Arrow stream, written once and then ingested.

Columns: `stream` (text), `value` (bytes or text), and optionally `content_type` (text, null if unknown).
`keys.py` describes their keys, which contain the beginning of the SHA-256 of the object.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from .objects import keys

STAGED_BYTES_MAX = 256 * 1024 * 1024

_SCHEMA = pa.schema(
    [("stream", pa.large_string()), ("value", pa.large_binary()), ("content_type", pa.large_string())]
)


class StagedInvalid(ValueError):
    """The object is damaged, or not an Arrow stream with these columns; the message says what is wrong."""


def staged_at(key: str, bucket: str) -> int | None:
    """When an object of a bucket got its key, in microseconds since 1970; None if it is not such a key."""
    found = keys.parse_staged(key)
    return found.made_at if found is not None and found.bucket == quote(bucket, safe="") else None


def check_digest(key: str, path: Path) -> None:
    """StagedInvalid if the bytes of an object do not have the digest that its key names. Blocking."""
    found = keys.parse_staged(key)
    if found is None or found.digest is None:
        return
    with path.open("rb") as file:
        if not hashlib.file_digest(file, "sha256").hexdigest().startswith(found.digest):
            raise StagedInvalid("its digest does not match the one in its name")


def open_staged(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of an object; StagedInvalid if something is wrong with it."""
    with pa.OSFile(str(path)) as file:
        try:
            with pa.ipc.open_stream(file) as stream:
                schema = _cast_schema(stream.schema)
                for batch in stream:
                    yield _checked(batch.select(schema.names), schema)
        except (pa.ArrowException, OSError) as error:
            raise StagedInvalid(f"it is not a complete Arrow stream: {error}") from None


def check_staged(path: Path) -> int:
    """How many rows an object has; StagedInvalid if something is wrong with it."""
    return sum(batch.num_rows for batch in open_staged(path))


def _cast_schema(given: pa.Schema) -> pa.Schema:
    """The schema to which the columns are cast."""
    unknown = set(given.names) - set(_SCHEMA.names)
    if unknown or len(set(given.names)) < len(given.names):
        raise StagedInvalid(f"its columns are {', '.join(given.names)}, not stream, value and content_type")
    for name in ("stream", "value"):
        if name not in given.names:
            raise StagedInvalid(f"it has no column {name}")
    for field in given:
        if not _is_fit(field):
            raise StagedInvalid(f"its column {field.name} has the wrong type, {field.type}")
    return pa.schema([field for field in _SCHEMA if field.name in given.names])


def _is_fit(field: pa.Field) -> bool:
    kind = field.type
    text, data = (pa.string(), pa.large_string()), (pa.binary(), pa.large_binary())
    return kind in text or (field.name == "value" and kind in data)


def _checked(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    batch.validate(full=True)
    for name in ("stream", "value"):
        if batch[name].null_count:
            raise StagedInvalid(f"its column {name} has nulls")
    return batch.cast(schema)
