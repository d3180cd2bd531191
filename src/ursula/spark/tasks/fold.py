"""Folds streams into states, for the job `materialize`, with only a chunk of a stream in memory.

The rows of a task are sorted by stream and then by position; the previous state of a stream comes first.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from http import HTTPStatus
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from ..http_client import ServerClient, ServerRefused

JSON = "application/json"
CHUNK_MESSAGES = 1000
CHUNK_BYTES = 1 << 20
STATES_AT_ONCE = 256

T = TypeVar("T")

Fold = Callable[[Any, list[Any]], Any]
"""Takes a state (at first None) and messages, and returns the next state. JSON messages are decoded."""

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
"""A state: its stream, the offset and position it covers, and whether this job has changed it."""

STATE, APPEND, ENDED, UNDELETED = range(4)
"""The kinds of rows to fold: the previous state, a message, the end of the stream, or its undeletion."""


class SnapshotTarget(NamedTuple):
    """The server on which states are published as snapshots of their streams."""

    endpoint: str
    bucket: str
    trim: bool
    retry_seconds: float
    auth: str | None = None


class FoldFailed(Exception):
    """The fold raised an exception; the message names the stream."""


def fold_streams(
    fold: Fold, target: SnapshotTarget | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The states of the streams of these rows; null if the beginning of a stream is missing."""
    some: list[dict[str, Any]] = []
    for state in _states(fold, batches):
        if target is not None and state["changed"]:
            state["published"] = _publish(target, state)
        some.append(state)
        if len(some) == STATES_AT_ONCE:
            yield pa.RecordBatch.from_pylist(some, schema=STATES)
            some = []
    if some:
        yield pa.RecordBatch.from_pylist(some, schema=STATES)


def _states(fold: Fold, batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    current: _StreamFold | None = None
    for batch in batches:
        for run in _runs(batch):
            name = run["stream"][0].as_py(), run["incarnation"][0].as_py()
            if current is None or current.name != name:
                yield from current.result() if current is not None else ()
                current = _StreamFold(fold, name)
            current.add(run)
    yield from current.result() if current is not None else ()


def _runs(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch, divided into runs of neighbours that have the same stream and kind."""
    last = batch.num_rows - 1
    if last < 0:
        return
    columns = [batch[name] for name in ("stream", "incarnation", "step", "is_json")]
    changes = [pc.not_equal(column.slice(1), column.slice(0, last)) for column in columns]
    ends = pc.indices_nonzero(reduce(pc.or_, changes)).to_pylist()
    begin = 0
    for end in (*ends, last):
        yield batch.slice(begin, end + 1 - begin)
        begin = end + 1


class _StreamFold:
    """The fold of one stream."""

    def __init__(self, fold: Fold, name: tuple[str, str]) -> None:
        self.name = name
        self._fold = fold
        self._state: Any = None
        self._has_state = False
        self._is_partial = False  # a fork, or trimmed: the beginning is missing
        self._is_gone = False
        self._has_changed = False
        self._is_json = False
        self._offset = 0
        self._position = 0
        self._messages: list[bytes] = []
        self._size = 0

    def add(self, run: pa.RecordBatch) -> None:
        """Add the next rows, all of one kind."""
        step = run["step"][0].as_py()
        if step == STATE:
            self._begin(run)
        elif step == APPEND:
            self._add_messages(run)
        else:
            self._is_gone = step == ENDED

    def result(self) -> Iterator[dict[str, Any]]:
        """The row of the state; none if the stream has ended, or has no message."""
        if self._messages:
            self._step()
        if self._is_gone or not (self._has_state or self._is_partial):
            return
        stream, incarnation = self.name
        content_type, data = (None, None) if self._is_partial else _encoded(stream, self._state)
        yield {
            "stream": stream,
            "incarnation": incarnation,
            "offset": self._offset,
            "position": self._position,
            "content_type": content_type,
            "state": data,
            "changed": self._has_changed and not self._is_partial,
            "published": None,
        }

    def _begin(self, run: pa.RecordBatch) -> None:
        self._offset, self._position = run["offset"][0].as_py(), run["position"][0].as_py()
        data = run["value"][0].as_py()
        if data is None:
            self._is_partial = True
        else:
            self._state = _with_long_integers(json.loads, data) if run["is_json"][0].as_py() else data
            self._has_state = True

    def _add_messages(self, run: pa.RecordBatch) -> None:
        begins, ends = run["offset"], run["next_offset"]
        is_whole = pc.all(pc.equal(begins.slice(1), ends.slice(0, len(ends) - 1)), min_count=0).as_py()
        self._is_partial = self._is_partial or not is_whole or begins[0].as_py() != self._offset
        self._offset, self._position = ends[-1].as_py(), run["position"][-1].as_py()
        if self._is_partial:
            self._messages = []
            return
        self._is_json, self._has_changed = run["is_json"][0].as_py(), True
        for message in _binaries(run["value"]):
            self._messages.append(message)
            self._size += len(message)
            if len(self._messages) >= CHUNK_MESSAGES or self._size >= CHUNK_BYTES:
                self._step()

    def _step(self) -> None:
        messages: list[Any] = self._messages
        try:
            if self._is_json:
                messages = _with_long_integers(json.loads, b"[%b]" % b",".join(messages))
            self._state = self._fold(self._state, messages)
        except Exception as error:
            raise FoldFailed(f"the fold failed at the stream {self.name[0]!r}: {error!r}") from error
        self._messages, self._size, self._has_state = [], 0, True


def _binaries(values: pa.Array) -> list[bytes]:
    """The values, none of which is null. Getting them from Arrow one by one takes much longer."""
    _, places, data = values.cast(pa.binary()).buffers()
    bounds = memoryview(places).cast("i")[values.offset : values.offset + len(values) + 1]
    first = bounds[0]
    joined = memoryview(data)[first : bounds[-1]].tobytes()
    return [joined[begin - first : end - first] for begin, end in pairwise(bounds)]


def _encoded(stream: str, state: Any) -> tuple[str, bytes]:
    if isinstance(state, bytes | bytearray):
        return "application/octet-stream", bytes(state)
    try:
        return JSON, _with_long_integers(_dump, state).encode()
    except (TypeError, ValueError) as error:
        raise FoldFailed(f"the state of {stream!r} is neither bytes nor JSON: {error}") from error


def _dump(state: Any) -> str:
    return json.dumps(state, separators=(",", ":"), ensure_ascii=False)


def _with_long_integers(convert: Callable[[Any], T], value: Any) -> T:
    """Convert from or to JSON without Python's limit on the digits of an integer.

    The server accepts integers of any length, and one of them must not make a job fail forever.
    """
    digits_max = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return convert(value)
    finally:
        sys.set_int_max_str_digits(digits_max)


def _publish(target: SnapshotTarget, state: dict[str, Any]) -> str:
    """Publish a state as a snapshot of its stream; returns "published", or why the server refused it."""
    server = ServerClient(target.endpoint, target.retry_seconds, target.auth)
    try:
        server.publish_snapshot(
            f"/{quote(target.bucket, safe='')}/{quote(state['stream'], safe='')}",
            state["offset"],
            state["state"],
            state["content_type"],
            trim=target.trim,
        )
    except ServerRefused as refused:
        if refused.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        return refused.code  # a newer snapshot exists, or the stream is gone: the others are fine
    return "published"
