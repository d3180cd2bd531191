"""HTTP/1.1 as a careful server speaks it: what is ambiguous is refused, and nothing of it is stored."""

import httpx
import pytest
from tests.http.raw import Raw, ask
from tests.http.wire import TEXT, content, make
from tests.server import Server

FOLLOWED_BY = (
    b"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\nsmuggled"
)

AMBIGUOUS = {
    "length and chunked": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "two lengths in one": b"Content-Length: 5, 5\r\n\r\nhello",
    "a length with a sign": b"Content-Length: +5\r\n\r\nhello",
    "a negative length": b"Content-Length: -5\r\n\r\nhello",
    "a length in hexadecimal": b"Content-Length: 0x5\r\n\r\nhello",
    "a length of another kind": b"Content-Length: five\r\n\r\nhello",
    "an endless length": b"Content-Length: " + b"9" * 40 + b"\r\n\r\nhello",
    "a folded header": b"Content-Length: 5\r\nX-A: a\r\n b\r\n\r\nhello",
    "a folded encoding": b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "space before the colon": b"Content-Length : 5\r\n\r\nhello",
    "space before the name": b"Content-Length: 0\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a name with a space": b"X A: a\r\nContent-Length: 5\r\n\r\nhello",
    "a bare line feed": b"X-A: a\nContent-Length: 5\r\n\r\nhello",
    "a bare line feed at the end": b"Content-Length: 5\r\n\nhello",
    "a bare carriage return": b"X-A: a\rb\r\nContent-Length: 5\r\n\r\nhello",
    "NUL in a value": b"X-A: a\x00b\r\nContent-Length: 5\r\n\r\nhello",
    "NUL in a name": b"X\x00A: a\r\nContent-Length: 5\r\n\r\nhello",
    "no name": b": a\r\nContent-Length: 5\r\n\r\nhello",
    "no colon": b"X-A\r\nContent-Length: 5\r\n\r\nhello",
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked, and another after it": b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "a quoted encoding": b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "a tab in the encoding": b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "a chunk size of another kind": b"Transfer-Encoding: chunked\r\n\r\nfive\r\nhello\r\n0\r\n\r\n",
    "a chunk size with a sign": b"Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
    "a chunk size with 0x": b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "an endless chunk size": b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 20 + b"\r\nhello\r\n0\r\n\r\n",
    "a chunk that is longer than it says": b"Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
    "a chunk size that ends in a line feed": b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    "a chunk that ends in a line feed": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n",
}


@pytest.mark.parametrize("kind", AMBIGUOUS)
def test_what_two_servers_could_understand_differently_is_refused(
    server: Server, api: httpx.Client, path: str, kind: str
) -> None:
    make(api, path, TEXT, b"before")
    with Raw(server) as raw:
        raw.send(f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\n".encode())
        raw.send(AMBIGUOUS[kind] + FOLLOWED_BY.replace(b"{path}", path.encode()))
        answer = raw.answer()
        assert answer.status in (400, 501), answer
        assert answer.code in ("malformed_request", "body_incomplete", "transfer_encoding_unsupported")
        assert raw.until_closed() == b"", "nothing after it is understood, or answered"
    assert content(api, path) == b"before"


def test_the_empty_lines_that_old_clients_send_between_requests_are_passed_over(
    server: Server, api: httpx.Client, path: str
) -> None:
    make(api, path, TEXT)
    with Raw(server) as raw:
        for _ in range(2):
            raw.ask("POST", path, "Content-Type: text/plain", body=b"x").send(b"\r\n\r\n")
            assert raw.answer().status == 204
    assert content(api, path) == b"xx"


@pytest.mark.parametrize("host", ["example.test", "example.test:8080", "127.0.0.1"])
@pytest.mark.parametrize("query", ["", "?offset=2"])
def test_a_target_may_be_a_whole_url(
    server: Server, api: httpx.Client, path: str, host: str, query: str
) -> None:
    make(api, path, TEXT, b"hello")
    answer = ask(server, "GET", f"http://{host}{path}{query}")
    assert (answer.status, answer.body) == (200, b"llo" if query else b"hello")


def test_a_url_without_a_path_is_the_root(server: Server) -> None:
    for target in ("http://example.test", "http://example.test?x=1", "http://example.test/"):
        answer = ask(server, "GET", target)
        assert (answer.status, answer.code) == (404, "route_not_found")


def test_a_head_may_have_many_headers_but_not_too_many(server: Server) -> None:
    for count, status in ((120, 200), (129, 431), (5000, 431)):
        with Raw(server) as raw:
            answer = raw.ask("GET", "/healthz", *(f"X-{number}: x" for number in range(count))).answer()
            assert answer.status == status
            if status == 431:
                assert answer.code == "head_too_large"
                assert raw.until_closed() == b""


@pytest.mark.parametrize("size", [60_000, 66_000, 200_000, 3_000_000])
@pytest.mark.parametrize("where", ["header", "target", "name"])
def test_a_head_may_be_large_but_not_too_large(server: Server, size: int, where: str) -> None:
    filler = b"x" * size
    sent = {
        "header": b"GET /healthz HTTP/1.1\r\nHost: t\r\nX-A: %b\r\n\r\n" % filler,
        "target": b"GET /healthz?%b HTTP/1.1\r\nHost: t\r\n\r\n" % filler,
        "name": b"GET /healthz HTTP/1.1\r\nHost: t\r\n%b: a\r\n\r\n" % filler,
    }[where]
    with Raw(server) as raw:
        raw.send(sent)
        answer = raw.answer()
        assert answer.status == (200 if size < 64 * 1024 else 431)


def test_an_unknown_expectation_is_not_waited_for(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path, TEXT)
    answer = ask(server, "POST", path, "Content-Type: text/plain", "Expect: the-unexpected", body=b"hello")
    assert answer.status in (204, 417)
    assert content(api, path) == (b"hello" if answer.status == 204 else b"")
