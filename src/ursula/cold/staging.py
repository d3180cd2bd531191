"""Staged objects: rows of a bulk write as an Arrow stream, written once, waiting to be ingested.

Columns: `stream` (text), `value` (bytes or text), and perhaps `content_type` (text, where null means: not
said). They lie at `staging/{bucket}/{ulid}.arrow`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from .ulid import is_ulid, milliseconds_of, new_ulid

STAGED_BYTES_MAX = 256 * 1024 * 1024

_SCHEMA = pa.schema(
    [("stream", pa.large_string()), ("value", pa.large_binary()), ("content_type", pa.large_string())]
)
_KEY = re.compile(r"staging/(?P<bucket>[^/]+)/(?P<ulid>[0-9A-Z]{26})\.arrow")


class StagedInvalid(ValueError):
    """It is no Arrow stream with these columns; the text says what is wrong."""


def new_key(bucket: str) -> str:
    """A name that no other staged object has."""
    return f"staging/{quote(bucket, safe='')}/{new_ulid()}.arrow"


def staged_at(key: str, bucket: str) -> int | None:
    """When an object of a bucket got its name, in microseconds since 1970; None if it is no such name."""
    found = _KEY.fullmatch(key)
    if found is None or found["bucket"] != quote(bucket, safe="") or not is_ulid(found["ulid"]):
        return None
    return milliseconds_of(found["ulid"]) * 1000


def open_staged(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of an object, with the columns above or without the last; StagedInvalid at what is wrong."""
    with pa.OSFile(str(path)) as file:
        try:
            with pa.ipc.open_stream(file) as stream:
                schema = _cast_schema(stream.schema)
                for batch in stream:
                    yield _checked(batch.select(schema.names), schema)
        except (pa.ArrowException, OSError) as error:
            raise StagedInvalid(f"it is not a whole Arrow stream: {error}") from None


def check_staged(path: Path) -> int:
    """How many rows there are; StagedInvalid if something is wrong."""
    return sum(batch.num_rows for batch in open_staged(path))


def _cast_schema(given: pa.Schema) -> pa.Schema:
    """The schema that its columns are read with."""
    unknown = set(given.names) - set(_SCHEMA.names)
    if unknown or len(set(given.names)) < len(given.names):
        raise StagedInvalid(f"its columns are {', '.join(given.names)}: stream, value and content_type count")
    for name in ("stream", "value"):
        if name not in given.names:
            raise StagedInvalid(f"it has no column {name}")
    for field in given:
        if not _is_fit(field):
            raise StagedInvalid(f"its column {field.name} is of type {field.type}")
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
