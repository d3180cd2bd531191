"""Heads that came before are looked up instead of parsed: nobody can tell."""

import httpx
import pytest
from tests.http.raw import Raw
from tests.http.wire import TEXT, content, make
from tests.server import Server

from ursula.http.wire.head import KNOWN_MAX, SEEN_ONCE_MAX, Head, KnownHeads
from ursula.http.wire.headers import RequestHeaders


def head_of(*lines: tuple[str, str], is_old: bool = False, keep_alive: bool = True) -> Head:
    headers = RequestHeaders()
    for name, value in lines:
        headers.add(name, value.encode())
    return Head("POST", "/v1/stream/s?a=b", headers, is_old, keep_alive)


LINE = b"POST /v1/stream/s?a=b HTTP/1.1\r\n"


def is_kept(head: Head, raw: bytes = LINE) -> bool:
    known = KnownHeads(100)
    for _ in range(3):
        known.note(raw, head)
    return known.find(raw) is head


def test_a_head_is_kept_when_it_comes_again() -> None:
    known, head = KnownHeads(100), head_of(("content-length", "5"))
    known.note(LINE, head)
    assert known.find(LINE) is None
    known.note(LINE, head)
    assert known.find(LINE) is head
    assert (head.path, head.query_string, head.body_length) == ("/v1/stream/s", "a=b", 5)


@pytest.mark.parametrize(
    "head",
    [
        head_of(("transfer-encoding", "chunked")),
        head_of(("expect", "100-continue"), ("content-length", "5")),
        head_of(("connection", "keep-alive")),
        head_of(("upgrade", "h2c")),
        head_of(("content-length", "101")),
        head_of(is_old=True),
        head_of(keep_alive=False),
    ],
)
def test_a_head_with_something_to_negotiate_is_not_kept(head: Head) -> None:
    assert not is_kept(head)


def test_a_long_head_is_not_kept() -> None:
    assert is_kept(head_of(), LINE.ljust(1024, b"x"))
    assert not is_kept(head_of(), LINE.ljust(1025, b"x"))


def test_there_is_a_limit_to_what_is_kept() -> None:
    known = KnownHeads(100)
    for number in range(3 * max(KNOWN_MAX, SEEN_ONCE_MAX)):
        for _ in range(2):
            known.note(b"GET /%d HTTP/1.1\r\nX: %d\r\n\r\n" % (number, number), head_of())
    for cache in (known._heads, known._blocks):
        assert len(cache.kept) <= KNOWN_MAX
        assert len(cache.seen_once) <= SEEN_ONCE_MAX


BLOCK = b"Host: t\r\nContent-Length: 5\r\n\r\n"


def knows_block() -> KnownHeads:
    known = KnownHeads(100)
    for number in range(2):
        known.note(b"POST /v1/stream/%d HTTP/1.1\r\n" % number + BLOCK, head_of(("content-length", "5")))
    return known


def test_known_header_lines_make_a_head_below_any_plain_request_line() -> None:
    head = knows_block().find(b"PUT /v1/stream/new%20one?x=1 HTTP/1.1\r\n" + BLOCK)
    assert head is not None
    assert (head.method, head.path, head.query_string) == ("PUT", "/v1/stream/new one", "x=1")
    assert head.body_length == 5


@pytest.mark.parametrize(
    "line",
    [
        b"POST /a HTTP/1.0",
        b"POST /a  HTTP/1.1",
        b"POST  /a HTTP/1.1",
        b"POST /a HTTP/1.1 ",
        b"post /a HTTP/1.1",
        b"CONNECT /a HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"GET http://a/b HTTP/1.1",
        b"POST /a#b HTTP/1.1",
        b"POST /a\tb HTTP/1.1",
        b"POST /\xc3\xa4 HTTP/1.1",
        b"POST /a\nX: y HTTP/1.1",
        b"POST /a",
        b"",
        b"POST /" + b"x" * 1024 + b" HTTP/1.1",
    ],
)
def test_any_other_request_line_is_left_to_the_parser(line: bytes) -> None:
    assert knows_block().find(line + b"\r\n" + BLOCK) is None


def test_requests_with_a_known_head_are_answered_like_others_however_they_arrive(
    server: Server, api: httpx.Client, path: str
) -> None:
    make(api, path, TEXT)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n".encode()
    )
    sent = 0
    with Raw(server) as raw:
        for _ in range(4):  # from the third time on it is known
            raw.send(head + b"%02d" % sent)
            assert raw.answer().headers["stream-next-offset"] == f"{2 * sent + 2:020d}"
            sent += 1
        for split in (10, len(head), len(head) + 1):  # in two pieces
            data = head + b"%02d" % sent
            raw.send(data[:split])
            assert raw.is_silent_for(0.05)
            raw.send(data[split:])
            assert raw.answer().headers["stream-next-offset"] == f"{2 * sent + 2:020d}"
            sent += 1
        raw.send(b"".join(head + b"%02d" % (sent + more) for more in range(40)))  # many in one piece
        for _ in range(40):
            sent += 1
            assert raw.answer().headers["stream-next-offset"] == f"{2 * sent:020d}"
        raw.send(b"\r\n" + head + b"%02d" % sent)  # after an empty line
        assert raw.answer().status == 204
        sent += 1
        raw.send(
            head + b"%02d" % sent + b"GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n"
        )  # with another behind it
        assert (raw.answer().status, raw.answer().status) == (204, 200)
        sent += 1
        raw.ask("GET", f"{path}?offset=now&live=long-poll&timeout=30")
        with Raw(server) as other:
            assert other.send(head + b"%02d" % sent).answer().status == 204
        assert raw.answer().body == b"%02d" % sent
        sent += 1
        raw.send(head + b"cut off"[:1]).finish_sending()
        answer = raw.answer()
        assert (answer.status, answer.code) == (400, "body_incomplete")
    assert content(api, path) == b"".join(b"%02d" % number for number in range(sent))


@pytest.mark.parametrize("empty", [b"\r\n", b"\r\n\r\n", b"\r\n\r\n\r\n\r\n"])
def test_empty_lines_before_a_request_never_stand_for_it(
    server: Server, api: httpx.Client, path: str, empty: bytes
) -> None:
    make(api, path, TEXT)
    request = f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx"
    with Raw(server) as raw:
        for _ in range(4):
            assert raw.send(empty + request.encode()).answer().status == 204
        raw.send(empty)
        assert raw.is_silent_for(0.2)
    with Raw(server) as raw:  # a request line is no header line, however often it came behind an empty one
        raw.send(b"GET /healthz HTTP/1.1\r\n" + request.encode())
        answer = raw.answer()
        assert (answer.status, answer.code) == (400, "malformed_request")
    assert content(api, path) == b"xxxx"
