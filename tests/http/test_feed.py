"""The feed: everything that happens in a bucket, in one order, once."""

import base64
import contextlib
import json
import random
import re
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.events import Events, parse_control, parse_data
from tests.http.in_process import serving
from tests.http.raw import Answer, Raw, ask
from tests.http.signs import wait_until_waiting
from tests.http.surface import feed, frames, lines_of, make_bucket, position_of
from tests.http.wire import BINARY, CLOSED, JSON, TEXT, make, offset, post, producer, refused
from tests.server import Server

Line = dict[str, Any]


def identity(line: Line) -> tuple[str, int, str, str]:
    """What no two lines have in common."""
    return line["position"], line["index"], line["kind"], line["offset"]


def kinds(lines: list[Line]) -> list[tuple[str, str]]:
    return [(line["stream"], line["kind"]) for line in lines]


def busy_bucket(api: httpx.Client) -> str:
    """A bucket in which a bit of everything has happened."""
    bucket = make_bucket(api)
    make(api, f"{bucket}/json", {**JSON, **CLOSED}, b"[1,2,3]")
    make(api, f"{bucket}/text", TEXT, b"hello")
    for number in range(10):
        post(api, f"{bucket}/text", b"x" * number * 40 + b"!", TEXT)
    make(api, f"{bucket}/fork", {"stream-forked-from": f"{bucket}/text"})
    batch = frames(*[b"%d" % number for number in range(20)])
    make(api, f"{bucket}/many", JSON)
    answer = api.post(f"{bucket}/many/append-batch", headers=JSON, content=batch)
    assert answer.status_code == 200
    api.put(f"{bucket}/text/snapshot/5", content=b"state")
    api.delete(f"{bucket}/json")
    return bucket


# The lines


def test_each_kind_of_event_tells_what_happened(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    made = make(api, f"{bucket}/a", {**JSON, "stream-attrs": '{"title":"t"}', "stream-ttl": "3600"}, b"[1,2]")
    post(api, f"{bucket}/a", b'{"n":3}', {**JSON, **producer(0, 7)}, 200)
    make(api, f"{bucket}/b", {"stream-forked-from": f"{bucket}/a", "stream-fork-offset": "1"}, b"9")
    assert api.put(f"{bucket}/a/attrs", headers=JSON, content=b'{"metadata":{"k":1}}').status_code == 204
    assert api.put(f"{bucket}/a/snapshot/2", headers=TEXT, content=b"state").status_code == 204
    assert api.put(f"{bucket}/b/snapshot/2?trim=false", content=b"fork").status_code == 204
    assert api.put(f"{bucket}/b/retention/1").status_code == 204
    post(api, f"{bucket}/a", b"", CLOSED)
    assert api.delete(f"{bucket}/a").status_code == 204
    lines = feed(api, bucket)
    assert kinds(lines) == [
        ("a", "create"),
        ("a", "append"),
        ("a", "append"),
        ("a", "append"),
        ("b", "fork"),
        ("b", "append"),
        ("a", "attributes"),
        ("a", "snapshot"),
        ("a", "trim"),
        ("b", "snapshot"),
        ("b", "trim"),
        ("a", "close"),
        ("a", "delete"),
    ]
    create, first, second, third, fork, forked, attributes, snapshot, trim, _, retained, close, delete = lines
    assert create["event"] == {"ttl_seconds": 3600, "attributes": {"title": "t"}}
    assert (create["offset"], create["next_offset"]) == (offset(0), offset(0))
    assert [line["value"] for line in (first, second, third, forked)] == [1, 2, {"n": 3}, 9]
    assert [line["record"] for line in (first, second, third, forked)] == [0, 1, 2, 1]
    assert [line["offset"] for line in (first, second, third, forked)] == [offset(at) for at in (0, 1, 2, 1)]
    assert [line["next_offset"] for line in (first, second, third)] == [offset(at) for at in (1, 2, 9)]
    assert third["producer"] == {"id": "writer", "epoch": 7, "seq": 0}
    assert "producer" not in first
    assert fork["event"]["source"] == "a"
    assert fork["event"]["offset"] == 1
    assert attributes["event"] == {"attributes": {"metadata": {"k": 1}}}
    assert snapshot["event"]["offset"] == 2
    assert snapshot["event"]["content_type"] == "text/plain"
    assert snapshot["event"]["size"] == 5
    assert snapshot["event"]["digest"].startswith("sha256:")
    assert trim["event"] == {"earliest": 2}
    assert retained["event"] == {"earliest": 1}
    assert close["offset"] == close["next_offset"] == delete["offset"] == offset(9)
    assert not {"value", "value_base64", "record"} & close.keys()
    for line in lines:
        assert re.fullmatch("[0-9]{20}", line["position"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["at"])
        assert line["content_type"] == "application/json"
    incarnation = made.headers["stream-incarnation"]
    assert {line["incarnation"] for line in lines if line["stream"] == "a"} == {incarnation.partition("-")[2]}
    assert len(set(map(identity, lines))) == len(lines)
    assert [line["position"] for line in lines] == sorted(line["position"] for line in lines)


def test_an_expired_stream_is_an_event_too(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    make(api, f"{bucket}/short", {"stream-ttl": "0"})
    after = "-1"
    found: list[Line] = []
    while len(found) < 2:
        answer = api.get(bucket, params={"offset": after, "live": "long-poll"})
        assert answer.status_code == 200, "it is not told"
        found += lines_of(answer.content)
        after = answer.headers["stream-next-offset"]
    assert kinds(found) == [("short", "create"), ("short", "expire")]


def test_what_one_request_did_shares_position_and_index_and_is_in_order(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    make(api, f"{bucket}/all", {**JSON, **CLOSED}, b"[1,2]")
    make(api, f"{bucket}/s", JSON)
    post(api, f"{bucket}/s", b"[3,4]", {**JSON, **CLOSED})
    lines = feed(api, bucket)
    assert [line["kind"] for line in lines] == ["create", "append", "append", "close"] * 2
    for part in (lines[:4], lines[5:]):
        assert len({(line["position"], line["index"]) for line in part}) == 1


VALUES: dict[str, tuple[dict[str, str], bytes, str]] = {
    "json": (JSON, b'{"b":1.0,"a":12345678901234567890,"b":"\\u00e9"}', '"value":%s'),
    "json with line ends": (JSON, b'{"a":\r\n1,\n"b":\r2}', '"value":{"a":  1, "b": 2}'),
    "text": (TEXT, 'caf\u00e9 \u2028 "quoted" \\ \n\r\t\0\u0001 \U0001f600'.encode(), ""),
    "empty-looking text": (TEXT, b" ", '"value":" "'),
    "text that is not UTF-8": (TEXT, b"caf\xe9", '"value_base64":"Y2Fm6Q=="'),
    "cut UTF-8": (TEXT, b"\xf0\x9f\x98", '"value_base64":"8J+Y"'),
    "markup": ({"content-type": "text/html; charset=utf-8"}, b"<p>", '"value":"<p>"'),
    "binary": (BINARY, bytes(range(256)), ""),
    "binary that is text": (BINARY, b"hello", '"value_base64":"aGVsbG8="'),
    "other json": ({"content-type": "application/ld+json"}, b"{}", '"value_base64":"e30="'),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_is_shown_as_what_it_is(api: httpx.Client, kind: str) -> None:
    headers, body, expected = VALUES[kind]
    bucket = make_bucket(api)
    make(api, f"{bucket}/s", headers, body)
    text = api.get(bucket, params={"offset": "-1"}).content
    assert text.count(b"\n") == 2
    assert b"\r" not in text
    line = lines_of(text)[1]
    if kind == "json":
        expected = expected % body.decode()
    if expected:
        assert expected in text.decode()
    elif kind == "text":
        assert line["value"] == body.decode()
    else:
        assert base64.b64decode(line["value_base64"]) == body
    assert ("value" in line) != ("value_base64" in line)


def test_the_feed_keeps_what_its_streams_no_longer_have(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    make(api, f"{bucket}/s", TEXT)
    for word in (b"one", b"two", b"six"):
        post(api, f"{bucket}/s", word, TEXT)
    make(api, f"{bucket}/fork", {"stream-forked-from": f"{bucket}/s"})
    api.put(f"{bucket}/s/snapshot/6", content=b"x")
    api.delete(f"{bucket}/s")
    api.delete(f"{bucket}/fork")
    make(api, f"{bucket}/s", TEXT, b"new")
    refused(api.get(f"{bucket}/s", params={"offset": "9"}), 400, "offset_beyond_tail")
    lines = feed(api, bucket)
    values = [line["value"] for line in lines if line["kind"] == "append"]
    assert values == ["one", "two", "six", "new"], "a fork does not repeat what it shares"
    assert len({line["incarnation"] for line in lines if line["stream"] == "s"}) == 2


# Reading on


@pytest.mark.parametrize("size", [1, 2, 100, 256, 300, 700, 1500, 4000, 9000, 10**6, 10**9])
def test_pages_of_any_size_give_each_line_once(api: httpx.Client, size: int) -> None:
    bucket = busy_bucket(api)
    whole = api.get(bucket, params={"offset": "-1"})
    assert whole.headers["stream-up-to-date"] == "true"
    after, body = "-1", b""
    positions: set[str] = set()
    while True:
        page = api.get(bucket, params={"offset": after, "max_bytes": str(size)})
        assert page.status_code == 200
        lines = lines_of(page.content)
        here = {line["position"] for line in lines}
        assert not here & positions, "a response ends between log entries"
        assert here or "stream-up-to-date" in page.headers
        assert all(position > after for position in here) or after == "-1"
        positions |= here
        body += page.content
        after = page.headers["stream-next-offset"]
        if "stream-up-to-date" in page.headers:
            break
        assert after == max(here)
    assert body == whole.content
    assert after == whole.headers["stream-next-offset"]
    assert size > 10 or len(positions) > 10


def test_until_ends_a_read_at_any_position(api: httpx.Client) -> None:
    bucket = busy_bucket(api)
    lines = feed(api, bucket)
    positions = sorted({line["position"] for line in lines})
    for number, until in enumerate(positions):
        expected = [line for line in lines if line["position"] <= until]
        answer = api.get(bucket, params={"offset": "-1", "until": until})
        assert lines_of(answer.content) == expected
        assert answer.headers["stream-next-offset"] == until
        assert ("stream-up-to-date" in answer.headers) == (until == positions[-1])
        if number:
            rest = api.get(bucket, params={"offset": positions[number - 1], "until": until})
            assert lines_of(rest.content) == [line for line in lines if line["position"] == until]
    nothing = api.get(bucket, params={"offset": positions[3], "until": positions[3]})
    assert (nothing.status_code, nothing.content) == (200, b"")
    paged = api.get(bucket, params={"offset": "-1", "until": positions[5], "max_bytes": "1"})
    assert paged.headers["stream-next-offset"] == positions[0]


def test_between_two_positions_there_may_be_nothing(api: httpx.Client) -> None:
    """The log is of all buckets: a position need not be one of this bucket's."""
    bucket, other = make_bucket(api), make_bucket(api)
    make(api, f"{bucket}/s", TEXT, b"x")
    make(api, f"{other}/s", TEXT, b"x")
    position = position_of(api, other)
    answer = api.get(bucket, params={"offset": position})
    assert (answer.content, answer.headers["stream-next-offset"]) == (b"", position)
    assert answer.headers["stream-up-to-date"] == "true"
    answer = api.get(bucket, params={"offset": "-1", "until": position})
    assert len(lines_of(answer.content)) == 2
    assert answer.headers["stream-next-offset"] == position


def test_now_is_the_end_and_nothing_of_before(api: httpx.Client) -> None:
    bucket = busy_bucket(api)
    answer = api.get(bucket, params={"offset": "now"})
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.headers["cache-control"] == "no-store"
    after = answer.headers["stream-next-offset"]
    assert after == feed(api, bucket)[-1]["position"]
    make(api, f"{bucket}/later", TEXT, b"x")
    assert kinds(feed(api, bucket, after)) == [("later", "create"), ("later", "append")]


def test_an_empty_bucket_has_an_empty_feed(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    answer = api.get(bucket, params={"offset": "-1"})
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["stream-up-to-date"] == "true"
    after = answer.headers["stream-next-offset"]
    make(api, f"{bucket}/s", TEXT, b"x")
    assert len(feed(api, bucket, after)) == 2


def test_without_an_offset_it_is_the_description(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    assert api.get(bucket).json() == {"bucket_id": bucket[1:], "streams": 0}
    assert api.get(bucket, params={"max_bytes": "5"}).json() == {"bucket_id": bucket[1:], "streams": 0}


def test_many_rows_of_one_entry_stay_together(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    make(api, f"{bucket}/s", JSON)
    post(api, f"{bucket}/s", b"[" + b",".join(b"%d" % number for number in range(5000)) + b"]", JSON)
    answer = api.get(bucket, params={"offset": position_of(api, bucket)})
    assert answer.content == b""
    answer = api.get(bucket, params={"offset": "-1", "max_bytes": "200"})
    assert [line["kind"] for line in lines_of(answer.content)] == ["create"]
    answer = api.get(bucket, params={"offset": answer.headers["stream-next-offset"], "max_bytes": "200"})
    assert [line["value"] for line in lines_of(answer.content)] == list(range(5000))
    assert answer.headers["stream-up-to-date"] == "true"


def test_the_feed_says_whose_it_is_and_takes_that_as_a_precondition(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    status = api.get("/cluster/status").json()
    name = f"{status['cluster']}-{status['generation']}"
    for query in (
        {"offset": "-1"},
        {"offset": "now"},
        {"offset": "now", "live": "long-poll", "timeout": "0"},
    ):
        answer = api.get(bucket, params=query, headers={"stream-incarnation": name})
        assert answer.status_code in (200, 204)
        assert answer.headers["stream-incarnation"] == name
    for query in ({"offset": "-1"}, {"offset": "now", "live": "long-poll"}, {"offset": "-1", "live": "sse"}):
        answer = api.get(bucket, params=query, headers={"stream-incarnation": f"{name}0"})
        refused(answer, 412, "incarnation_mismatch")
        assert answer.headers["stream-incarnation"] == name


def test_a_bucket_made_again_is_a_new_feed(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    make(api, f"{bucket}/s", TEXT, b"old")
    api.delete(f"{bucket}/s")
    old = position_of(api, bucket)
    assert api.delete(bucket).status_code == 204
    refused(api.get(bucket, params={"offset": old}), 404, "bucket_not_found")
    assert api.put(bucket).status_code == 201
    for live in ({}, {"live": "long-poll"}, {"live": "sse"}):
        refused(api.get(bucket, params={"offset": old, **live}), 410, "position_trimmed")
    make(api, f"{bucket}/s", TEXT, b"new")
    assert [line.get("value") for line in feed(api, bucket)] == [None, "new"]


def test_a_bucket_made_on_the_fly_has_its_first_entry_too(api: httpx.Client) -> None:
    make(api, "/v1/stream/Fly/s", TEXT, b"x")
    assert kinds(feed(api, "/Fly")) == [("s", "create"), ("s", "append")]
    after = feed(api, "/Fly")[0]["position"]
    assert feed(api, "/Fly", after) == []


def test_the_feed_survives_a_restart_to_the_byte(start_server: StartServer) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        bucket = busy_bucket(api)
        before = api.get(bucket, params={"offset": "-1"})
        middle = feed(api, bucket)[12]["position"]
        rest = api.get(bucket, params={"offset": middle}).content
    server.kill()
    server.start()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        after = api.get(bucket, params={"offset": "-1"})
        assert after.content == before.content
        assert after.headers["stream-next-offset"] == before.headers["stream-next-offset"]
        assert after.headers["stream-incarnation"] == before.headers["stream-incarnation"]
        assert api.get(bucket, params={"offset": middle}).content == rest
        make(api, f"{bucket}/new", TEXT)
        assert kinds(feed(api, bucket, before.headers["stream-next-offset"])) == [("new", "create")]


# Long-poll


def wait_and_do(server: Server, bucket: str, after: str, act: Callable[[], object]) -> Answer:
    """What a long-poll gets that waits while something happens."""
    with Raw(server) as raw:
        raw.ask("GET", f"{bucket}?offset={after}&live=long-poll&timeout=15")
        assert raw.is_silent_for(0.1)
        act()
        return raw.answer()


def test_a_long_poll_wakes_for_everything_that_happens(server: Server, api: httpx.Client) -> None:
    bucket = make_bucket(api)
    path = f"{bucket}/s"
    after = position_of(api, bucket)
    batch = frames(b"2", b"3")
    steps: list[tuple[Callable[[], object], list[str]]] = [
        (lambda: make(api, path, JSON), ["create"]),
        (lambda: post(api, path, b"1", JSON), ["append"]),
        (lambda: api.post(f"{path}/append-batch", headers=JSON, content=batch), ["append", "append"]),
        (lambda: make(api, f"{path}-fork", {"stream-forked-from": path}), ["fork"]),
        (lambda: api.put(f"{path}/attrs", headers=JSON, content=b'{"title":"x"}'), ["attributes"]),
        (lambda: api.put(f"{path}/snapshot/1?trim=false", content=b"x"), ["snapshot"]),
        (lambda: api.put(f"{path}/retention/1"), ["trim"]),
        (lambda: api.put(f"{path}/snapshot/2", content=b"y"), ["snapshot", "trim"]),
        (lambda: post(api, path, b"", CLOSED), ["close"]),
        (lambda: api.delete(f"{path}-fork"), ["delete"]),
    ]
    for act, expected in steps:
        answer = wait_and_do(server, bucket, after, act)
        assert answer.status == 200
        assert re.fullmatch("[0-9]+", answer.headers["stream-cursor"])
        assert answer.headers["stream-up-to-date"] == "true"
        assert [line["kind"] for line in lines_of(answer.body)] == expected
        after = answer.headers["stream-next-offset"]


def test_a_long_poll_wakes_when_a_stream_expires(timed_server: Server, timed_api: httpx.Client) -> None:
    bucket = make_bucket(timed_api)
    make(timed_api, f"{bucket}/short", {"stream-ttl": "100"})
    after = position_of(timed_api, bucket)
    with Raw(timed_server) as raw:
        wait_until_waiting(timed_api, "long_poll", 0)
        raw.ask("GET", f"{bucket}?offset={after}&live=long-poll&timeout=60")
        wait_until_waiting(timed_api, "long_poll")
        timed_server.pass_time(101)
        answer = raw.answer()
    assert answer.status == 200
    assert [line["kind"] for line in lines_of(answer.body)] == ["expire"]


def test_a_long_poll_says_when_nothing_happened_here(server: Server, api: httpx.Client) -> None:
    bucket, other = make_bucket(api), make_bucket(api)
    make(api, f"{bucket}/s", TEXT, b"x")
    after = position_of(api, bucket)
    with Raw(server) as raw:
        wait_until_waiting(api, "long_poll", 0)
        raw.ask("GET", f"{bucket}?offset={after}&live=long-poll&timeout_ms=2000")
        wait_until_waiting(api, "long_poll")
        make(api, f"{other}/s", TEXT, b"x")
        refused(api.post(f"{bucket}/s", headers=JSON, content=b"1"), 409, "content_type_mismatch")
        assert api.get(f"{bucket}/s").status_code == 200
        answer = raw.answer()
    assert answer.status == 204
    assert answer.headers["stream-next-offset"] == after
    assert answer.headers["stream-up-to-date"] == "true"
    assert "stream-cursor" in answer.headers
    at_once = api.get(bucket, params={"offset": "-1", "live": "long-poll"})
    assert len(lines_of(at_once.content)) == 2


def test_a_cursor_moves_on(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    query = {"offset": "now", "live": "long-poll", "timeout": "0"}
    first = api.get(bucket, params=query).headers["stream-cursor"]
    second = api.get(bucket, params={**query, "cursor": first}).headers["stream-cursor"]
    assert int(second) > int(first)


def test_a_follower_that_polls_again_at_once_gets_the_news_of_a_while_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ursula.engine.group.watchers.FEED_PAUSE_SECONDS", 2.0)
    with (
        serving(tmp_path) as place,
        httpx.Client(base_url=f"http://{place.host}:{place.port}") as api,
        Raw(place) as raw,
    ):
        bucket = make_bucket(api)
        make(api, f"{bucket}/s", TEXT)
        poll = f"{bucket}?offset={{}}&live=long-poll"
        before = raw.ask("GET", poll.format("-1")).answer()
        assert len(lines_of(before.body)) == 1
        post(api, f"{bucket}/s", b"a", TEXT)
        raw.ask("GET", poll.format(before.headers["stream-next-offset"]))
        assert raw.is_silent_for(0.05), "followers were told just before"
        post(api, f"{bucket}/s", b"b", TEXT)
        assert [line["value"] for line in lines_of(raw.answer().body)] == ["a", "b"]


def test_a_long_poll_on_a_bucket_that_ends_is_told_so(server: Server, api: httpx.Client) -> None:
    bucket = make_bucket(api)
    answer = wait_and_do(server, bucket, "now", lambda: api.delete(bucket))
    assert (answer.status, answer.code) == (404, "bucket_not_found")


# SSE


def entries(events: list[bytes]) -> Iterator[tuple[list[Line], dict[str, Any]]]:
    """The log entries in a list of events, each with its control event."""
    found = [event for event in events if not event.startswith(b":")]
    if found and found[0].startswith(b"event: control"):
        found = found[1:]
    assert len(found) % 2 == 0
    for data, control in zip(found[::2], found[1::2], strict=True):
        yield [json.loads(line) for line in parse_data(data).split(b"\n")], parse_control(control)


def test_events_are_whole_log_entries_with_their_position(server: Server, api: httpx.Client) -> None:
    bucket = busy_bucket(api)
    expected = feed(api, bucket)
    found: list[Line] = []
    with Events(server, bucket) as events:
        assert events.headers["stream-incarnation"]
        while len(found) < len(expected):
            lines = [json.loads(line) for line in events.data().split(b"\n")]
            control = events.control()
            assert {line["position"] for line in lines} == {control["streamNextOffset"]}
            found += lines
            assert ("upToDate" in control) == (len(found) == len(expected))
        assert found == expected
        assert events.is_silent_for(0.1)
        post(api, f"{bucket}/many", b"[5,6,7]", JSON)
        lines = [json.loads(line) for line in events.data().split(b"\n")]
        assert [line["value"] for line in lines] == [5, 6, 7]
        assert events.control()["upToDate"] is True
    for position in sorted({line["position"] for line in expected})[::4]:
        with Events(server, bucket, "-1", f"Last-Event-ID: {position}") as events:
            rest = [line for line in expected if line["position"] > position]
            got: list[Line] = []
            while len(got) < len(rest):
                got += [json.loads(line) for line in events.data().split(b"\n")]
                events.control()
            assert got == rest


def test_events_begin_with_where_they_are_if_there_is_nothing(server: Server, api: httpx.Client) -> None:
    bucket = busy_bucket(api)
    with Events(server, bucket, "now") as events:
        control = events.control()
        assert control["streamNextOffset"] == position_of(api, bucket)
        assert control["upToDate"] is True
        make(api, f"{bucket}/late", TEXT)
        assert kinds([json.loads(events.data())]) == [("late", "create")]
        events.control()


def test_events_end_with_their_bucket(server: Server, api: httpx.Client) -> None:
    bucket = make_bucket(api)
    with Events(server, bucket, "now") as events:
        events.control()
        api.delete(bucket)
        assert events.rest() == []
    answer = ask(server, "GET", f"{bucket}?offset=now&live=sse")
    assert (answer.status, answer.code) == (404, "bucket_not_found")


@pytest.fixture(scope="module")
def cycling(start_server: StartServer) -> Server:
    """A server whose SSE connections end after a fraction of a second."""
    return start_server(http__sse_cycle="0.15s", http__sse_heartbeat="0.1s", limits__sse_bytes="64KiB")


class Writers:
    """Threads that write to the streams of a bucket until they are done, and what they wrote."""

    def __init__(self, server: Server, bucket: str, threads: int, messages: int) -> None:
        self._server, self._bucket, self._messages = server, bucket, messages
        self.expected = {
            f"w{number}": [f"w{number}-{n}" for n in range(messages)] for number in range(threads)
        }
        self._threads = [threading.Thread(target=self._write, args=(name,)) for name in self.expected]

    def __enter__(self) -> "Writers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        for thread in self._threads:
            thread.join()

    @property
    def running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _write(self, name: str) -> None:
        with httpx.Client(base_url=self._server.url, timeout=60) as api:
            path = f"{self._bucket}/{name}"
            make(api, path, JSON)
            texts = [json.dumps(text + "x" * 100).encode() for text in self.expected[name]]
            for first in range(0, len(texts), 3):
                three = texts[first : first + 3]
                if first % 2:
                    post(api, path, b"[" + b",".join(three) + b"]", JSON)
                else:
                    answer = api.post(f"{path}/append-batch", headers=JSON, content=frames(*three))
                    assert answer.status_code == 200

    def check(self, lines: list[Line]) -> None:
        """That each message was told once and in the order of its stream."""
        assert len(set(map(identity, lines))) == len(lines)
        told: dict[str, list[str]] = {name: [] for name in self.expected}
        for line in lines:
            if line["kind"] == "append":
                told[line["stream"]].append(line["value"].rstrip("x"))
        assert told == self.expected


def test_a_follower_over_many_connections_gets_each_line_once(cycling: Server) -> None:
    with httpx.Client(base_url=cycling.url, timeout=60) as api:
        bucket = make_bucket(api)
    found: list[Line] = []
    position, cycles = "-1", 0
    with Writers(cycling, bucket, 3, 400) as writers:
        while True:
            last = not writers.running
            lines = [f"Last-Event-ID: {position}"] if cycles else []
            with Events(cycling, bucket, "-1", *lines) as events:
                for entry, control in entries(events.rest()):
                    found += entry
                    position = control["streamNextOffset"]
            cycles += 1
            if last:
                break
    writers.check(found)
    assert cycles > 2


@pytest.mark.parametrize("live", ["no", "long-poll", "sse"])
def test_a_consumer_killed_anywhere_neither_skips_nor_repeats(cycling: Server, live: str) -> None:
    """It keeps lines and position together, and dies at a random byte of a random response."""
    chance = random.Random(7)
    with httpx.Client(base_url=cycling.url, timeout=60) as api:
        bucket = make_bucket(api)
    kept: list[Line] = []
    position = "-1"
    with Writers(cycling, bucket, 3, 120) as writers:
        for tries in count():
            last = not writers.running
            query = f"offset={position}&max_bytes={chance.choice((1, 500, 5000, 100_000))}"
            query += "" if live == "no" else f"&live={live}&timeout_ms=50"
            lines, position, whole = consume(cycling, bucket, query, position, None if last else chance)
            kept += lines
            if last and (whole or live == "sse") and not lines:
                break
            assert tries < 5000
    writers.check(kept)


def consume(
    server: Server, bucket: str, query: str, position: str, chance: random.Random | None
) -> tuple[list[Line], str, bool]:
    """Read one response, perhaps not to its end: the lines to keep, where they lead, whether it was whole."""
    with Raw(server) as raw:
        raw.ask("GET", f"{bucket}?{query}")
        status, headers = raw.begin()
        if status == 204:
            return [], headers["stream-next-offset"], True
        assert status == 200
        if "content-length" not in headers:
            data = b""
            with contextlib.suppress(TimeoutError):
                while part := raw.chunk():
                    data += part
                    if chance is not None and chance.random() < 0.2:
                        data = data[: chance.randrange(len(data) + 1)]
                        break
            whole = data[: data.rfind(b"\n\n") + 2]
            events = [event + b"\n\n" for event in whole.split(b"\n\n")[:-1]]
            events = [event for event in events if not event.startswith(b":")]
            if events and events[-1].startswith(b"event: data"):
                events.pop()
            kept: list[Line] = []
            for entry, control in entries(events):
                kept += entry
                position = control["streamNextOffset"]
            return kept, position, False
        length = int(headers["content-length"])
        if chance is not None and length and chance.random() < 0.3:
            return [], position, False
        body = raw._exactly(length)
        return lines_of(body), headers["stream-next-offset"], True
