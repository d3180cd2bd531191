"""Streams folded into states: for an executor, with little of any stream in memory.

The rows of a task are sorted by stream and, in it, by offset, each stream after its last state if it has one.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa

from .server import ServerApi, ServerRefused

JSON = "application/json"
CHUNK_MESSAGES = 1000
CHUNK_BYTES = 1 << 20
STATES_AT_ONCE = 256

Fold = Callable[[Any, list[Any]], Any]
"""From a state (None at first) and some messages to the next state. Messages of JSON streams are values."""

STATES = pa.schema(
    [
        ("stream", pa.string()),
        ("incarnation", pa.string()),
        ("offset", pa.int64()),
        ("position", pa.int64()),
        ("content_type", pa.string()),
        ("state", pa.binary()),
        ("changed", pa.bool_()),
        ("published", pa.string()),
    ]
)
"""A state: of which stream, up to which offset and position, and whether this job changed it."""

_ENDED = ("delete", "expire")


class Publishing(NamedTuple):
    """States become snapshots of their streams on this server."""

    endpoint: str
    bucket: str
    trim: bool
    retry_seconds: float


class FoldFailed(Exception):
    """The fold raised; the text says at which stream."""


def fold_streams(
    fold: Fold, publishing: Publishing | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The states of the streams whose rows these are; null where the beginning of a stream is not there."""
    some: list[dict[str, Any]] = []
    for (stream, incarnation), rows in groupby(_rows(batches), key=_name):
        found = _Folding(fold, stream, incarnation)
        for row in rows:
            found.add(row)
        state = found.result()
        if state is None:
            continue
        if publishing is not None and state["changed"]:
            state["published"] = _publish(publishing, state)
        some.append(state)
        if len(some) == STATES_AT_ONCE:
            yield pa.RecordBatch.from_pylist(some, schema=STATES)
            some = []
    if some:
        yield pa.RecordBatch.from_pylist(some, schema=STATES)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _name(row: dict[str, Any]) -> tuple[str, str]:
    return row["stream"], row["incarnation"]


class _Folding:
    """The fold of one stream. `step` 0 of a row is the state of before, 1 a message or an event."""

    def __init__(self, fold: Fold, stream: str, incarnation: str) -> None:
        self._fold = fold
        self._stream = stream
        self._incarnation = incarnation
        self._state: Any = None
        self._has_state = False
        self._is_partial = False  # a fork, or one that was trimmed: what came first is not there
        self._is_gone = False
        self._has_changed = False
        self._offset = 0
        self._position = 0
        self._messages: list[Any] = []
        self._size = 0

    def add(self, row: dict[str, Any]) -> None:
        """The next row."""
        if row["step"] == 0:
            self._offset, self._position = row["offset"], row["position"]
            self._is_partial = row["value"] is None
            if not self._is_partial:
                self._state, self._has_state = _decoded(row["content_type"], bytes(row["value"])), True
        elif row["kind"] == "append":
            self._add_message(row)
        elif row["kind"] in _ENDED:
            self._is_gone = True
        elif row["kind"] == "undelete":
            self._is_gone = False

    def result(self) -> dict[str, Any] | None:
        """The row of the state; None if the stream has ended, or never got a message."""
        if self._messages:
            self._step()
        if self._is_gone or not (self._has_state or self._is_partial):
            return None
        content_type, data = (None, None) if self._is_partial else _encoded(self._stream, self._state)
        return {
            "stream": self._stream,
            "incarnation": self._incarnation,
            "offset": self._offset,
            "position": self._position,
            "content_type": content_type,
            "state": data,
            "changed": self._has_changed and not self._is_partial,
            "published": None,
        }

    def _add_message(self, row: dict[str, Any]) -> None:
        self._is_partial = self._is_partial or row["offset"] != self._offset
        self._offset, self._position = row["next_offset"], row["position"]
        if self._is_partial:
            self._messages = []
            return
        value = bytes(row["value"])
        is_json = (row["content_type"] or "").partition(";")[0].strip().lower() == JSON
        self._messages.append(json.loads(value) if is_json else value)
        self._size += len(value)
        self._has_changed = True
        if len(self._messages) >= CHUNK_MESSAGES or self._size >= CHUNK_BYTES:
            self._step()

    def _step(self) -> None:
        try:
            self._state = self._fold(self._state, self._messages)
        except Exception as error:
            raise FoldFailed(f"the fold failed at the stream {self._stream!r}: {error!r}") from error
        self._messages, self._size, self._has_state = [], 0, True


def _encoded(stream: str, state: Any) -> tuple[str, bytes]:
    if isinstance(state, bytes | bytearray):
        return "application/octet-stream", bytes(state)
    try:
        return JSON, json.dumps(state, separators=(",", ":"), ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise FoldFailed(f"the state of {stream!r} is neither bytes nor JSON: {error}") from error


def _decoded(content_type: str, data: bytes) -> Any:
    return json.loads(data) if content_type == JSON else data


def _publish(publishing: Publishing, state: dict[str, Any]) -> str:
    """Make a state the snapshot of its stream; the word says what came of it."""
    server = ServerApi(publishing.endpoint, publishing.retry_seconds)
    try:
        server.publish_snapshot(
            f"/{quote(publishing.bucket, safe='')}/{quote(state['stream'], safe='')}",
            state["offset"],
            state["state"],
            state["content_type"],
            trim=publishing.trim,
        )
    except ServerRefused as refused:
        if refused.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        return refused.code  # a newer snapshot, or the stream is gone: nothing is wrong with the others
    return "published"
