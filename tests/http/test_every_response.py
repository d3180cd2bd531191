"""What every response has, whatever it is: security and CORS headers, one shape of errors."""

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.raw import Answer, Raw, ask
from tests.http.wire import CLOSED, TEXT, make
from tests.server import Server

EXPOSED = {
    "etag",
    "location",
    "stream-next-offset",
    "stream-cursor",
    "stream-up-to-date",
    "stream-closed",
    "stream-ttl",
    "stream-expires-at",
    "stream-incarnation",
    "stream-sse-data-encoding",
    "producer-epoch",
    "producer-seq",
    "producer-expected-seq",
    "producer-received-seq",
}
ALLOWED = {
    "content-type",
    "if-match",
    "if-none-match",
    "last-event-id",
    "stream-seq",
    "stream-ttl",
    "stream-expires-at",
    "stream-closed",
    "stream-incarnation",
    "stream-forked-from",
    "stream-fork-offset",
    "stream-fork-sub-offset",
    "producer-id",
    "producer-epoch",
    "producer-seq",
}
METHODS = {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"}


def words(header: str) -> set[str]:
    return {word.strip() for word in header.split(",")}


def check_common(headers: dict[str, str], origin: str | None = "*") -> None:
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "cross-origin"
    assert headers.get("access-control-allow-origin") == origin
    if origin is not None:
        assert words(headers["access-control-expose-headers"].lower()) >= EXPOSED
    if origin != "*":
        assert headers["vary"].lower() == "origin"


REQUESTS = {
    "created": ("PUT", "{path}-new", ["Content-Type: text/plain"], b"x", 201),
    "exists": ("PUT", "{path}", ["Content-Type: text/plain"], b"", 200),
    "differs": ("PUT", "{path}", [], b"", 409),
    "appended": ("POST", "{path}", ["Content-Type: text/plain"], b"x", 204),
    "empty": ("POST", "{path}", ["Content-Type: text/plain"], b"", 400),
    "condition": ("POST", "{path}", ["Content-Type: text/plain", 'If-Match: "x"'], b"x", 412),
    "read": ("GET", "{path}", [], None, 200),
    "not modified": ("GET", "{path}", ["If-None-Match: *"], None, 304),
    "nothing": ("GET", "{path}?offset=now&live=long-poll&timeout=0", [], None, 204),
    "bad offset": ("GET", "{path}?offset=", [], None, 400),
    "head": ("HEAD", "{path}", [], None, 200),
    "head missing": ("HEAD", "{path}-missing", [], None, 404),
    "missing": ("GET", "{path}-missing", [], None, 404),
    "no bucket": ("GET", "/no-such-bucket/x", [], None, 404),
    "root": ("GET", "/", [], None, 404),
    "method": ("PATCH", "{path}", [], None, 405),
    "bad name": ("GET", "/v1/stream/%FF", [], None, 400),
    "twice": ("GET", "{path}", ["Stream-Seq: a", "Stream-Seq: b"], None, 400),
    "too large": ("PUT", "{path}-x", [], None, 413),
    "preflight": ("OPTIONS", "{path}", [], None, 204),
    "health": ("GET", "/healthz", [], None, 200),
    "ready": ("GET", "/readyz/local", [], None, 200),
    "deleted": ("DELETE", "{path}", [], None, 204),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_every_response_has_the_security_and_cors_headers(
    server: Server, api: httpx.Client, path: str, name: str
) -> None:
    make(api, path, TEXT, b"hello")
    method, template, lines, body, status = REQUESTS[name]
    if name == "too large":
        lines = ["Content-Length: 10000000000"]
    answer = ask(server, method, template.format(path=path), "Origin: https://a.example", *lines, body=body)
    assert answer.status == status
    check_common(answer.headers)
    if status >= 400 and method != "HEAD":
        assert answer.code


def test_events_have_them_too(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path, {**TEXT, **CLOSED}, b"hello")
    with Raw(server) as raw:
        status, headers = raw.ask("GET", f"{path}?offset=-1&live=sse").begin()
        assert status == 200
        check_common(headers)


@pytest.mark.parametrize(
    "path", ["/", "/v1/stream/x", "/bucket", "/bucket/x", "/a/b/c", "/healthz", "/%FF", "*"]
)
def test_a_preflight_is_answered_on_any_path(server: Server, path: str) -> None:
    answer = ask(
        server,
        "OPTIONS",
        path,
        "Origin: https://a.example",
        "Access-Control-Request-Method: PUT",
        "Access-Control-Request-Headers: stream-ttl",
    )
    assert answer.status == 204
    check_common(answer.headers)
    assert words(answer.headers["access-control-allow-methods"]) >= METHODS
    assert words(answer.headers["access-control-allow-headers"].lower()) >= ALLOWED
    assert int(answer.headers["access-control-max-age"]) > 0


def test_only_configured_origins_are_let_in(start_server: StartServer, path: str) -> None:
    server = start_server(cors__origins="https://a.example,https://b.example")
    for method in ("OPTIONS", "GET"):
        for origin in ("https://a.example", "https://b.example"):
            check_common(ask(server, method, path, f"Origin: {origin}").headers, origin)
        for line in (
            ["Origin: https://c.example"],
            ["Origin: null"],
            ["Origin: *"],
            ["Origin: https://é"],
            [],
        ):
            check_common(ask(server, method, path, *line).headers, None)


CLUSTER = [
    "/cluster/status",
    "/cluster/buckets",
    "/cluster/plan?bucket=none",
    "/cluster/nothing",
    "/cluster/",
]


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize("path", CLUSTER)
def test_the_operators_routes_are_not_for_just_any_page(server: Server, path: str, method: str) -> None:
    for lines in (["Origin: https://a.example"], ["Origin: *"], []):
        check_common(ask(server, method, path, *lines).headers, None)


def test_a_page_whose_origin_is_listed_may_use_the_operators_routes(start_server: StartServer) -> None:
    for origins in ("https://a.example", "*,https://a.example"):
        server = start_server(cors__origins=origins)
        for method in ("GET", "OPTIONS"):
            answer = ask(server, method, "/cluster/status", "Origin: https://a.example")
            check_common(answer.headers, "https://a.example")
            check_common(ask(server, method, "/cluster/status", "Origin: https://b.example").headers, None)


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/v1/stream/x", METHODS),
        ("/bucket/x", METHODS),
        ("/bucket", {"GET", "PUT", "DELETE", "OPTIONS"}),
        ("/healthz", {"GET", "HEAD", "OPTIONS"}),
        ("/readyz/local", {"GET", "HEAD", "OPTIONS"}),
    ],
)
def test_a_method_that_is_not_possible_is_told_what_is(server: Server, path: str, allow: set[str]) -> None:
    for method in ("PATCH", "TRACE", "PROPFIND"):
        answer = ask(server, method, path)
        assert (answer.status, answer.code) == (405, "method_not_allowed")
        assert words(answer.headers["allow"]) == allow


@pytest.mark.parametrize("method", ["get", "X", "METHOD"])
def test_a_method_that_does_not_exist_is_not_implemented(server: Server, method: str) -> None:
    answer = ask(server, method, "/healthz")
    assert (answer.status, answer.code) == (501, "method_unknown")
    check_common(answer.headers, "*")


@pytest.mark.parametrize("path", ["/", "/cluster", "/cluster/nothing", "/admin"])
def test_nothing_is_there(server: Server, path: str) -> None:
    answer = ask(server, "GET", path)
    assert (answer.status, answer.code) == (404, "route_not_found")


def test_health_is_json(server: Server) -> None:
    for path, body in (("/healthz", b'{"status":"ok"}'), ("/readyz/local", b'{"ready":true}')):
        answer = ask(server, "GET", path)
        assert (answer.status, answer.body) == (200, body)
        assert answer.headers["content-type"] == "application/json"
        assert ask(server, "HEAD", path).status == 200


def refusals(server: Server, path: str) -> list[tuple[str, Answer]]:
    """A header of ours that is not as it should be, in every request."""
    wrong = [
        b"Stream-Seq: \xc3\xa9",
        b"Producer-Id: \xff",
        b"Stream-Seq: a\r\nStream-Seq: a",
        b"If-None-Match: \xe9",
    ]
    methods = ("GET", "HEAD", "PUT", "POST", "DELETE")
    return [(method, ask(server, method, path, line)) for method in methods for line in wrong]


def test_our_headers_are_ascii_and_sent_once(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"hello")
    for method, answer in refusals(server, path):
        assert answer.status == 400, method
        assert method == "HEAD" or answer.code == "header_invalid"
    assert api.get(path).content == b"hello"


@pytest.mark.parametrize(
    "name",
    [
        "Content-Type",
        "Stream-Closed",
        "Stream-TTL",
        "Stream-Expires-At",
        "Stream-Incarnation",
        "Stream-Forked-From",
        "Stream-Fork-Offset",
        "Stream-Fork-Sub-Offset",
        "Producer-Id",
        "Producer-Epoch",
        "Producer-Seq",
        "Last-Event-ID",
    ],
)
def test_a_header_sent_twice_is_refused_even_with_the_same_value(
    server: Server, path: str, name: str
) -> None:
    answer = ask(server, "PUT", path, f"{name}: 0", f"{name.lower()}: 0", body=b"")
    assert (answer.status, answer.code) == (400, "header_invalid")


def test_other_peoples_headers_may_be_anything(server: Server, path: str) -> None:
    answer = ask(server, "PUT", path, b"X-Other: \xff\xfe", "X-Twice: a", "X-Twice: b", body=b"")
    assert answer.status == 201


def test_a_head_request_never_gets_a_body(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"hello")
    with Raw(server) as raw:
        for target, status in ((path, 200), (path + "-no", 404), ("/v1/stream/%FF", 400), ("/", 404)):
            assert raw.ask("HEAD", target).answer(head=True).status == status
        assert raw.ask("GET", path).answer().body == b"hello"
