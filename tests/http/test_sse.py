"""Server-sent events, to the byte."""

import base64
import time

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.events import Events, offset_of, parse_control, parse_data
from tests.http.raw import ask
from tests.http.wire import BINARY, CLOSED, JSON, TEXT, make, offset, post, refused
from tests.server import Server


@pytest.mark.parametrize(
    ("payload", "lines"),
    [
        (b"hello", b"data:hello\n"),
        (b" one space", b"data:  one space\n"),
        (b"  two", b"data:   two\n"),
        (b"\ttab", b"data:\ttab\n"),
        (b"a\nb", b"data:a\ndata:b\n"),
        (b"a\r\nb", b"data:a\ndata:b\n"),
        (b"a\rb", b"data:a\ndata:b\n"),
        (b"a\n\nb", b"data:a\ndata:\ndata:b\n"),
        (b"a\r\rb", b"data:a\ndata:\ndata:b\n"),
        (b"a\n\rb", b"data:a\ndata:\ndata:b\n"),
        (b"\n", b"data:\ndata:\n"),
        (b"a\n", b"data:a\ndata:\n"),
        (b"a\n b", b"data:a\ndata:  b\n"),
        (b"event: control\ndata:{}", b"data:event: control\ndata:data:{}\n"),
        (b"a\x0bb\x0cc\x1cd\xc2\x85e", b"data:a\x0bb\x0cc\x1cd\xc2\x85e\n"),
        ("\u2028\u2029é漢😀".encode(), "data:\u2028\u2029é漢😀\n".encode()),
        (b"\xff\xfeok", b"data:\xef\xbf\xbd\xef\xbf\xbdok\n"),
        (b"a\x00b", b"data:a\x00b\n"),
    ],
    ids=repr,
)
def test_a_text_payload_is_split_into_lines(
    server: Server, api: httpx.Client, path: str, payload: bytes, lines: bytes
) -> None:
    make(api, path, {**TEXT, **CLOSED}, payload)
    with Events(server, path) as events:
        assert "stream-sse-data-encoding" not in events.headers
        assert events.next() == b"event: data\n" + lines + b"\n"
        end = offset(len(payload))
        control = f'{{"streamNextOffset":"{end}","upToDate":true,"streamClosed":true}}'
        assert events.next() == f"event: control\ndata:{control}\nid: {end}\n\n".encode()
        assert events.next() == b""


def test_an_open_stream_gets_a_cursor_and_stays_open(server: Server, api: httpx.Client, path: str) -> None:
    incarnation = make(api, path, TEXT, b"one").headers["stream-incarnation"]
    with Events(server, path) as events:
        assert events.headers["stream-incarnation"] == incarnation
        assert events.data() == b"one"
        control = events.control()
        assert control["upToDate"] is True
        assert offset_of(control) == 3
        for number in range(3):
            post(api, path, b"more%d" % number, TEXT)
            assert events.data() == b"more%d" % number
            assert offset_of(events.control()) == 8 + 5 * number
        assert events.is_silent_for(0.1)


def test_data_and_its_control_event_are_one_write(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path, TEXT)
    with Events(server, path) as events:
        events.control()
        for number in range(20):
            post(api, path, b"%d" % number, TEXT)
            chunk = events._raw.chunk()
            assert chunk.startswith(b"event: data\n")
            assert chunk.count(b"event: control\n") == 1
            assert chunk.endswith(b"\n\n")


@pytest.mark.parametrize("start", ["now", "-1", "0"])
def test_an_empty_open_stream_begins_with_a_control_event(
    server: Server, api: httpx.Client, path: str, start: str
) -> None:
    make(api, path, TEXT)
    with Events(server, path, start) as events:
        control = events.control()
        assert (offset_of(control), control["upToDate"]) == (0, True)
        post(api, path, b"x", TEXT)
        assert events.data() == b"x"


def test_a_closed_stream_at_its_end_says_so_and_ends(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path, {**TEXT, **CLOSED}, b"all")
    for start in ("now", offset(3)):
        with Events(server, path, start) as events:
            assert events.control() == {
                "streamNextOffset": offset(3),
                "upToDate": True,
                "streamClosed": True,
            }
            assert events.next() == b""


def test_closing_ends_the_events_after_the_last_data(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path, TEXT)
    with Events(server, path) as with_data, Events(server, path) as other:
        with_data.control()
        other.control()
        post(api, path, b"last", {**TEXT, **CLOSED})
        for events in (with_data, other):
            assert events.data() == b"last"
            assert events.control()["streamClosed"] is True
            assert events.next() == b""
    make(api, path + "-2", TEXT, b"x")
    with Events(server, path + "-2", "now") as events:
        assert offset_of(events.control()) == 1
        post(api, path + "-2", b"", CLOSED)
        closing = events.control()
        assert (offset_of(closing), closing["streamClosed"]) == (1, True)
        assert events.next() == b""


def test_a_character_split_over_two_appends_is_never_torn(
    server: Server, api: httpx.Client, path: str
) -> None:
    make(api, path, TEXT)
    with Events(server, path) as events:
        events.control()
        post(api, path, b"a\xf0\x9f", TEXT)
        assert events.data() == b"a"
        control = events.control()
        assert offset_of(control) == 1
        assert "upToDate" not in control
        post(api, path, b"\x98", TEXT)
        assert events.is_silent_for(0.1)
        post(api, path, b"\x80!", TEXT)
        assert events.data() == "😀!".encode()
        assert offset_of(events.control()) == 6
    with Events(server, path, offset(1)) as events:
        assert events.data() == "😀!".encode()


def test_the_beginning_of_a_character_alone_waits_for_its_rest(
    server: Server, api: httpx.Client, path: str
) -> None:
    make(api, path, TEXT, b"\xc3")
    with Events(server, path) as events:
        assert events.is_silent_for(0.1)
        post(api, path, b"\xa9", TEXT)
        assert events.data() == "é".encode()
        assert offset_of(events.control()) == 2


def test_the_beginning_of_a_character_at_the_end_of_a_closed_stream_is_replaced(
    server: Server, api: httpx.Client, path: str
) -> None:
    make(api, path, TEXT, b"a\xc3")
    with Events(server, path) as events:
        assert events.data() == b"a"
        assert offset_of(events.control()) == 1
        post(api, path, b"", CLOSED)
        assert events.data() == "\ufffd".encode()
        assert events.control()["streamClosed"] is True
        assert events.next() == b""


def test_bytes_that_never_become_a_character_are_not_held_back_for_ever(
    server: Server, api: httpx.Client, path: str
) -> None:
    latin = "caf\xe9".encode("latin-1")
    make(api, path, TEXT, latin)
    with Events(server, path) as events:
        assert events.data() == b"caf"
        assert "upToDate" not in events.control()
        assert events.data() == "\ufffd".encode()
        control = events.control()
        assert (offset_of(control), control["upToDate"]) == (len(latin), True)
        post(api, path, b" cr\xe8me", TEXT)
        assert events.data() == " cr\ufffdme".encode()
        assert events.control()["upToDate"] is True


LARGE = b"x" * 300_000
"""More than one event of a text stream holds, beside anything else."""


@pytest.mark.parametrize("headers", [TEXT, {**TEXT, **CLOSED}])
@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (b"\xc3", b"\xa9" + LARGE, "\xe9"),
        (LARGE + b"\xc3", b"\xa9" + LARGE, "\xe9"),
        (LARGE + b"\xf0\x9f", b"\x98\x80" + LARGE, "\U0001f600"),
        (LARGE + b"\xe9", LARGE, "\ufffd"),
    ],
)
def test_a_character_across_two_large_messages_holds_nobody_up(
    server: Server,
    api: httpx.Client,
    path: str,
    headers: dict[str, str],
    first: bytes,
    second: bytes,
    text: str,
) -> None:
    make(api, path, TEXT, first)
    post(api, path, second, headers)
    with Events(server, path) as events:
        found, at = b"", 0
        while at < len(first) + len(second):
            found += events.data()
            at = offset_of(events.control())
    assert found == (first + second).decode(errors="replace").encode()
    assert text in found.decode()


@pytest.mark.parametrize("payload", [b"a\xc0", b"a\xff", b"a\x80", b"a\xf5", b"a\xe0\x80", b"a\xf4\x90"])
def test_bytes_that_begin_no_character_do_not_wait(
    server: Server, api: httpx.Client, path: str, payload: bytes
) -> None:
    make(api, path, TEXT, payload)
    with Events(server, path) as events:
        assert events.data() == payload.decode(errors="replace").encode()
        control = events.control()
        assert (offset_of(control), control["upToDate"]) == (len(payload), True)


def test_invalid_bytes_are_replaced_in_events_only(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path, {**TEXT, **CLOSED}, b"a\xffb")
    assert api.get(path).content == b"a\xffb"
    with Events(server, path) as events:
        assert events.data() == "a\ufffdb".encode()


@pytest.mark.parametrize(
    "kind", ["application/octet-stream", "image/png", "application/xml", "application/x-ndjson"]
)
def test_other_types_are_base64(server: Server, api: httpx.Client, path: str, kind: str) -> None:
    make(api, path, {"content-type": kind, **CLOSED}, bytes(range(256)) * 4)
    with Events(server, path) as events:
        assert events.headers["stream-sse-data-encoding"] == "base64"
        data = events.data()
        assert b"\n" not in data
        assert base64.b64decode(data, validate=True) == bytes(range(256)) * 4


def test_json_events_are_arrays_with_the_text_as_it_was(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path, JSON, b'[1.0, {"b":1,"a":2}]')
    with Events(server, path) as events:
        assert "stream-sse-data-encoding" not in events.headers
        assert events.next() == b'event: data\ndata:[1.0,{"b":1,"a":2}]\n\n'
        events.control()
        post(api, path, b'{\n "x": 1\n}', JSON)
        assert events.next() == b'event: data\ndata:[{\ndata:  "x": 1\ndata:}]\n\n'
        events.control()


def test_the_cursor_of_events_is_later_than_the_echoed_one(
    server: Server, api: httpx.Client, path: str
) -> None:
    make(api, path, TEXT)
    echoed = int((time.time() - 1_728_432_000) // 20) + 5
    with Events(server, path, "now", query=f"&cursor={echoed}") as events:
        assert int(events.control()["streamCursor"]) > echoed
        post(api, path, b"x", TEXT)
        events.data()
        assert int(events.control()["streamCursor"]) > echoed


def test_last_event_id_overrides_the_offset(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"hello")
    with Events(server, path, "-1", f"Last-Event-ID: {offset(3)}") as events:
        assert events.data() == b"lo"
    with Events(server, path, "now", "Last-Event-ID: -1") as events:
        assert events.data() == b"hello"
    bad = ask(server, "GET", f"{path}?offset=-1&live=sse", "Last-Event-ID: x")
    assert (bad.status, bad.code) == (400, "invalid_offset")
    beyond = ask(server, "GET", f"{path}?offset=-1&live=sse", "Last-Event-ID: 6")
    assert (beyond.status, beyond.code) == (400, "offset_beyond_tail")
    assert ask(server, "GET", f"{path}?offset=-1", "Last-Event-ID: 3").body == b"hello", "only for events"


def test_a_browser_that_comes_back_to_the_end_of_a_closed_stream_is_told_to_stop(
    server: Server, api: httpx.Client, path: str
) -> None:
    incarnation = make(api, path, {**TEXT, **CLOSED}, b"all").headers["stream-incarnation"]
    answer = ask(server, "GET", f"{path}?offset=-1&live=sse", f"Last-Event-ID: {offset(3)}")
    assert answer.status == 204
    assert answer.headers["stream-closed"] == "true"
    assert answer.headers["stream-next-offset"] == offset(3)
    assert answer.headers["stream-incarnation"] == incarnation
    with Events(server, path, "-1", f"Last-Event-ID: {offset(1)}") as events:
        assert events.data() == b"ll"
        assert events.control()["streamClosed"] is True


def test_a_stream_deleted_while_it_is_followed_ends_its_events(
    server: Server, api: httpx.Client, path: str
) -> None:
    make(api, path, TEXT, b"x")
    with Events(server, path, "now") as events:
        events.control()
        api.delete(path)
        make(api, path, TEXT, b"another")
        assert events.rest() == []


def test_a_large_stream_comes_in_stretches_that_end_between_messages(
    start_server: StartServer, path: str
) -> None:
    server = start_server(limits__sse_bytes="100MiB")
    with httpx.Client(base_url=server.url, timeout=60) as api:
        make(api, path, TEXT)
        messages = [bytes([65 + number]) * 600_000 for number in range(5)]
        for message in messages:
            post(api, path, message, TEXT)
        post(api, path, b"", CLOSED)
        with Events(server, path) as events:
            parts, offsets = [], []
            for event in events.rest():
                if event.startswith(b"event: data"):
                    parts.append(parse_data(event))
                else:
                    offsets.append(offset_of(parse_control(event)))
        assert parts == messages
        assert offsets == [600_000 * number for number in range(1, 6)]


@pytest.fixture(scope="module")
def quick(start_server: StartServer) -> Server:
    """A server whose connections are short."""
    return start_server(http__sse_cycle="1s", http__sse_heartbeat="300ms", limits__sse_bytes="100KiB")


def test_an_idle_connection_gets_comments_and_ends_after_its_cycle(quick: Server, path: str) -> None:
    with httpx.Client(base_url=quick.url, timeout=60) as api:
        make(api, path, TEXT)
        began = time.monotonic()
        with Events(quick, path) as events:
            events.control()
            rest = events.rest()
        assert 0.8 < time.monotonic() - began < 45, "60 s are the default"
        assert set(rest) == {b":\n\n"}
        assert 1 <= len(rest) <= 4


def test_a_busy_connection_ends_after_its_cycle_at_an_event_boundary(quick: Server, path: str) -> None:
    with httpx.Client(base_url=quick.url, timeout=60) as api:
        make(api, path, JSON)
        with Events(quick, path) as events:
            until = time.monotonic() + 1.3
            count = 0
            while time.monotonic() < until:
                post(api, path, b"[%d]" % count, JSON)
                count += 1
            seen = [event for event in events.rest() if event != b":\n\n"]
        assert seen[-1].startswith(b"event: control")
        assert offset_of(parse_control(seen[-1])) > 0
        offsets = [offset_of(parse_control(event)) for event in seen if event.startswith(b"event: control")]
        assert offsets == sorted(set(offsets)), "never two control events with the same offset"
        values = [parse_data(event)[1:-1] for event in seen if event.startswith(b"event: data")]
        joined = b",".join(values).split(b",")
        assert joined == [b"%d" % number for number in range(len(joined))]


def test_a_connection_does_not_end_because_much_was_sent(server: Server, path: str) -> None:
    data = b"".join(b"%06d," % number for number in range(50_000))
    with httpx.Client(base_url=server.url, timeout=60) as api:
        make(api, path, TEXT)
        for _ in range(20):
            post(api, path, data, TEXT)
        post(api, path, b"", CLOSED)
    parts, closed = [], False
    with Events(server, path) as events:
        for event in events.rest():
            if event.startswith(b"event: data"):
                parts.append(parse_data(event))
            elif event != b":\n\n":
                closed = "streamClosed" in parse_control(event)
    assert b"".join(parts) == data * 20
    assert closed


def test_events_of_a_missing_stream_are_an_error(api: httpx.Client, path: str) -> None:
    refused(api.get(f"{path}?offset=-1&live=sse"), 404, "stream_not_found")


def test_every_subscriber_gets_every_event(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path, BINARY)
    followers = [Events(server, path) for _ in range(30)]
    for number in range(20):
        post(api, path, b"%02d" % number)
    post(api, path, b"", CLOSED)
    for follower in followers:
        with follower:
            events = follower.rest()
            data = [parse_data(event) for event in events if event.startswith(b"event: data")]
            assert b"".join(map(base64.b64decode, data)) == b"".join(b"%02d" % n for n in range(20))
            assert parse_control(events[-1])["streamClosed"] is True
