"""`Location`: an absolute URL, and only ever on a host that can be one."""

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.raw import Answer, Raw
from tests.http.wire import TEXT, make, offset
from tests.server import Server

VALID_HOSTS = [
    "example.org",
    "example.org:8080",
    "EXAMPLE_1.org.",
    "xn--bcher-kva.example",
    "a%20b",
    "127.0.0.1:65535",
    "[::1]",
    "[2001:db8::1]:443",
    "[::ffff:192.0.2.1]:1",
]
INVALID_HOSTS = [
    "",
    "a b",
    "example.org/evil",
    "example.org?x",
    "example.org#x",
    "user@example.org",
    "example.org:",
    "example.org:x",
    "example.org:65536",
    "example.org:1:2",
    ":80",
    "::1",
    "[::1",
    "[::g]",
    "[fe80::1%25eth0]",
    "[example.org]",
    "[::1]x",
    'a"b',
    "a<b>",
    "a\\b",
    "%zz",
    "a%",
    "x" * 256,
]


@pytest.mark.parametrize("host", VALID_HOSTS)
def test_a_valid_host_is_in_the_location(server: Server, path: str, host: str) -> None:
    answer = ask_host(server, path, f"Host: {host}")
    assert answer.headers["location"] == f"http://{host}{path}"


@pytest.mark.one_node("each node has an address of its own")
@pytest.mark.parametrize("host", INVALID_HOSTS)
def test_an_invalid_host_is_never_in_the_location(server: Server, path: str, host: str) -> None:
    answer = ask_host(server, path, f"Host: {host}")
    assert answer.headers["location"] == f"{server.url}{path}"


@pytest.mark.one_node("each node has an address of its own")
def test_a_host_that_is_not_ascii_or_sent_twice_is_never_in_the_location(server: Server, path: str) -> None:
    for number, lines in enumerate((["Host: \u00e9.example"], ["Host: a", "Host: b"])):
        answer = ask_host(server, f"{path}-{number}", *lines)
        assert answer.status == 400 or answer.headers["location"] == f"{server.url}{path}-{number}"


@pytest.mark.one_node("each node has an address of its own")
def test_an_invalid_host_is_not_in_a_redirect_either(server: Server, api: httpx.Client, path: str) -> None:
    name = path.rpartition("/")[2]
    make(api, path, TEXT, b"hello")
    snapshot = f"/_default/{name}/snapshot"
    assert api.put(f"{snapshot}/{offset(5)}", content=b"state").status_code == 204
    with Raw(server) as raw:
        answer = raw.send(f"GET {snapshot} HTTP/1.1\r\nHost: a/b\r\n\r\n".encode()).answer()
    assert (answer.status, answer.headers["location"]) == (307, f"{server.url}{snapshot}/{offset(5)}")


@pytest.mark.one_node("each node has an address of its own")
def test_an_advertised_address_stands_in_for_an_invalid_host(start_server: StartServer, path: str) -> None:
    server = start_server("--advertise", "streams.example.org:80")
    answer = ask_host(server, path, "Host: a b")
    assert answer.headers["location"] == f"http://streams.example.org:80{path}"


def ask_host(server: Server, path: str, *lines: str) -> Answer:
    """Create a stream with these header lines alone."""
    with Raw(server) as raw:
        return raw.send("\r\n".join((f"PUT {path} HTTP/1.1", *lines, "", "")).encode()).answer()
