"""Record coordinates: each JSON message has a number, can be read by it, and appended on condition of it."""

import json
import re
from typing import Any

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.events import parse_data
from tests.http.raw import Raw, ask, is_held_up
from tests.http.surface import frames, make_bucket
from tests.http.wire import CLOSED, JSON, TEXT, make, offset, post, producer, refused
from tests.server import Server

EXTENSION = "json-record-coordinates-v1"


@pytest.fixture
def stream(api: httpx.Client) -> str:
    """A stream of the numbers 0 to 9: each is its own ordinal, and each is one byte."""
    path = f"{make_bucket(api)}/s"
    make(api, path, JSON, b"[0,1,2]")
    post(api, path, b"3", JSON)
    post(api, path, b"[4,5,6,7,8,9]", JSON)
    return path


def read(api: httpx.Client, stream: str, status: int = 200, **query: Any) -> httpx.Response:
    answer = api.get(stream, params={name: str(value) for name, value in query.items()})
    assert answer.status_code == status, answer.text
    return answer


def values(answer: httpx.Response) -> list[Any]:
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["stream-extensions"] == EXTENSION
    assert not answer.content or answer.content.endswith(b"\n")
    return [json.loads(line) for line in answer.content.split(b"\n")[:-1]]


def test_writes_and_head_tell_the_ordinals(api: httpx.Client) -> None:
    path = f"{make_bucket(api)}/s"
    made = make(api, path, JSON, b"[1,2]").headers
    assert (made["stream-record-start"], made["stream-record-next"]) == ("0", "2")
    assert made["stream-extensions"] == EXTENSION
    posted = post(api, path, b"[3,4,5]", JSON).headers
    assert (posted["stream-record-start"], posted["stream-record-next"]) == ("2", "5")
    assert posted["stream-extensions"] == EXTENSION
    head = api.head(path).headers
    assert (head["stream-record-first"], head["stream-record-next"]) == ("0", "5")
    assert head["stream-extensions"] == EXTENSION
    again = api.put(path, headers=JSON).headers
    assert (again["stream-record-start"], again["stream-record-next"]) == ("5", "5")
    other = make(api, f"{path}-text", TEXT, b"x").headers
    for headers in (other, api.head(f"{path}-text").headers, post(api, f"{path}-text", b"y", TEXT).headers):
        assert not [name for name in headers if "record" in name or name == "stream-extensions"]


def test_a_read_begins_at_any_record(api: httpx.Client, stream: str) -> None:
    for first in range(11):
        answer = read(api, stream, record=first)
        assert values(answer) == list(range(first, 10))
        assert answer.headers["stream-next-offset"] == offset(10)
        assert answer.headers["stream-record-first"] == "0"
        assert answer.headers["stream-record-next"] == "10"
        assert answer.headers["stream-up-to-date"] == "true"
    refused(read(api, stream, 400, record=11), 400, "record_beyond_next")


def test_a_read_begins_so_many_records_before_the_end(api: httpx.Client, stream: str) -> None:
    for count in (0, 1, 3, 10, 11, 10**9):
        assert values(read(api, stream, tail_records=count)) == list(range(max(0, 10 - count), 10))
    assert values(read(api, stream, record="now")) == []
    assert read(api, stream, record="now").headers["stream-record-next"] == "10"


@pytest.mark.parametrize("size", range(1, 12))
def test_pages_of_any_size_give_each_record_once(api: httpx.Client, stream: str, size: int) -> None:
    for limit in ("max_records", "max_bytes"):
        found: list[int] = []
        record = 0
        while True:
            answer = read(api, stream, record=record, **{limit: size})
            page = values(answer)
            assert len(page) == min(size, 10 - record)
            found += page
            record = int(answer.headers["stream-record-next"])
            assert int(answer.headers["stream-next-offset"]) == record
            if "stream-up-to-date" in answer.headers:
                break
        assert found == list(range(10))


def test_only_what_will_not_change_may_be_cached(api: httpx.Client, stream: str) -> None:
    fixed = read(api, stream, record=2, max_records=3)
    assert fixed.headers["cache-control"].startswith("public")
    for moving in ({"tail_records": 5, "max_records": 2}, {"record": 5}, {"record": "now"}):
        assert read(api, stream, **moving).headers["cache-control"] == "no-store"


def test_a_record_larger_than_the_page_comes_alone(api: httpx.Client) -> None:
    path = f"{make_bucket(api)}/s"
    make(api, path, JSON, b'[1,"' + b"x" * 5000 + b'",2]')
    answer = read(api, path, record=0, max_bytes=100)
    assert values(answer) == [1]
    answer = read(api, path, record=1, max_bytes=100)
    assert values(answer) == ["x" * 5000]
    assert answer.headers["stream-record-next"] == "2"


def test_lines_keep_their_text_but_for_line_ends(api: httpx.Client) -> None:
    path = f"{make_bucket(api)}/s"
    body = b'[{"b":1.0,\r\n"a":12345678901234567890},\n"\\n\\u00e9\xc3\xa9",\r[\n1\r]]'
    make(api, path, JSON, body)
    expected = [b'{"b":1.0,  "a":12345678901234567890}', b'"\\n\\u00e9\xc3\xa9"', b"[ 1 ]"]
    assert read(api, path, record=0).content == b"".join(line + b"\n" for line in expected)
    enveloped = read(api, path, record=1, record_view="envelope").content
    assert enveloped == b'{"record":1,"value":%b}\n{"record":2,"value":%b}\n' % (expected[1], expected[2])
    assert api.get(path).content == body.replace(b",\n", b",").replace(b",\r[", b",["), "reads as bytes do"


def test_envelopes_number_the_records(api: httpx.Client, stream: str) -> None:
    answer = read(api, stream, tail_records=3, record_view="envelope", max_records=2)
    assert values(answer) == [{"record": 7, "value": 7}, {"record": 8, "value": 8}]


def test_many_records_come_at_once_and_hold_nobody_up(server: Server, api: httpx.Client) -> None:
    path = f"{make_bucket(api)}/s"
    make(api, path, JSON)
    for _ in range(6):
        post(api, path, b"[" + b",".join([b"7"] * 65_536) + b"]", JSON)
    count = 6 * 65_536
    assert read(api, path, record=0).content == b"7\n" * count
    lines = read(api, path, record=3, record_view="envelope").content.split(b"\n")
    assert len(lines) == count - 3 + 1
    assert (lines[0], lines[4096]) == (b'{"record":3,"value":7}', b'{"record":4099,"value":7}')
    assert lines[-2:] == [b'{"record":%d,"value":7}' % (count - 1), b""]
    large = f"{path}?record=0&record_view=envelope"
    assert not is_held_up(server, large, lambda: api.head(path).raise_for_status())


def test_a_closed_stream_ends(api: httpx.Client, stream: str) -> None:
    post(api, stream, b"", CLOSED)
    assert read(api, stream, record=9).headers["stream-closed"] == "true"
    assert "stream-closed" not in read(api, stream, record=0, max_records=2).headers
    assert read(api, stream, 204, record=10, live="long-poll").headers["stream-closed"] == "true"


def test_a_trimmed_stream_keeps_its_numbers(api: httpx.Client, stream: str) -> None:
    assert api.put(f"{stream}/snapshot/4", content=b"x").status_code == 204
    head = api.head(stream).headers
    assert (head["stream-record-first"], head["stream-record-next"]) == ("4", "10")
    for live in ({}, {"live": "long-poll"}, {"live": "sse"}):
        answer = read(api, stream, 410, record=3, **live)
        refused(answer, 410, "record_trimmed")
        assert answer.headers["stream-earliest-offset"] == offset(4)
    answer = read(api, stream, record=4)
    assert values(answer) == [4, 5, 6, 7, 8, 9]
    assert answer.headers["stream-record-first"] == "4"
    assert values(read(api, stream, tail_records=100)) == [4, 5, 6, 7, 8, 9]
    assert post(api, stream, b"10", JSON).headers["stream-record-start"] == "10"
    api.put(f"{stream}/snapshot/12", content=b"y")
    head = api.head(stream).headers
    assert (head["stream-record-first"], head["stream-record-next"]) == ("11", "11")
    assert values(read(api, stream, record=11)) == []
    assert post(api, stream, b"11", JSON).headers["stream-record-start"] == "11"
    assert values(read(api, stream, record=11)) == [11]


def test_a_fork_goes_on_counting(api: httpx.Client, stream: str) -> None:
    forked = {"stream-forked-from": stream, "stream-fork-offset": "3", "stream-fork-sub-offset": "1"}
    made = make(api, f"{stream}-fork", forked, b"[40,50]").headers
    assert (made["stream-record-start"], made["stream-record-next"]) == ("4", "6")
    assert values(read(api, f"{stream}-fork", record=2)) == [2, 3, 40, 50]
    assert values(read(api, f"{stream}-fork", record=3, max_records=2)) == [3, 40]
    assert values(read(api, f"{stream}-fork", tail_records=3)) == [3, 40, 50]
    api.put(f"{stream}/snapshot/10", content=b"x")
    assert values(read(api, f"{stream}-fork", record=0)) == [0, 1, 2, 3, 40, 50]


def test_a_stream_made_again_counts_from_nothing(api: httpx.Client, stream: str) -> None:
    api.delete(stream)
    assert make(api, stream, JSON, b"1").headers["stream-record-start"] == "0"


def test_only_json_streams_have_records(api: httpx.Client) -> None:
    path = f"{make_bucket(api)}/s"
    make(api, path, TEXT, b"x")
    for query in ({"record": 0}, {"record": "now"}, {"tail_records": 1}):
        for live in ({}, {"live": "long-poll"}, {"live": "sse"}):
            refused(read(api, path, 400, **query, **live), 400, "invalid_parameter")
    make(api, f"{path}-json", {"content-type": "application/json; charset=utf-8"}, b"1")
    assert values(read(api, f"{path}-json", record=0)) == [1]


def test_an_append_can_name_the_record_that_it_will_be(api: httpx.Client, stream: str) -> None:
    match = {**JSON, "stream-record-match": "10"}
    told = post(api, stream, b"[10,11]", match).headers
    assert told["stream-record-start"] == "10"
    answer = api.post(stream, headers=match, content=b"12")
    refused(answer, 412, "precondition_failed")
    assert answer.headers["stream-next-offset"] == offset(14)
    refused(api.post(stream, headers={**match, **CLOSED}), 412, "precondition_failed")
    assert api.head(stream).headers["stream-record-next"] == "12"
    good = {**JSON, "stream-record-match": "12"}
    post(api, stream, b"12", {**good, **producer(0)}, 200)
    post(api, stream, b"12", {**good, **producer(0)}, 204)
    post(api, stream, b"", {"stream-record-match": "13", **CLOSED})


def test_the_numbers_survive_a_restart(start_server: StartServer) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        path = f"{make_bucket(api)}/s"
        make(api, path, JSON, b"[0,1,2,3]")
        api.post(f"{path}/append-batch", headers=JSON, content=frames(b"4", b"[5,6]"))
        api.put(f"{path}/snapshot/2", content=b"x")
    server.kill()
    server.start()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        head = api.head(path).headers
        assert (head["stream-record-first"], head["stream-record-next"]) == ("2", "7")
        assert values(read(api, path, record=2)) == [2, 3, 4, 5, 6]


# Live


def test_a_long_poll_waits_for_the_next_record(server: Server, api: httpx.Client, stream: str) -> None:
    for query in ("record=now", "record=10", "tail_records=0"):
        with Raw(server) as raw:
            raw.ask("GET", f"{stream}?{query}&live=long-poll&timeout=10&record_view=envelope")
            if query != "record=10":
                assert raw.is_silent_for(0.1)
                post(api, stream, b"[10,11]", JSON)
            answer = raw.answer()
            head = api.head(stream).headers
            assert answer.status == 200
            assert answer.headers["stream-record-next"] == head["stream-record-next"]
            assert "stream-cursor" in answer.headers
            assert json.loads(answer.body.split(b"\n")[0])["value"] == 10
    at_once = read(api, stream, record=8, max_records=1, live="long-poll")
    assert values(at_once) == [8]
    nothing = read(api, stream, 204, record="now", live="long-poll", timeout=0)
    assert nothing.headers["stream-up-to-date"] == "true"


class RecordEvents:
    """An SSE connection on records."""

    def __init__(self, server: Server, path: str, query: str, *lines: str) -> None:
        self._raw = Raw(server)
        self._raw.ask("GET", f"{path}?{query}&live=sse", *lines)
        self._data = b""
        self.status, self.headers = self._raw.begin()

    def __enter__(self) -> "RecordEvents":
        return self

    def __exit__(self, *unused: object) -> None:
        self._raw.close()

    def event(self) -> bytes:
        while b"\n\n" not in self._data:
            part = self._raw.chunk()
            if not part:
                return b""
            self._data += part
        event, _, self._data = self._data.partition(b"\n\n")
        return event + b"\n\n"

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in parse_data(self.event()).split(b"\n")]

    def control(self) -> dict[str, Any]:
        event = self.event()
        match = re.fullmatch(rb"event: control\ndata:(\{.*\})\nid: ([0-9]{20})\n\n", event)
        assert match is not None, event
        fields: dict[str, Any] = json.loads(match[1])
        assert fields["streamNextOffset"] == match[2].decode()
        return fields


def test_events_are_lines_and_tell_the_records(server: Server, api: httpx.Client, stream: str) -> None:
    with RecordEvents(server, stream, "record=7") as events:
        assert events.status == 200
        assert events.headers["content-type"] == "text/event-stream"
        assert events.headers["stream-extensions"] == EXTENSION
        assert "stream-sse-data-encoding" not in events.headers
        assert events.lines() == [7, 8, 9]
        control = events.control()
        assert (control["streamFirstRecord"], control["streamNextRecord"]) == (0, 10)
        assert control["streamNextOffset"] == offset(10)
        assert control["upToDate"] is True
        post(api, stream, b'["a\\n",\n{"x":\r\n1}]', JSON)
        assert events.lines() == ["a\n", {"x": 1}]
        assert events.control()["streamNextRecord"] == 12
        post(api, stream, b"", CLOSED)
        last = events.control()
        assert last["streamClosed"] is True
        assert last["streamNextRecord"] == 12
        assert events.event() == b""


def test_events_come_so_many_records_at_a_time(server: Server, stream: str) -> None:
    with RecordEvents(server, stream, "tail_records=5&max_records=2&record_view=envelope") as events:
        for first, last in ((5, 7), (7, 9), (9, 10)):
            assert events.lines() == [{"record": n, "value": n} for n in range(first, last)]
            control = events.control()
            assert control["streamNextRecord"] == last
            assert ("upToDate" in control) == (last == 10)


def test_events_are_resumed_where_they_were(server: Server, api: httpx.Client, stream: str) -> None:
    for query in ("record=0", "tail_records=2", "record=now"):
        resumed = f"Last-Event-ID: {offset(4)}"
        with RecordEvents(server, stream, f"{query}&max_records=3", resumed) as events:
            assert events.lines() == [4, 5, 6]
            assert events.control()["streamNextRecord"] == 7
    with RecordEvents(server, stream, "record=now") as events:
        control = events.control()
        assert (control["streamNextRecord"], control["upToDate"]) == (10, True)
    post(api, stream, b"", CLOSED)
    ended = ask(server, "GET", f"{stream}?record=0&live=sse", f"Last-Event-ID: {offset(10)}")
    assert ended.status == 204
    api.put(f"{stream}/snapshot/5", content=b"x")
    trimmed = ask(server, "GET", f"{stream}?record=7&live=sse", f"Last-Event-ID: {offset(4)}")
    assert trimmed.status == 410
    assert trimmed.headers["stream-earliest-offset"] == offset(5)
