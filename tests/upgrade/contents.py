"""What the fixtures hold, and everything that a client can see of it.

`make_fixture.py` runs all of this against the old server, and the test against the present one: so it speaks
plain HTTP and imports nothing of Ursula.
"""

import hashlib
import json
import re
from typing import Any

import httpx

TEXT = {"content-type": "text/plain"}
JSON = {"content-type": "application/json"}
BINARY = {"content-type": "application/octet-stream"}
CLOSED = {"stream-closed": "true"}
LARGE = 1_200_000
"""Bytes of a body that is an object of its own in the store."""

FLUSHES = 18
"""More than it takes until small segments are merged."""

FEED_POSITIONS = [f"{(1 << 40) + count:020d}" for count in (1, 20, 60, 110)]
"""In the log, which begins at 1 << 40: within the first flush, in merged segments, in the log alone."""

RECORDED = re.compile(r"stream-(?!cursor).+|producer-.+|etag|content-type|content-length|content-range")
SHOWN_BYTES_MAX = 2000

Answer = dict[str, Any]


def producer(name: str, seq: int, epoch: int = 0) -> dict[str, str]:
    """The headers of a producer's request."""
    return {"producer-id": name, "producer-epoch": str(epoch), "producer-seq": str(seq)}


def write_to_the_store(api: httpx.Client) -> None:
    """Fill an empty server with what it flushes."""
    _write_streams(api)
    _flush(api)
    for number in range(FLUSHES):
        _do(api, "POST", "/shop/orders", JSON | producer("till", 1 + number), b'[{"order":%d},"x"]' % number)
        _do(api, "POST", "/shop/ticks", BINARY, b"%04d" % number * 50)
        _do(api, "POST", "/v1/stream/flat/deep/path", TEXT, b"line %d\n" % number)
        if number == 6:
            _change_streams(api)
        _flush(api)


def _write_streams(api: httpx.Client) -> None:
    for bucket in ("/shop", "/empty", "/gone"):
        _do(api, "PUT", bucket)
    _do(api, "PUT", "/shop/orders", JSON | {"stream-attrs": '{"title":"Orders","metadata":{"a":[1,2]}}'})
    _do(api, "POST", "/shop/orders", JSON | producer("till", 0), b'[{"order":"first"},2,null]')
    _do(api, "PUT", "/shop/ticks", BINARY, b"begin")
    _do(api, "PUT", "/shop/closed", TEXT | CLOSED, b"all of it")
    _do(api, "PUT", "/shop/nothing", TEXT)
    _do(api, "PUT", "/shop/window", TEXT | {"stream-ttl": "864000"}, b"for ten days")
    _do(api, "PUT", "/shop/expires", TEXT | {"stream-expires-at": "2126-01-01T00:00:00Z"}, b"for a century")
    _do(api, "PUT", "/shop/large", BINARY, _large(b"0123456789"))
    _do(api, "POST", "/shop/large", BINARY, b"small after it")
    frames = b"".join(len(part).to_bytes(4, "big") + part for part in (b"one", b"two", b"three"))
    _do(api, "PUT", "/shop/batch", BINARY)
    _do(api, "POST", "/shop/batch/append-batch", BINARY, frames)
    _do(api, "PUT", "/shop/board", JSON, b'[{"add":1},{"add":2},{"add":3}]')
    _do(api, "PUT", "/shop/source", TEXT, b"abcdef")
    _do(api, "PUT", "/shop/fork", {"stream-forked-from": "/shop/source", "stream-fork-offset": "4"}, b"own")
    _do(api, "PUT", "/shop/deleted", TEXT | {"stream-attrs": '{"title":"back"}'}, b"undelete me")
    _do(api, "PUT", "/v1/stream/single", TEXT, "umläut ☃".encode())
    _do(api, "PUT", "/v1/stream/flat/deep/path", TEXT, b"")
    _do(api, "PUT", "/gone/soon", TEXT, b"x")


def _change_streams(api: httpx.Client) -> None:
    _do(api, "PUT", "/shop/board/snapshot/18", JSON, b'{"sum":3}')
    _do(api, "PUT", "/shop/ticks/snapshot/205?trim=false", TEXT, b"state of the ticks")
    _do(api, "PUT", "/shop/ticks/attrs", JSON, b'{"title":"Ticks"}')
    _do(api, "DELETE", "/shop/source")
    _do(api, "DELETE", "/shop/deleted")
    _do(api, "DELETE", "/gone/soon")
    _do(api, "DELETE", "/gone")


def write_to_the_log(api: httpx.Client) -> None:
    """Add what only the log has when the server ends."""
    _do(api, "POST", "/shop/orders", JSON | producer("till", 1 + FLUSHES), b'["only in the log"]')
    _do(api, "POST", "/shop/ticks", BINARY, b"only in the log")
    _do(api, "POST", "/shop/large", BINARY, _large(b"abcdefghij"))
    _do(api, "PUT", "/shop/new", TEXT, b"never flushed")
    _do(api, "PUT", "/shop/new-fork", {"stream-forked-from": "/shop/ticks", "stream-fork-offset": "205"})
    _do(api, "POST", "/shop/new-fork", BINARY | producer("other", 0, 3), b"!")
    _do(api, "PUT", "/shop/new-closed", JSON, b"[1]")
    _do(api, "POST", "/shop/new-closed", JSON | CLOSED, b"[2]")
    _do(api, "PUT", "/shop/closed/attrs", JSON, b'{"metadata":{"late":true}}')
    _do(api, "PUT", "/shop/new-deleted", TEXT, b"gone before it was flushed")
    _do(api, "DELETE", "/shop/new-deleted")


def read(api: httpx.Client) -> dict[str, Answer]:
    """Every answer that only reads, by its request."""
    found: dict[str, Answer] = {}

    def ask(method: str, url: str) -> Answer:
        found[f"{method} {url}"] = answer = _seen(api.request(method, url))
        return answer

    buckets = api.get("/cluster/buckets").json()
    found["GET /cluster/buckets"] = {"status": 200, "body": json.dumps(buckets)}
    for bucket in ("shop", "empty", "gone", "flat", "_default"):
        ask("GET", f"/{bucket}")
        found[f"feed of {bucket}"] = _pages(api, f"/{bucket}", "-1", "max_bytes=2000")
        ask("GET", f"/{bucket}/streams")
        ask("GET", f"/{bucket}/streams?prefix=new&limit=2")
        listed = api.get(f"/{bucket}/streams").json().get("streams", [])
        for stream in [one["stream_id"] for one in listed]:
            is_flat = bucket in ("flat", "_default")
            path = f"/v1/stream/{bucket}/{stream}" if is_flat else f"/{bucket}/{stream}"
            path = path.replace("/_default", "")
            found[f"pages of {path}"] = _pages(api, path, "-1", "max_bytes=300000")
            _read_stream(ask, path, is_flat)
    for position in FEED_POSITIONS:
        found[f"feed of shop after {position}"] = _pages(api, "/shop", position, "max_bytes=100000")
    for stream in ("source", "deleted", "new-deleted", "never"):
        ask("HEAD", f"/shop/{stream}")
        ask("GET", f"/shop/{stream}")
    return found


def _read_stream(ask: Any, path: str, is_flat: bool) -> None:
    head = ask("HEAD", path)
    tail = int(head["headers"]["stream-next-offset"])
    for place in (0, 1, tail // 2, tail):
        ask("GET", f"{path}?offset={place}")
    ask("GET", f"{path}?offset={tail}&live=long-poll&timeout=0")
    if "stream-record-next" in head["headers"]:
        last = int(head["headers"]["stream-record-next"])
        for record in (0, last // 2, last):
            ask("GET", f"{path}?record={record}")
    if not is_flat:
        ask("GET", f"{path}/attrs")
        ask("GET", f"{path}/snapshot")
        ask("GET", f"{path}/bootstrap")
        snapshot = head["headers"].get("stream-snapshot-offset", "none")
        if snapshot != "none":
            ask("GET", f"{path}/snapshot/{snapshot}")


def _pages(api: httpx.Client, path: str, after: str, query: str) -> Answer:
    """What a reader gets page by page, however much there is on a page."""
    body = b""
    while True:
        page = api.get(f"{path}?offset={after}&{query}")
        body += page.content
        if page.status_code != 200 or "stream-up-to-date" in page.headers:
            return _seen(page, body)
        if page.headers["stream-next-offset"] == after:
            raise RuntimeError(f"a page of {path} leads nowhere")
        after = page.headers["stream-next-offset"]


def change(api: httpx.Client) -> list[Answer]:
    """What some requests come to that depend on what was written before; they change it."""
    last = 1 + FLUSHES
    requests: list[tuple[str, str, dict[str, str], bytes]] = [
        ("POST", "/shop/orders", JSON | producer("till", last), b'["only in the log"]'),  # a repeat
        ("POST", "/shop/orders", JSON | producer("till", last - 3), b'["an old repeat"]'),
        ("POST", "/shop/orders", JSON | producer("till", last + 2), b'["a gap"]'),
        ("POST", "/shop/orders", JSON | producer("till", last + 1), b'["the next"]'),
        ("POST", "/shop/new-fork", BINARY | producer("other", 0, 2), b"an old epoch"),
        ("POST", "/shop/new-fork", BINARY | producer("other", 1, 3), b"the next"),
        ("POST", "/shop/closed", TEXT, b"too late"),
        ("PUT", "/shop/window", TEXT | {"stream-ttl": "864000"}, b""),  # it is there
        ("PUT", "/shop/window", TEXT | {"stream-ttl": "1"}, b""),
        ("POST", "/cluster/undelete", JSON, b'{"bucket":"shop","stream":"deleted"}'),
        ("GET", "/shop/deleted", {}, b""),
        ("GET", "/shop/deleted/attrs", {}, b""),
        ("POST", "/cluster/undelete", JSON, b'{"bucket":"shop","stream":"new-deleted"}'),
        ("GET", "/shop/new-deleted", {}, b""),
        ("DELETE", "/shop/fork", {}, b""),
        ("HEAD", "/shop/source", {}, b""),  # nobody needs it any more
        ("PUT", "/shop/board/snapshot/9", JSON, b"{}"),  # older than the one that is there
        ("PUT", "/shop/ticks/retention/205", {}, b""),
        ("GET", "/shop/ticks?offset=0", {}, b""),
        ("DELETE", "/empty", {}, b""),
    ]
    return [
        {"request": f"{method} {path}"} | _seen(api.request(method, path, headers=headers, content=body))
        for method, path, headers, body in requests
    ]


def _seen(answer: httpx.Response, pages: bytes | None = None) -> Answer:
    """What counts of an answer: not the words of an error, nor a boundary, which is random."""
    body, headers = answer.content if pages is None else pages, dict(answer.headers)
    kind, _, boundary = headers.get("content-type", "").partition("; boundary=")
    if boundary:
        headers["content-type"] = kind
        body = body.replace(boundary.encode(), b"boundary")
    if body.startswith(b'{"error":'):
        error = json.loads(body)
        del error["error"]["message"]
        body = json.dumps(error).encode()
    if body != answer.content:
        headers.pop("content-length", None)
    found: Answer = {
        "status": answer.status_code,
        "headers": {name: headers[name] for name in sorted(headers) if RECORDED.fullmatch(name)},
    }
    try:
        shown = body.decode()
    except UnicodeDecodeError:
        shown = None
    if shown is None or len(body) > SHOWN_BYTES_MAX:
        found["body_bytes"], found["body_sha256"] = len(body), hashlib.sha256(body).hexdigest()
    elif shown:
        found["body"] = shown
    return found


def _large(line: bytes) -> bytes:
    return line * (LARGE // len(line))


def _flush(api: httpx.Client) -> None:
    _do(api, "POST", "/cluster/flush")


def _do(
    api: httpx.Client, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b""
) -> None:
    answer = api.request(method, path, headers=headers, content=body)
    if not answer.is_success:
        raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text}")
