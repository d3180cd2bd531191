"""Reads that begin in the store and end in memory: no reader can tell where the border is.

The server moves everything to the store almost at once, and keeps nothing of it in memory. So while a
writer goes on, what is read lies there at first and here at last, and the border moves along.
"""

import base64
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

import httpx
import pyarrow as pa
import pytest
from tests.conftest import StartServer
from tests.http.events import Events, parse_data
from tests.http.raw import Raw, ask
from tests.http.surface import frames, lines_of, position_of
from tests.http.test_bootstrap import parts_of
from tests.http.wire import BINARY, CLOSED, JSON, TEXT, make, post
from tests.server import Server

OLD, NEW = 300, 60
SETTINGS = {"cold__flush_size": "4KiB", "cold__flush_interval": "50ms", "cold__cache_bytes": "0"}
ARROW = "application/vnd.apache.arrow.stream"

_numbers = count()


class Case(NamedTuple):
    """A stream whose beginning lies in the store, and every message that will have been in it."""

    server: Server
    api: httpx.Client
    bucket: str
    path: str
    headers: dict[str, str]
    messages: list[bytes]


@pytest.fixture(scope="module")
def forgetful(start_server: StartServer) -> Server:
    """A server that keeps next to nothing in memory."""
    return start_server(**SETTINGS)


@pytest.fixture(params=["text", "json", "binary"])
def case(forgetful: Server, request: pytest.FixtureRequest) -> Iterator[Case]:
    """A stream of each kind."""
    with begun(forgetful, request.param) as found:
        yield found


@pytest.fixture
def json_case(forgetful: Server) -> Iterator[Case]:
    """A stream of JSON messages."""
    with begun(forgetful, "json") as found:
        yield found


@contextlib.contextmanager
def begun(server: Server, kind: str) -> Iterator[Case]:
    """A new stream with the old messages, once they lie in the store."""
    headers, message = {"text": (TEXT, text), "json": (JSON, value), "binary": (BINARY, noise)}[kind]
    with httpx.Client(base_url=server.url, timeout=60) as api:
        bucket = f"/later-{next(_numbers)}"
        assert api.put(bucket).status_code == 201
        case = Case(server, api, bucket, f"{bucket}/s", headers, [message(n) for n in range(OLD + NEW)])
        make(api, case.path, headers)
        for first in range(0, OLD, 20):
            body = frames(*case.messages[first : first + 20])
            answer = api.post(f"{case.path}/append-batch", headers=headers, content=body)
            assert answer.status_code == 200, answer.text
        wait_until_stored(server, int(position_of(api, bucket)))
        yield case


def text(number: int) -> bytes:
    return f"{number:04d} {'é漢😀'[number % 3] * (number % 50)}\n".encode()


def value(number: int) -> bytes:
    return b'{ "n":%d,"pad":"%b"}' % (number, b"x" * (number % 90))


def noise(number: int) -> bytes:
    return number.to_bytes(2, "big") + bytes(range(256))[: 1 + number % 130]


def segments(server: Server) -> dict[int, Any]:
    """The segments in the store, by the last position of each."""
    found = (server.data_dir / "cold" / "segments").rglob("*.parquet")
    return {int(path.name.split("-")[1]): path for path in found}


def wait_until_stored(server: Server, position: int) -> None:
    give_up_at = time.monotonic() + 60
    while max(segments(server), default=0) < position:
        assert time.monotonic() < give_up_at, "nothing comes to the store"
        time.sleep(0.01)


@contextlib.contextmanager
def writer(case: Case) -> Iterator[None]:
    """Appends the new messages one by one in the background, and closes the stream with the last."""
    failed: list[BaseException] = []

    def write() -> None:
        try:
            with httpx.Client(base_url=case.server.url, timeout=60) as api:
                for number, message in enumerate(case.messages[OLD:], 1):
                    post(api, case.path, message, case.headers | (CLOSED if number == NEW else {}))
                    time.sleep(0.005)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert failed == []


def joined(case: Case, pieces: list[bytes]) -> bytes:
    """What was read, put together; arrays of JSON become one row of messages."""
    if case.headers is not JSON:
        return b"".join(pieces)
    assert all(piece.startswith(b"[") and piece.endswith(b"]") for piece in pieces)
    return b",".join(piece[1:-1] for piece in pieces if piece != b"[]")


def expected(case: Case) -> bytes:
    return (b"," if case.headers is JSON else b"").join(case.messages)


def lengths(case: Case) -> int:
    return sum(map(len, case.messages))


# Streams


@pytest.mark.parametrize("live", [{}, {"live": "long-poll"}], ids=["plain", "long-poll"])
@pytest.mark.parametrize("max_bytes", ["700", "20000"])
def test_pages_follow_each_other_without_a_seam(case: Case, live: dict[str, str], max_bytes: str) -> None:
    pieces, at = [], "-1"
    with writer(case):
        while True:
            answer = case.api.get(case.path, params={"offset": at, "max_bytes": max_bytes, **live})
            assert answer.status_code in (200, 204), answer.text
            pieces += [answer.content] if answer.status_code == 200 else []
            at = answer.headers["stream-next-offset"]
            if case.headers is not JSON:
                assert int(at) == sum(map(len, pieces))
            if "stream-closed" in answer.headers:
                break
    assert joined(case, pieces) == expected(case)
    assert int(at) == lengths(case)


def test_any_stretch_is_the_same_wherever_it_lies(case: Case) -> None:
    with writer(case):
        pass
    starts = [0]
    for message in case.messages:
        starts.append(starts[-1] + len(message))
    for first in (0, 1, 19, 20, 21, 150, 298, 299, 300, 301, 340, 358, 359, 360):
        answer = case.api.get(case.path, params={"offset": str(starts[first])})
        assert joined(case, [answer.content]) == joined_from(case, first)
        assert answer.headers["stream-closed"] == "true"
        again = case.api.get(
            case.path,
            params={"offset": str(starts[first])},
            headers={"if-none-match": answer.headers["etag"]},
        )
        assert again.status_code == 304


def joined_from(case: Case, first: int) -> bytes:
    return expected(case._replace(messages=case.messages[first:]))


def test_an_offset_inside_of_a_stored_message_is_told_apart(case: Case) -> None:
    inside = len(case.messages[0]) + 1
    answer = case.api.get(case.path, params={"offset": str(inside), "max_bytes": "9"})
    if case.headers is JSON:
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "invalid_offset"
    else:
        assert answer.content == b"".join(case.messages[:OLD])[inside : inside + 9]


def follow(case: Case, at: str = "-1", pause: float = 0.0) -> list[bytes]:
    """The data of all events to the end of the stream, over as many connections as it takes."""
    pieces: list[bytes] = []
    while True:
        with Events(case.server, case.path, at) as events:
            while event := events.next():
                if event.startswith(b"event: data\n"):
                    pieces.append(payload(case, parse_data(event)))
                    control = events.control()
                elif event.startswith(b":"):
                    continue
                else:
                    control = json.loads(event.split(b"data:")[1].split(b"\n")[0])
                at = control["streamNextOffset"]
                if case.headers is not JSON:
                    assert int(at) == sum(map(len, pieces))
                if "streamClosed" in control:
                    assert events.next() == b""
                    return pieces
                time.sleep(pause)


def payload(case: Case, data: bytes) -> bytes:
    return base64.b64decode(data, validate=True) if case.headers is BINARY else data


def test_events_follow_each_other_without_a_seam(case: Case) -> None:
    with writer(case):
        pieces = follow(case)
    assert joined(case, pieces) == expected(case)


def together(readers: list[Callable[[], list[bytes]]]) -> list[list[bytes]]:
    """What each of several readers found, all at once."""
    found: list[list[bytes]] = [[] for _ in readers]

    def read(number: int) -> None:
        found[number] = readers[number]()

    threads = [threading.Thread(target=read, args=(number,)) for number in range(len(readers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_many_readers_of_the_same_old_data_and_of_the_newest_all_get_it_once(case: Case) -> None:
    old = sum(map(len, case.messages[:OLD]))
    with writer(case):
        found = together([lambda: follow(case)] * 5 + [lambda: tail_of(case, old)] * 3)
    for pieces in found[:5]:
        assert joined(case, pieces) == expected(case)
    for pieces in found[5:]:
        assert joined(case, pieces) == joined_from(case, OLD)


def tail_of(case: Case, at: int) -> list[bytes]:
    """The data after an offset, to the end, of one connection."""
    pieces = []
    with Events(case.server, case.path, str(at)) as events:
        for event in events.rest():
            if event.startswith(b"event: data\n"):
                pieces.append(payload(case, parse_data(event)))
    return pieces


def test_a_reader_of_old_data_is_not_told_that_there_is_nothing(case: Case) -> None:
    with Events(case.server, case.path) as events:
        assert events.next().startswith(b"event: data\n")


def test_a_short_connection_can_be_resumed_anywhere(start_server: StartServer) -> None:
    server = start_server(**SETTINGS, limits__sse_bytes="3KiB", http__sse_cycle="1s")
    for kind in ("text", "json", "binary"):
        with begun(server, kind) as case:
            with writer(case):
                pieces = follow(case)
            assert joined(case, pieces) == expected(case)
    assert server.complaints() == []


def test_readers_that_leave_in_the_middle_leave_nothing_behind(start_server: StartServer) -> None:
    server = start_server(**SETTINGS)
    with begun(server, "text") as case:
        with writer(case):
            for number in range(40):
                with Raw(server) as raw:
                    raw.ask("GET", f"{case.path}?offset=-1&live=sse")
                    if number % 2:
                        raw.begin()
                with Raw(server) as raw:
                    raw.ask("GET", f"{case.bucket}?offset=-1&live=sse")
        assert joined(case, follow(case)) == expected(case)
        readers = [Raw(server).ask("GET", f"{case.path}?offset=-1&live=sse") for _ in range(20)]
        assert server.stop() == 0
        for reader in readers:
            reader.close()
    assert server.complaints() == []


# Records


@pytest.mark.parametrize("live", [{}, {"live": "long-poll"}], ids=["plain", "long-poll"])
@pytest.mark.parametrize("limit", [{"max_records": "7"}, {"max_bytes": "2000"}, {}], ids=str)
def test_records_follow_each_other_without_a_seam(
    json_case: Case, live: dict[str, str], limit: dict[str, str]
) -> None:
    case, lines, record = json_case, b"", 0
    with writer(case):
        while True:
            answer = case.api.get(case.path, params={"record": str(record), **live, **limit})
            assert answer.status_code in (200, 204), answer.text
            lines += answer.content
            if answer.status_code == 200:
                record += answer.content.count(b"\n")
                assert answer.headers["stream-record-next"] == str(record)
            if "stream-closed" in answer.headers:
                break
    assert lines == b"".join(message + b"\n" for message in case.messages)


def test_records_are_found_by_number_and_from_the_end(json_case: Case) -> None:
    case = json_case
    with writer(case):
        pass
    for record in (0, 1, 19, 20, 150, 299, 300, 359):
        answer = case.api.get(
            case.path, params={"record": str(record), "max_records": "3", "record_view": "envelope"}
        )
        found = [(line["record"], line["value"]) for line in lines_of(answer.content)]
        assert found == [(n, json.loads(case.messages[n])) for n in range(record, min(record + 3, 360))]
    for last in (1, 59, 60, 61, 200, 360, 500):
        answer = case.api.get(case.path, params={"tail_records": str(last)})
        assert answer.content == b"".join(message + b"\n" for message in case.messages[-last:])


@pytest.mark.parametrize("start", ["record=0", f"tail_records={OLD}"])
def test_records_as_events_follow_each_other_without_a_seam(json_case: Case, start: str) -> None:
    case, lines, next_records = json_case, [], []
    with Raw(case.server) as raw, writer(case):
        raw.ask("GET", f"{case.path}?{start}&live=sse")
        status, _ = raw.begin()
        assert status == 200
        for event in raw.rest().split(b"\n\n")[:-1]:
            if event.startswith(b"event: data\n"):
                lines += parse_data(event + b"\n\n").split(b"\n")
            elif event.startswith(b"event: control\n"):
                next_records.append(json.loads(event.split(b"data:")[1].split(b"\n")[0])["streamNextRecord"])
    assert lines == case.messages
    assert next_records == sorted(set(next_records))
    assert next_records[-1] == OLD + NEW


# Bootstrap


def test_bootstrap_is_always_a_beginning_of_the_stream(case: Case) -> None:
    sizes = []
    with writer(case):
        while True:
            answer = case.api.get(f"{case.path}/bootstrap")
            found = [part.body for part in parts_of(answer)[1:]]
            assert found == case.messages[: len(found)]
            assert int(answer.headers["stream-next-offset"]) == sum(map(len, found))
            sizes.append(len(found))
            if "stream-closed" in answer.headers:
                break
    assert sizes[0] >= OLD
    assert sizes[-1] == OLD + NEW


def test_a_large_bootstrap_holds_snapshot_and_stored_messages(forgetful: Server) -> None:
    with begun(forgetful, "binary") as case:
        large = [bytes([number]) * 50_000 for number in range(40)]
        for message in large:
            post(case.api, case.path, message)
        at = sum(map(len, case.messages[:100]))
        answer = case.api.put(f"{case.path}/snapshot/{at}", headers=TEXT, content=b"state")
        assert answer.status_code == 204, answer.text
        wait_until_stored(forgetful, int(position_of(case.api, case.bucket)))
        parts = parts_of(case.api.get(f"{case.path}/bootstrap"))
        assert parts[0] == ("text/plain", b"state")
        assert [part.body for part in parts[1:]] == case.messages[100:OLD] + large


# The feed


class Row(NamedTuple):
    """Where a row of the feed lies, what it is, and its bytes."""

    position: int
    command: int
    offset: int
    kind: str
    data: bytes | None


def rows_of(lines: list[dict[str, Any]]) -> list[Row]:
    return [
        Row(int(line["position"]), line["index"], int(line["offset"]), line["kind"], data_of(line))
        for line in lines
    ]


def data_of(line: dict[str, Any]) -> bytes | None:
    if "value_base64" in line:
        return base64.b64decode(line["value_base64"])
    if "value" not in line:
        return None
    is_text = line["content_type"] == TEXT["content-type"]
    return line["value"].encode() if is_text else json.dumps(line["value"]).encode()


def check_rows(case: Case, rows: list[Row]) -> None:
    """All that happened, in order, once."""
    places = [row[:3] for row in rows]
    assert places == sorted(set(places))
    assert [row.kind for row in rows if row.kind != "append"] == ["create", "close"]
    payloads = [row.data for row in rows if row.kind == "append"]
    if case.headers is JSON:
        assert [json.loads(data or b"") for data in payloads] == [json.loads(m) for m in case.messages]
    else:
        assert payloads == case.messages


@pytest.mark.parametrize("live", [{}, {"live": "long-poll"}], ids=["plain", "long-poll"])
@pytest.mark.parametrize("max_bytes", ["1", "20000"])
def test_the_pages_of_a_feed_follow_each_other_without_a_seam(
    case: Case, live: dict[str, str], max_bytes: str
) -> None:
    lines: list[dict[str, Any]] = []
    at = "-1"
    with writer(case):
        while not lines or lines[-1]["kind"] != "close":
            answer = case.api.get(case.bucket, params={"offset": at, "max_bytes": max_bytes, **live})
            assert answer.status_code in (200, 204), answer.text
            lines += lines_of(answer.content)
            at = answer.headers["stream-next-offset"]
    check_rows(case, rows_of(lines))
    now = position_of(case.api, case.bucket)
    again = case.api.get(case.bucket, params={"offset": "-1", "until": now, "max_bytes": "16777216"})
    assert rows_of(lines_of(again.content)) == rows_of(lines)


def test_the_feed_as_arrow_follows_itself_without_a_seam(case: Case) -> None:
    rows: list[Row] = []
    at = "-1"
    with writer(case):
        while not rows or rows[-1].kind != "close":
            params = {"offset": at, "max_bytes": "5000"}
            answer = case.api.get(case.bucket, params=params, headers={"accept": ARROW})
            assert answer.status_code == 200, answer.text
            table = pa.ipc.open_stream(answer.content).read_all()
            for row in table.to_pylist():
                place = row["position"], row["index"], row["offset"]
                rows.append(Row(*place, row["kind"], row["payload"]))
            at = answer.headers["stream-next-offset"]
    check_rows(case, rows)


def test_the_events_of_a_feed_follow_each_other_without_a_seam(case: Case) -> None:
    lines: list[dict[str, Any]] = []
    at = "-1"
    with writer(case):
        while not lines or lines[-1]["kind"] != "close":
            with Events(case.server, case.bucket, at) as events:
                while (not lines or lines[-1]["kind"] != "close") and (event := events.next()):
                    assert event.startswith(b"event: data\n")
                    lines += [json.loads(line) for line in parse_data(event).split(b"\n")]
                    at = events.control()["streamNextOffset"]
                    assert int(at) >= int(lines[-1]["position"])
    check_rows(case, rows_of(lines))


# What is wrong with the store


@pytest.mark.one_node("counts what one node says")
def test_a_missing_object_is_named_and_ends_events_at_a_boundary(start_server: StartServer) -> None:
    # Few segments, so that none is merged while the test looks at them.
    server = start_server(cold__flush_size="1MiB", cold__flush_interval="500ms", cold__cache_bytes="0")
    with begun(server, "binary") as case:
        # Two flushes: the first page of the events is before the last segment, however slow the disk is.
        for number in range(60):
            post(case.api, case.path, bytes([number]) * 50_000)
            if number == 40:
                case.api.post("/cluster/flush").raise_for_status()
        case.api.post("/cluster/flush").raise_for_status()
        wait_until_stored(server, int(position_of(case.api, case.bucket)))
        while case.api.get("/cluster/hot-cold-stats").json()["hot_bytes"]:
            time.sleep(0.01)
        tail = int(case.api.head(case.path).headers["stream-next-offset"])
        missing = segments(server)[max(segments(server))]
        missing.unlink()
        assert case.api.get(case.path, params={"max_bytes": "2"}).content == case.messages[0][:2]
        for path in (f"{case.path}?offset={tail - 10}", f"{case.path}/bootstrap"):
            answer = ask(server, "GET", path)
            assert (answer.status, answer.code) == (500, "object_damaged")
            assert missing.name.encode() in answer.body
        with Events(server, case.path) as events:
            found = events.rest()
        assert len(found) >= 2
        assert found[-1].startswith(b"event: control\n")
        assert server.stop() == 0
        (warning,) = [entry for entry in server.log if entry["level"] == "warning"]
        assert missing.name in json.dumps(warning)
