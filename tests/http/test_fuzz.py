"""Requests that are almost right: never an internal error, never a hang, never a change when refused."""

import json
import re
from itertools import count

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.http.raw import Answer, Raw
from tests.http.wire import JSON, TEXT, make, post, producer
from tests.server import Server

_numbers = count()

NUMBERS = ["0", "1", "2", "-1", "+1", "01", "1_0", "1.0", "", " ", "x", "٣", str(2**53), str(2**64), "9" * 40]
OFFSETS = ["-1", "now", "0", "1", "3", "00000000000000000003", "0000000000000000_0000000000000003", *NUMBERS]
VALUES = {
    "Content-Type": ["text/plain", "application/json", "TEXT/PLAIN;x", ";", "/", "a" * 300, ""],
    "Stream-Closed": ["true", "TRUE", "false", ""],
    "Stream-TTL": ["3600", *NUMBERS],
    "Stream-Expires-At": [
        "2099-01-01T00:00:00Z",
        "2001-01-01T00:00:00Z",
        "9999-12-31T23:59:59-23:59",
        "x",
        "",
    ],
    "Stream-Seq": ["a", "b", "zz", "", "x" * 257],
    "Stream-Incarnation": ["{incarnation}", "1-0-1-1", "", "x"],
    "Stream-Forked-From": [
        "{path}",
        "{path}-json",
        "{path}-missing",
        "x",
        "/",
        "/bucket/x",
        "/v1/stream/%FF",
        "",
    ],
    "Stream-Fork-Offset": OFFSETS,
    "Stream-Fork-Sub-Offset": NUMBERS,
    "Producer-Id": ["writer", "other", "", "x" * 257],
    "Producer-Epoch": NUMBERS,
    "Producer-Seq": NUMBERS,
    "If-Match": ["*", "{etag}", '"x", {etag}', "W/{etag}", '"', ""],
    "If-None-Match": ["*", "{etag}", '"x", {etag}', "W/{etag}", '"', ""],
    "Last-Event-ID": OFFSETS,
    "Origin": ["https://a.example", "null", ""],
    "Host": ["", "x", "a b", "[::1]:80", "é"],
    "Expect": ["100-continue", "x"],
    "Range": ["bytes=0-1"],
}
PATHS = [
    "{path}",
    "{path}-json",
    "{path}-closed",
    "{path}-missing",
    "{path}/",
    "{path}/deeper",
    "{path}%00",
    "{path}%FF",
    "{path}/..",
    "/v1/stream/",
    "/v1/stream",
    "/bucket",
    "/bucket/x",
    "/bucket/x/y",
    "/healthz",
    "/readyz/local",
    "/metrics",
    "//",
    "/",
    "/%",
    "*",
]
BODIES = [b"", b"x", b"[]", b"[1,2]", b"{", b'{"a":1}', b"\xff", b"[" * 5000, b"x" * 100_000]

names = st.sampled_from(sorted(VALUES)) | st.from_regex(r"[A-Za-z-]{1,12}", fullmatch=True)
texts = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f"), max_size=20)


@st.composite
def header_lines(draw: st.DrawFn) -> list[str]:
    lines = []
    for _ in range(draw(st.integers(0, 5))):
        name = draw(names)
        if name.lower() in ("content-length", "transfer-encoding", "connection"):
            continue  # how a body ends is another test's business
        value = draw(st.sampled_from(VALUES[name]) if name in VALUES and draw(st.integers(0, 4)) else texts)
        lines.append(f"{name}: {value}")
    return lines


@st.composite
def queries(draw: st.DrawFn) -> str:
    pairs = []
    for _ in range(draw(st.integers(0, 4))):
        name = draw(
            st.sampled_from(["offset", "live", "max_bytes", "cursor", "timeout_ms", "timeout", "x", ""])
        )
        known = {
            "offset": OFFSETS,
            "live": ["long-poll", "sse", "x", ""],
            "timeout": ["0"],
            "timeout_ms": ["1", "x"],
        }
        value = draw(
            st.sampled_from(known.get(name, NUMBERS)) | texts.map(lambda text: text.replace(" ", "+"))
        )
        pairs.append(f"{name}={value}")
    return "?" + "&".join(pairs) if pairs else ""


methods = st.sampled_from(["GET", "PUT", "POST"]) | st.sampled_from(
    ["HEAD", "DELETE", "OPTIONS", "PATCH", "get"]
)
targets = st.sampled_from(PATHS[:4]) | st.sampled_from(PATHS)


def snapshot(api: httpx.Client, path: str) -> list[object]:
    """All that can be seen of the streams."""
    seen: list[object] = []
    for name in (path, f"{path}-json", f"{path}-closed", f"{path}-missing"):
        head, read = api.head(name), api.get(name)
        ours = {key: value for key, value in head.headers.items() if key.startswith(("stream-", "etag"))}
        seen.append((name, head.status_code, ours, read.status_code, read.content))
    return seen


def check(answer: Answer, method: str) -> None:
    """Whatever it is, it is an answer that we would give."""
    assert answer.status < 500 or answer.status in (501, 503)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    if answer.status >= 400 and method != "HEAD":
        error = json.loads(answer.body)["error"]
        assert re.fullmatch("[a-z_]+", error["code"])
        assert error["message"]
        assert error["code"] != "internal_error"
    if answer.status == 405:
        assert answer.headers["allow"]


@settings(max_examples=150, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
@given(
    method=methods,
    target=targets,
    query=queries(),
    lines=header_lines(),
    body=st.sampled_from(BODIES) | st.binary(max_size=50),
    chunked=st.booleans(),
)
def test_no_request_breaks_the_server_or_changes_a_stream_when_refused(
    server: Server,
    api: httpx.Client,
    method: str,
    target: str,
    query: str,
    lines: list[str],
    body: bytes,
    chunked: bool,
) -> None:
    path = f"/v1/stream/fuzz-{next(_numbers)}"
    made = make(api, path, {**TEXT, **producer(0), "stream-seq": "b"}, b"hello")
    make(api, f"{path}-json", JSON, b"[1,2]")
    make(api, f"{path}-closed", {**TEXT, "stream-closed": "true"}, b"bye")
    post(api, path, b"!", {**TEXT, **producer(1)}, status=200)
    known = {
        "path": path,
        "incarnation": made.headers["stream-incarnation"],
        "etag": api.head(path).headers["etag"],
    }
    before = snapshot(api, path)
    answer = exchange(
        server, method, fill(target, known) + query, [fill(line, known) for line in lines], body, chunked
    )
    check(answer, method)
    if answer.status >= 400 or method in ("GET", "HEAD", "OPTIONS"):
        assert snapshot(api, path) == before
    assert server.complaints() == []


def fill(text: str, known: dict[str, str]) -> str:
    """Put what is known of the stream into a template."""
    for name, value in known.items():
        text = text.replace("{" + name + "}", value)
    return text


def exchange(
    server: Server, method: str, target: str, lines: list[str], body: bytes, chunked: bool
) -> Answer:
    """Send a request, whatever it is, and take what comes back; events are only begun."""
    head = [f"{method} {target} HTTP/1.1", *lines]
    if not any(line.startswith("Host:") for line in lines):
        head.append("Host: test")
    if chunked:
        head.append("Transfer-Encoding: chunked")
        sent = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
    else:
        head.append(f"Content-Length: {len(body)}")
        sent = body
    with Raw(server) as raw:
        raw.send("\r\n".join(head).encode() + b"\r\n\r\n" + sent)
        while True:
            status, headers = raw.begin()
            if status >= 200:
                break
        if headers.get("content-type") == "text/event-stream" or method == "HEAD":
            return Answer(status, headers, b"")
        if status in (204, 304) or headers.get("content-length") == "0":
            return Answer(status, headers, b"")
        length = int(headers.get("content-length", "0"))
        return Answer(status, headers, raw._exactly(length))
