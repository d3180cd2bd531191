"""The feed of a bucket as a judge of everything else: what it has told stays so."""

import base64
import json
from bisect import bisect_left
from collections import defaultdict
from typing import Any

from tests.faults.client import Client

Row = dict[str, Any]

_BEGINNINGS = ("create", "fork")
_ENDS = ("delete", "expire")


class Feed:
    """All rows, read on from where it was left over all lives of the server, and their order checked."""

    def __init__(self, bucket: str) -> None:
        self.path = f"/{bucket}"
        self.lines: list[bytes] = []
        self.position = "-1"
        self._rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
        self._lives: dict[str, _Life] = {}
        self._last_key: tuple[Any, ...] = ()
        self._keys: set[tuple[Any, ...]] = set()

    def read_on(self, client: Client) -> None:
        """Take what is new."""
        while True:
            answer = client.ask("GET", f"{self.path}?offset={self.position}")
            assert answer.status == 200, answer
            lines = answer.body.split(b"\n")
            assert lines.pop() == b"", "a line was cut"
            for line in lines:
                self._take(line)
            self.position = answer.headers["stream-next-offset"]
            if answer.headers.get("stream-up-to-date") == "true":
                return

    def events(self, path: str, kind: str) -> list[Row]:
        """The rows of a kind for whatever was at this path."""
        return self._rows[path, kind]

    def content(self, path: str, since: int) -> bytes:
        """The bytes of a stream from an offset on; JSON messages without what separates them."""
        rows = self._rows[path, "append"]
        first = bisect_left(rows, since, key=lambda row: int(row["offset"]))
        return b"".join(map(payload, rows[first:]))

    def _take(self, line: bytes) -> None:
        row = json.loads(line)
        key = (row["position"], row["index"], row["kind"], row["offset"])
        assert key not in self._keys, (key, "is told twice")
        assert key[:2] >= self._last_key[:2], (key, "comes after", self._last_key)
        self._keys.add(key)
        self._last_key = key
        self._lives.setdefault(row["incarnation"], _Life()).go_on(row)
        self.lines.append(line)
        self._rows[f"{self.path}/{row['stream']}", row["kind"]].append(row)


class _Life:
    """One incarnation of a stream as the feed tells it."""

    def __init__(self) -> None:
        self._begun = self._ended = self._closed = False
        self._tail = 0
        self._record = 0

    def go_on(self, row: Row) -> None:
        """The next row: no byte or ordinal is left out, nothing precedes the first or follows the last."""
        kind = row["kind"]
        assert self._begun == (kind not in _BEGINNINGS), row
        assert not self._ended, row
        self._begun = True
        self._ended = kind in _ENDS
        if kind == "fork":
            self._tail = row["event"]["offset"]
        elif kind == "append":
            assert not self._closed, row
            assert int(row["offset"]) == self._tail, (row, self._tail)
            self._tail = int(row["next_offset"])
            if row["content_type"] == "application/json":
                assert row["record"] == self._record, (row, self._record)
                self._record += 1
        elif kind == "close":
            assert not self._closed, row
            self._closed = True


def payload(row: Row) -> bytes:
    """The bytes that were appended; of JSON, as Python writes it."""
    if "value" in row:
        return json.dumps(row["value"]).encode()
    return base64.b64decode(row["value_base64"])
