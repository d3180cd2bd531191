"""Bodies that are cut off, too slow, too large or too many: stored whole or not at all."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.in_process import serving
from tests.http.raw import Answer, CutOff, Raw, ask
from tests.http.signs import until_gone, wait_until_held
from tests.http.surface import flush_all
from tests.http.wire import BINARY, content, make
from tests.server import Server

from ursula.http.routes import Match
from ursula.http.wire.request import Request

HEAD = "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/octet-stream\r\n"
MEBIBYTE = 1 << 20


def begin(raw: Raw, path: str, rest: bytes, method: str = "POST") -> Raw:
    """Send a request whose last header and body are given as bytes."""
    return raw.send(HEAD.format(path=path).replace("POST", method, 1).encode() + rest)


def answer_or_end(raw: Raw) -> Answer | None:
    """The answer, or None if the server just hangs up."""
    try:
        return raw.answer()
    except (CutOff, ConnectionError):
        return None


CUT_OFF = {
    "length, nothing": b"Content-Length: 10\r\n\r\n",
    "length, some": b"Content-Length: 10\r\n\r\n12345",
    "length, all but one": b"Content-Length: 10\r\n\r\n123456789",
    "length, much": b"Content-Length: 2000000\r\n\r\n" + b"x" * 1_000_000,
    "chunked, nothing": b"Transfer-Encoding: chunked\r\n\r\n",
    "chunked, in a size": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1",
    "chunked, in a chunk": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
    "chunked, between chunks": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "chunked, before the last line": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    "chunked, many": b"Transfer-Encoding: chunked\r\n\r\n" + b"5\r\nhello\r\n" * 10_000,
}


@pytest.mark.parametrize("kind", CUT_OFF)
@pytest.mark.parametrize("way", ["half closed", "hung up"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_body_that_is_cut_off_is_never_stored(
    server: Server, api: httpx.Client, path: str, kind: str, way: str, method: str
) -> None:
    if method == "POST":
        make(api, path)
    with until_gone(api), Raw(server) as raw:
        begin(raw, path, CUT_OFF[kind], method)
        if way == "half closed":
            raw.finish_sending()
            answer = answer_or_end(raw)
            if answer is not None:
                assert (answer.status, answer.code) == (400, "body_incomplete")
    if method == "POST":
        assert content(api, path) == b""
    else:
        assert api.head(path).status_code == 404


BROKEN = {
    "size": b"xyz\r\nhello\r\n0\r\n\r\n",
    "later size": b"5\r\nhello\r\n-1\r\n\r\n",
    "too long a size": b"5\r\nhello\r\nfffffffffffffffff\r\n\r\n",
    "no end of a chunk": b"5\r\nhelloworld\r\n0\r\n\r\n",
    "negative": b"-5\r\nhello\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_chunks_are_never_stored(server: Server, api: httpx.Client, path: str, kind: str) -> None:
    make(api, path)
    with until_gone(api), Raw(server) as raw:
        begin(raw, path, b"Transfer-Encoding: chunked\r\n\r\n" + BROKEN[kind])
        answer = answer_or_end(raw)
        if answer is not None:
            assert (answer.status, answer.code) == (400, "body_incomplete")
    assert content(api, path) == b""


def test_chunk_extensions_and_trailers_are_passed_over(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path)
    with Raw(server) as raw:
        body = b"5;name=value\r\nhello\r\n0\r\n\r\n"
        assert begin(raw, path, b"Transfer-Encoding: chunked\r\n\r\n" + body).answer().status == 204
    with Raw(server) as raw:
        body = b"6\r\n world\r\n0\r\nX-Trailer: x\r\nStream-Closed: true\r\n\r\n"
        answer = begin(raw, path, b"Trailer: X-Trailer\r\nTransfer-Encoding: chunked\r\n\r\n" + body).answer()
        assert answer.status == 204
        assert "stream-closed" not in answer.headers, "a trailer is no header"
        assert raw.ask("HEAD", path).answer(head=True).status == 200, "the connection goes on"
    assert content(api, path) == b"hello world"


@pytest.mark.parametrize(
    ("lines", "status", "code"),
    [
        (b"Transfer-Encoding: gzip, chunked", 501, "transfer_encoding_unsupported"),
        (b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 501, "transfer_encoding_unsupported"),
        (b"Transfer-Encoding: chunked\r\nContent-Encoding: gzip", 415, "content_encoding_unsupported"),
        (b"Content-Length: 15\r\nContent-Encoding: br", 415, "content_encoding_unsupported"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_an_encoded_body_is_not_taken_for_plain_bytes(
    server: Server, api: httpx.Client, path: str, lines: bytes, status: int, code: str, method: str
) -> None:
    if method == "POST":
        make(api, path)
    with Raw(server) as raw:
        answer = begin(raw, path, lines + b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n", method).answer()
        assert (answer.status, answer.code) == (status, code)
    if method == "POST":
        assert content(api, path) == b""
        with Raw(server) as raw:
            plain = b"Content-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello"
            assert begin(raw, path, plain).answer().status == 204
    else:
        assert api.head(path).status_code == 404


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: -1",
        b"Content-Length: +5",
        b"Content-Length: 5x",
        b"Content-Length: 99999999999999999999999",
        b"Transfer-Encoding: gzip",
        b"Content-Length: 5\r\nTransfer-Encoding: gzip",
    ],
)
def test_a_length_that_is_none_is_refused(server: Server, api: httpx.Client, path: str, lines: bytes) -> None:
    make(api, path)
    with Raw(server) as raw:
        begin(raw, path, lines + b"\r\n\r\nhello").finish_sending()
        answer = raw.answer()
        assert 400 <= answer.status < 500 or answer.status == 501
    assert content(api, path) == b""


@pytest.fixture(scope="module")
def strict(start_server: StartServer) -> Server:
    """A server that takes little and waits briefly."""
    return start_server(limits__append_bytes="1MiB", limits__inflight_bytes="2MiB", limits__body_timeout="1s")


@pytest.fixture(scope="module")
def strict_api(strict: Server) -> Iterator[httpx.Client]:
    """A client of it."""
    with httpx.Client(base_url=strict.url, timeout=60) as client:
        yield client


@pytest.mark.parametrize(
    "sent",
    [
        b"Content-Length: 10\r\n\r\n12345",
        b"Content-Length: 10\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_a_slow_body_is_given_up(strict: Server, path: str, sent: bytes) -> None:
    ask(strict, "PUT", path, body=b"")
    with Raw(strict) as raw:
        began = time.monotonic()
        answer = begin(raw, path, sent).answer()
        assert (answer.status, answer.code) == (408, "body_timeout")
        assert 0.7 < time.monotonic() - began < 25, "30 s are the default"
    assert ask(strict, "GET", path).body == b""


@pytest.mark.parametrize("pauses", [1, 3])
def test_a_small_body_that_comes_late_is_stored_once(tmp_path: Path, path: str, pauses: int) -> None:
    """The request is handed on without it after a while."""
    handed_on = threading.Event()

    def note(request: Request, match: Match) -> None:
        if request.method == "POST":
            handed_on.set()

    with (
        serving(tmp_path, before=note) as place,
        httpx.Client(base_url=f"http://{place.host}:{place.port}", timeout=60) as api,
        Raw(place) as raw,
    ):
        make(api, path)
        begin(raw, path, b"Content-Length: 9\r\n\r\n")
        assert handed_on.wait(60)
        for held, part in ((3, b"one"), (6, b"two"))[: pauses - 1]:
            raw.send(part)
            wait_until_held(api, held)
        raw.send(b"onetwoend"[3 * (pauses - 1) :])
        assert raw.answer().status == 204
        assert content(api, path) == b"onetwoend"


def test_a_body_that_trickles_is_given_up_too(strict: Server, path: str) -> None:
    ask(strict, "PUT", path, body=b"")
    with Raw(strict) as raw:
        begin(raw, path, b"Content-Length: 1000\r\n\r\n")
        until = time.monotonic() + 4
        try:
            while time.monotonic() < until:
                raw.send(b"x")
                time.sleep(0.1)
        except ConnectionError:
            pass
        answer = answer_or_end(raw)
        assert answer is None or answer.code == "body_timeout"
    assert ask(strict, "GET", path).body == b""


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_body_over_the_limit_is_refused(strict: Server, path: str, method: str) -> None:
    ask(strict, "PUT", path + "-POST", body=b"")
    name = f"{path}-{method}"
    with Raw(strict) as raw:
        answer = begin(raw, name, b"Content-Length: %d\r\n\r\n" % (MEBIBYTE + 1), method).answer()
        assert (answer.status, answer.code) == (413, "body_too_large")
    with Raw(strict) as raw:
        begin(raw, name, b"Transfer-Encoding: chunked\r\n\r\n", method)
        answered = False
        try:
            for _ in range(20):
                raw.send(b"20000\r\n" + b"x" * 0x20000 + b"\r\n")
            raw.send(b"0\r\n\r\n")
        except ConnectionError:
            answered = True
        late = answer_or_end(raw)
        assert answered or late is not None
        assert late is None or (late.status, late.code) == (413, "body_too_large")
    expected = (404, 200)[method == "POST"]
    assert ask(strict, "HEAD", name).status == expected
    full = ask(strict, "PUT", f"{name}-full", body=b"x" * MEBIBYTE)
    assert full.status == 201


@pytest.mark.one_node("measures the memory of one process")
def test_a_huge_body_does_not_grow_the_server(server: Server, api: httpx.Client, path: str) -> None:
    flush_all(api)
    before = server.rss_bytes
    with Raw(server) as raw:
        answer = begin(raw, path, b"Content-Length: 10000000000\r\n\r\n" + b"x" * MEBIBYTE).answer()
        assert (answer.status, answer.code) == (413, "body_too_large")
    with Raw(server) as raw:
        begin(raw, path, b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(200):
                raw.send(b"100000\r\n" + b"x" * MEBIBYTE + b"\r\n")
        except ConnectionError:
            pass
        late = answer_or_end(raw)
        assert late is None or (late.status, late.code) == (413, "body_too_large")
    assert server.rss_bytes - before < 100 * MEBIBYTE
    assert ask(server, "GET", path).status == 404


@pytest.fixture(scope="module")
def narrow(start_server: StartServer) -> Server:
    """A server that takes little, and waits as long as usual."""
    return start_server(limits__append_bytes="1MiB", limits__inflight_bytes="2MiB")


@pytest.fixture(scope="module")
def narrow_api(narrow: Server) -> Iterator[httpx.Client]:
    """A client of it."""
    with httpx.Client(base_url=narrow.url, timeout=60) as client:
        yield client


@pytest.mark.one_node("what it limits is what one process holds")
def test_bodies_share_an_allowance_that_is_given_back(
    narrow: Server, narrow_api: httpx.Client, path: str
) -> None:
    ask(narrow, "PUT", path, body=b"")
    half = MEBIBYTE - 100
    with Raw(narrow) as first, Raw(narrow) as second, Raw(narrow) as third:
        for raw in (first, second):
            begin(raw, path, b"Content-Length: %d\r\n\r\n" % half + b"x" * (half - 1))
        wait_until_held(narrow_api, 2 * (half - 1))
        answer = begin(third, path, b"Content-Length: 1000\r\n\r\n" + b"x" * 1000).answer()
        assert (answer.status, answer.code) == (503, "write_backpressure")
        assert int(answer.headers["retry-after"]) >= 1
        assert ask(narrow, "GET", path).status == 200, "reads go on"
        assert first.send(b"x").answer().status == 204
        second.close()
    wait_until_held(narrow_api, 0)
    for _ in range(10):
        small = ask(narrow, "POST", path, "Content-Type: application/octet-stream", body=b"y" * half)
        assert small.status == 204
    assert ask(narrow, "HEAD", path).headers["stream-next-offset"] == f"{half * 11:020d}"


@pytest.mark.one_node("what it limits is what one process holds")
def test_bodies_that_are_only_announced_keep_nobody_out(
    narrow: Server, narrow_api: httpx.Client, path: str
) -> None:
    ask(narrow, "PUT", path, body=b"")
    size = MEBIBYTE - 8
    idle = [begin(Raw(narrow), path, b"Content-Length: %d\r\n\r\nx" % size) for _ in range(8)]
    wait_until_held(narrow_api, 8)
    full = ask(narrow, "POST", path, "Content-Type: application/octet-stream", body=b"x" * MEBIBYTE)
    assert full.status == 204
    for raw in idle:
        raw.close()


@pytest.mark.one_node("what it limits is what one process holds")
@pytest.mark.parametrize("ending", ["timeout", "cut off", "chunked cut off", "chunked too large", "refused"])
def test_the_allowance_comes_back_however_a_body_ends(
    strict: Server, strict_api: httpx.Client, path: str, ending: str
) -> None:
    ask(strict, "PUT", path, body=b"")
    size = MEBIBYTE - 100
    for _ in range(2 if ending == "timeout" else 6):
        with until_gone(strict_api), Raw(strict) as raw:
            if ending == "timeout":
                assert begin(raw, path, b"Content-Length: %d\r\n\r\n" % size).answer().status == 408
            elif ending == "cut off":
                begin(raw, path, b"Content-Length: %d\r\n\r\nxyz" % size)
            elif ending == "chunked cut off":
                begin(raw, path, b"Transfer-Encoding: chunked\r\n\r\n80000\r\n" + b"x" * 0x80000)
            elif ending == "chunked too large":
                begin(raw, path, b"Transfer-Encoding: chunked\r\n\r\n110000\r\n" + b"x" * 0x110000)
                answer_or_end(raw)
            else:
                refusal = begin(
                    raw, path + "-no", b"Content-Length: %d\r\n\r\n" % size + b"x" * size
                ).answer()
                assert refusal.status == 404
    wait_until_held(strict_api, 0)
    lines = ["Content-Type: application/octet-stream"]
    with Raw(strict) as held:
        begin(held, path, b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % size)
        assert held.answer().status == 100
        assert ask(strict, "POST", path, *lines, body=b"x" * size).status == 204


def test_expect_continue_is_answered_before_the_body(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path)
    with Raw(server) as raw:
        begin(raw, path, b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert raw.answer().status == 100
        assert raw.send(b"hello").answer().status == 204
    with Raw(server) as raw:
        begin(raw, path, b"Expect: 100-continue\r\nContent-Length: 10000000000\r\n\r\n")
        assert raw.answer().status == 413
    assert content(api, path) == b"hello"


def test_a_refused_request_does_not_leave_its_body_behind(
    server: Server, api: httpx.Client, path: str
) -> None:
    """A body that nobody read is not taken for the next request on the connection."""
    make(api, path)
    smuggled = b"POST %b HTTP/1.1\r\nHost: test\r\nContent-Type: application/octet-stream\r\n" % path.encode()
    smuggled += b"Content-Length: 3\r\n\r\nbad"
    for line in (b"Stream-Seq: a\r\nStream-Seq: a", b"Producer-Id: x"):
        with Raw(server) as raw:
            begin(raw, path, line + b"\r\nContent-Length: %d\r\n\r\n" % len(smuggled) + smuggled)
            assert raw.answer().status == 400
            raw.finish_sending()
            raw.until_closed()
    assert content(api, path) == b""


def test_the_largest_body_arrives_whole(server: Server, api: httpx.Client, path: str) -> None:
    body = bytes(range(256)) * (32 * MEBIBYTE // 256)
    answer = api.put(path, headers=BINARY, content=body)
    assert answer.status_code == 201
    tail = api.get(path, params={"offset": str(len(body) - 5)})
    assert tail.content == body[-5:]
    over = api.post(path, headers=BINARY, content=body + b"x")
    assert over.status_code == 413
