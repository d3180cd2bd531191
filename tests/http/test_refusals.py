"""Every refused request, over all routes: its status, its code, one shape, and nothing changed."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.raw import Answer, CutOff, Raw, ask
from tests.http.signs import until_gone
from tests.http.surface import blob_files, frames, make_bucket, position_of
from tests.http.wire import BINARY, CLOSED, JSON, TEXT, make, offset, post, producer
from tests.server import Server

JSON_TYPE = "Content-Type: application/json"
BINARY_TYPE = "Content-Type: application/octet-stream"
TEXT_TYPE = "Content-Type: text/plain"
STREAMS = ("json", "text", "closed", "gone", "gone-fork", "trimmed", "kept", "empty")
PARTS = ("", "/attrs", "/snapshot", f"/snapshot/{offset(8)}", "/bootstrap")


class World:
    """A bucket with a stream in every state, and everything that can be seen of it."""

    def __init__(self, server: Server, api: httpx.Client) -> None:
        self.server = server
        self.api = api
        self.bucket = bucket = make_bucket(api)
        make(api, f"{bucket}/json", {**JSON, "stream-attrs": '{"title":"t"}'}, b"1")
        post(api, f"{bucket}/json", b"[2,3]", {**JSON, **producer(0, 1), "stream-seq": "m"}, 200)
        make(api, f"{bucket}/text", TEXT, b"hello")
        make(api, f"{bucket}/closed", {**JSON, **CLOSED}, b'"end"')
        make(api, f"{bucket}/gone", BINARY, b"shared")
        make(api, f"{bucket}/gone-fork", {"stream-forked-from": f"{bucket}/gone"})
        assert api.delete(f"{bucket}/gone").status_code == 204
        make(api, f"{bucket}/empty", BINARY)
        for name, query in (("trimmed", ""), ("kept", "?trim=false")):
            make(api, f"{bucket}/{name}", BINARY)
            for part in (b"aaaa", b"bbbb", b"cccc"):
                post(api, f"{bucket}/{name}", part)
            snapshot = f"{bucket}/{name}/snapshot/{offset(8)}{query}"
            assert api.put(snapshot, headers=TEXT, content=b"snap").status_code == 204

    def glance(self) -> list[Any]:
        """What tells cheaply whether anything changed: every change moves the feed, or is a bucket."""
        # By name: streams of other tests may expire meanwhile.
        buckets = [found["bucket_id"] for found in self.api.get("/cluster/buckets").json()["buckets"]]
        return [position_of(self.api, self.bucket), buckets, self.api.get(f"{self.bucket}/streams").content]

    def seen(self) -> dict[str, Any]:
        """Everything that a client can see: of the bucket and of its streams; and the files of the store."""
        seen: dict[str, Any] = {"glance": self.glance()}
        paths = [self.bucket]
        for name in STREAMS:
            seen[f"HEAD {name}"] = self._ask("HEAD", f"{self.bucket}/{name}")
            paths += [f"{self.bucket}/{name}{part}" for part in PARTS]
        for path in paths:
            seen[path] = self._ask("GET", path)
        seen["files"] = blob_files(self.server, self.bucket)
        return seen

    def is_as(self, before: dict[str, Any]) -> bool:
        """Whether nothing is different; refused blobs may take a moment to go."""
        give_up_at = time.monotonic() + 30
        while blob_files(self.server, self.bucket) != before["files"] and time.monotonic() < give_up_at:
            time.sleep(0.01)
        seen = self.seen()
        assert {name: value for name, value in seen.items() if value != before.get(name)} == {}
        return seen == before

    def _ask(self, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        answer = self.api.request(method, path, follow_redirects=False)
        headers = {name: value for name, value in answer.headers.items() if name != "date"}
        boundary = headers.pop("content-type", "").partition("boundary=")[2]
        return answer.status_code, headers, answer.content.replace(boundary.encode(), b"|")


@pytest.fixture(scope="module")
def world(server: Server, api: httpx.Client) -> World:
    return World(server, api)


class Case(NamedTuple):
    """A request that is refused. `path` is below the bucket, unless it begins with two slashes."""

    method: str
    path: str
    status: int
    code: str
    lines: tuple[str | bytes, ...] = ()
    body: bytes | None = None


def in_words(case: Case) -> str:
    body = "" if case.body is None else f" with {case.body[:20]!r}"
    return f"{case.method} {case.path} {case.lines or ''}{body} is {case.code}"


ALLOWED = {
    "": "GET, PUT, DELETE",
    "/streams": "GET",
    "/json": "GET, HEAD, PUT, POST, DELETE",
    "/json/attrs": "GET, PUT",
    "/json/snapshot/0": "GET, HEAD, PUT, DELETE",
    "/json/retention/0": "PUT",
    "/json/bootstrap": "GET",
    "/json/append-batch": "POST",
}
METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "TRACE")


def wrong_methods() -> Iterator[tuple[str, str, str]]:
    for path, allowed in ALLOWED.items():
        for method in METHODS:
            is_reserved = path == "/streams" and method in ("PUT", "POST")
            if method not in allowed.split(", ") and not is_reserved:
                yield method, path, f"{allowed}, OPTIONS"


def bad_names() -> Iterator[Case]:
    for bucket in ("abc", "a" * 65, "Upper", "with.dot", "with space".replace(" ", "%20"), "caf%C3%A9"):
        yield Case("PUT", f"//{bucket}", 400, "invalid_bucket_id")
    for bucket in ("console", "admin", "auth", "cluster"):
        yield Case("PUT", f"//{bucket}", 400, "invalid_bucket_id")
        if bucket != "cluster":
            yield Case("PUT", f"//{bucket}/stream", 400, "invalid_bucket_id", (), b"")
            yield Case("GET", f"//{bucket}/stream/attrs", 400, "invalid_bucket_id")
    for method, part, body in (
        ("GET", "", None),
        ("PUT", "", b""),
        ("POST", "", b"x"),
        ("DELETE", "", None),
        ("GET", "/attrs", None),
        ("PUT", "/attrs", b"{}"),
        ("PUT", "/snapshot/0", b"x"),
        ("PUT", "/retention/0", None),
        ("GET", "/bootstrap", None),
        ("POST", "/append-batch", frames(b"x")),
    ):
        for name in ("a..b", "a%00b", "a%FFb", "n" * 122):
            yield Case(method, f"/{name}{part}", 400, "invalid_stream_id", (JSON_TYPE,), body)
    for method in ("PUT", "POST"):
        yield Case(method, "/streams", 400, "invalid_stream_id", (JSON_TYPE,), b"1")
    for part in ("other", "attrs/x", "snapshot/1/2", "retention", "bootstrap/x", ""):
        yield Case("GET", f"/json/{part}", 400, "invalid_stream_id")
        yield Case("PUT", f"/json/{part}", 400, "invalid_stream_id", (JSON_TYPE,), b"1")


def missing() -> Iterator[Case]:
    """What is not there, and what is no more, on every route of a stream."""
    for method, part, lines, body in (
        ("GET", "", (), None),
        ("GET", "?offset=now&live=long-poll", (), None),
        ("GET", "?offset=-1&live=sse", (), None),
        ("GET", "?record=0", (), None),
        ("HEAD", "", (), None),
        ("POST", "", (BINARY_TYPE,), b"x"),
        ("POST", "", ("Stream-Closed: true",), None),
        ("DELETE", "", (), None),
        ("GET", "/attrs", (), None),
        ("PUT", "/attrs", (JSON_TYPE,), b'{"title":"x"}'),
        ("GET", "/snapshot", (), None),
        ("GET", "/snapshot/0", (), None),
        ("HEAD", "/snapshot/0", (), None),
        ("PUT", "/snapshot/0", (), b"x"),
        ("DELETE", "/snapshot/0", (), None),
        ("PUT", "/retention/0", (), None),
        ("GET", "/bootstrap", (), None),
        ("POST", "/append-batch", (BINARY_TYPE,), frames(b"x")),
    ):
        yield Case(method, f"//no-such-bucket/stream{part}", 404, "bucket_not_found", lines, body)
        yield Case(method, f"/no-such-stream{part}", 404, "stream_not_found", lines, body)
        yield Case(method, f"/gone{part}", 410, "stream_gone", lines, body)
        if not part.startswith("/"):
            yield Case(method, f"//v1/stream/no-such/stream{part}", 404, "stream_not_found", lines, body)
    yield Case("PUT", "//no-such-bucket/stream", 404, "bucket_not_found", (), b"")
    yield Case("PUT", "/gone", 409, "stream_exists", (), b"")
    for method, query in (("GET", ""), ("GET", "?offset=-1"), ("DELETE", "")):
        yield Case(method, f"//no-such-bucket{query}", 404, "bucket_not_found")
    for query in ("?offset=now&live=long-poll", "?offset=-1&live=sse"):
        yield Case("GET", f"//no-such-bucket{query}", 404, "bucket_not_found")
    yield Case("GET", "//no-such-bucket/streams", 404, "bucket_not_found")
    yield Case("GET", "//", 404, "route_not_found")
    yield Case("GET", "//cluster/no-such-thing", 404, "route_not_found")
    yield Case("GET", "/json/snapshot", 404, "snapshot_not_found")
    yield Case("GET", "/json/snapshot/0", 404, "snapshot_not_found")
    yield Case("GET", "/trimmed/snapshot/4", 404, "snapshot_not_found")
    yield Case("DELETE", "/json/snapshot/0", 404, "snapshot_not_found")
    yield Case("DELETE", "/trimmed/snapshot/4", 404, "snapshot_not_found")


def bad_offsets() -> Iterator[Case]:
    for text in ("", "abc", "-2", "+1", "1_0", "1.5", "%D9%A3", "0" * 21, "1%0A", "now%20", "%20-1"):
        for live in ("", "&live=long-poll", "&live=sse"):
            yield Case("GET", f"/text?offset={text}{live}", 400, "invalid_offset")
            yield Case("GET", f"?offset={text}{live}", 400, "invalid_offset")
        if text and "%20" not in text:
            yield Case("PUT", f"/text/snapshot/{text}", 400, "invalid_offset", (), b"x")
            yield Case("GET", f"/text/snapshot/{text}", 400, "invalid_offset")
            yield Case("DELETE", f"/text/snapshot/{text}", 400, "invalid_offset")
            yield Case("PUT", f"/text/retention/{text}", 400, "invalid_offset")
    for text in ("-1", "now"):
        yield Case("PUT", f"/text/snapshot/{text}", 400, "invalid_offset", (), b"x")
        yield Case("PUT", f"/text/retention/{text}", 400, "invalid_offset")
    for query in ("?offset=0&offset=0", "?offset=-1&offset=now"):
        yield Case("GET", f"/text{query}", 400, "invalid_offset")
        yield Case("GET", query, 400, "invalid_offset")
    for live in ("", "&live=long-poll", "&live=sse"):
        yield Case("GET", f"/text?offset=6{live}", 400, "offset_beyond_tail")
        yield Case("GET", f"?offset=99999999999999999999{live}", 400, "offset_beyond_tail")
        yield Case("GET", f"/closed?offset=1{live}", 400, "invalid_offset")
        yield Case("GET", f"/trimmed?offset=7{live}", 410, "offset_trimmed")
        yield Case("GET", f"?offset=0{live}", 410, "position_trimmed")
    yield Case("PUT", "/kept/snapshot/6", 409, "snapshot_conflict", (), b"x")
    yield Case("PUT", "/kept/retention/6", 400, "invalid_offset")
    yield Case("PUT", "/json/snapshot/4", 409, "snapshot_conflict", (), b"x")
    yield Case("PUT", "/closed/snapshot/1", 400, "invalid_offset", (), b"x")
    yield Case("PUT", "/text/snapshot/1", 400, "invalid_offset", (), b"x")
    yield Case("PUT", "/trimmed/snapshot/13", 409, "snapshot_conflict", (), b"x")
    yield Case("PUT", "/trimmed/snapshot/4", 410, "offset_trimmed", (), b"x")
    yield Case("PUT", "/kept/snapshot/4", 409, "snapshot_conflict", (), b"x")
    yield Case("PUT", "/kept/snapshot/8", 409, "snapshot_conflict", (), b"other")
    yield Case("PUT", "/kept/retention/12", 409, "snapshot_conflict")
    yield Case("PUT", "/trimmed/retention/4", 409, "snapshot_conflict")
    yield Case("PUT", "/json/retention/1", 409, "snapshot_conflict")
    yield Case("DELETE", "/trimmed/snapshot/8", 409, "snapshot_conflict")


def bad_parameters() -> Iterator[Case]:
    for query in (
        "max_bytes=0",
        "max_bytes=-1",
        "max_bytes=x",
        "max_bytes=",
        "live=yes",
        "live=",
        "timeout=-1",
    ):
        for path in ("/json", ""):
            yield Case("GET", f"{path}?offset=-1&{query}", 400, "invalid_parameter")
    for query in (
        "record=-1",
        "record=x",
        "record=",
        "record=1_0",
        "record=99999999999999999999",
        "tail_records=-1",
        "tail_records=",
        "record=0&tail_records=1",
        "record=0&offset=0",
        "record=0&max_records=0",
        "record=0&record_view=plain",
        "max_records=1",
        "offset=0&record_view=envelope",
    ):
        yield Case("GET", f"/json?{query}", 400, "invalid_parameter")
    yield Case("GET", "/json?record=4", 400, "record_beyond_next")
    yield Case("GET", "/json?record=4&live=sse", 400, "record_beyond_next")
    yield Case("GET", "/text?record=0", 400, "invalid_parameter")
    yield Case("GET", "/text?tail_records=1", 400, "invalid_parameter")
    yield Case("GET", "/json?live=long-poll", 400, "invalid_offset")
    yield Case("GET", "/json?live=sse", 400, "invalid_offset")
    yield Case("GET", "?live=long-poll", 400, "invalid_offset")
    yield Case("GET", "?live=sse", 400, "invalid_offset")
    yield Case("GET", "?offset=-1&record=0", 400, "invalid_parameter")
    yield Case("GET", "?offset=-1&until=0", 410, "position_trimmed")
    yield Case("GET", "?offset=-1&until=-1", 400, "invalid_parameter")
    yield Case("GET", "?offset=-1&until=now", 400, "invalid_parameter")
    yield Case("GET", "?offset=-1&until=x", 400, "invalid_offset")
    yield Case("GET", "?offset=-1&until=99999999999999999999", 400, "offset_beyond_tail")
    yield Case("GET", "?offset=2&until=1", 400, "invalid_parameter")
    yield Case("GET", "?offset=-1&until=1&live=sse", 400, "invalid_parameter")
    for limit in ("0", "1001", "-1", "x", "", "1.0", "+5"):
        yield Case("GET", f"/streams?limit={limit}", 400, "invalid_parameter")
    for value in ("maybe", "", "True", "1"):
        yield Case("PUT", f"/text/snapshot/5?trim={value}", 400, "invalid_parameter", (), b"x")
    for live in ("sse", "long-poll", ""):
        yield Case("GET", f"/text/bootstrap?live={live}", 400, "invalid_parameter")


def bad_headers() -> Iterator[Case]:
    """Twice, or not ASCII, on every route that reads headers."""
    routes: tuple[tuple[str, str, bytes | None], ...] = (
        ("GET", "/json", None),
        ("HEAD", "/json", None),
        ("POST", "/json", b"1"),
        ("PUT", "/json", b""),
        ("DELETE", "/text", None),
        ("GET", "/json/attrs", None),
        ("PUT", "/json/attrs", b"{}"),
        ("GET", "/trimmed/snapshot/8", None),
        ("PUT", "/text/snapshot/5", b"x"),
        ("PUT", "/kept/retention/8", None),
        ("GET", "/json/bootstrap", None),
        ("POST", "/json/append-batch", frames(b"1")),
        ("GET", "", None),
        ("GET", "?offset=-1", None),
        ("DELETE", "", None),
        ("GET", "/streams", None),
    )
    for method, path, body in routes:
        twice = ("Stream-Incarnation: a", "Stream-Incarnation: a", JSON_TYPE)
        yield Case(method, path, 400, "header_invalid", twice, body)
        not_ascii = ("Stream-Seq: caf\u00e9".encode(), JSON_TYPE)
        yield Case(method, path, 400, "header_invalid", not_ascii, body)
    for method, path, body in routes[:12]:
        other = ("Stream-Incarnation: 1-0-1-0", JSON_TYPE)
        yield Case(method, path, 412, "incarnation_mismatch", other, body)
    yield Case("GET", "?offset=-1", 412, "incarnation_mismatch", ("Stream-Incarnation: other-1",))
    for path in ("/json", "/json/append-batch"):
        for lines in (
            ("Producer-Id: a",),
            ("Producer-Id: a", "Producer-Epoch: 0"),
            ("Producer-Id: ", "Producer-Epoch: 0", "Producer-Seq: 0"),
            ("Producer-Id: a", "Producer-Epoch: x", "Producer-Seq: 0"),
            ("Producer-Id: a", "Producer-Epoch: 0", "Producer-Seq: -1"),
            ("Producer-Id: a", "Producer-Epoch: 0", "Producer-Seq: 9007199254740992"),
            ("Producer-Id: " + "a" * 257, "Producer-Epoch: 0", "Producer-Seq: 0"),
        ):
            yield Case("POST", path, 400, "producer_headers_invalid", (JSON_TYPE, *lines), frames(b"1"))
    for value in ("x", "-1", "", "1.0", "99999999999999999999"):
        match = f"Stream-Record-Match: {value}"
        yield Case("POST", "/json", 400, "header_invalid", (JSON_TYPE, match), b"4")
    yield Case("POST", "/json", 412, "precondition_failed", (JSON_TYPE, "Stream-Record-Match: 2"), b"4")
    yield Case("POST", "/text", 412, "precondition_failed", (TEXT_TYPE, "Stream-Record-Match: 0"), b"4")
    yield Case("POST", "/json", 412, "precondition_failed", (JSON_TYPE, 'If-Match: "x"'), b"4")
    yield Case("PUT", "/json", 412, "precondition_failed", (JSON_TYPE, 'If-Match: "x"'), b"4")
    yield Case("PUT", "/new", 412, "precondition_failed", (JSON_TYPE, "If-Match: *"), b"4")
    for text in ("{", "[]", '"x"', '{"title":1}', '{"metadata":[]}', '{"title":NaN}'):
        yield Case("PUT", "/new", 400, "attributes_invalid", (f"Stream-Attrs: {text}",), b"")
    large = '{"title":"%s"}' % ("x" * (16 * 1024 - 11))
    yield Case("PUT", "/new", 400, "attributes_invalid", (f"Stream-Attrs: {large}",), b"")
    other = (JSON_TYPE, 'Stream-Attrs: {"title":"other"}')
    yield Case("PUT", "/json", 409, "stream_exists", other, b"")
    for ttl in ("-1", "01", "1.5", "x", ""):
        yield Case("PUT", "/new", 400, "invalid_ttl", (f"Stream-TTL: {ttl}",), b"")


def bad_bodies() -> Iterator[Case]:
    for body in (b"{", b"NaN", b"1 2", b"[1,]", b'"\xff"', b"[]", b"[" * 100_000):
        yield Case("POST", "/json", 400, "invalid_json", (JSON_TYPE,), body)
        if body != b"[]":
            yield Case("PUT", "/new", 400, "invalid_json", (JSON_TYPE,), body)
            yield Case("PUT", "/json/attrs", 400, "attributes_invalid", (JSON_TYPE,), body)
    yield Case("POST", "/json", 400, "empty_body", (JSON_TYPE,), b"")
    yield Case("POST", "/json", 400, "content_type_missing", (), b"1")
    yield Case("POST", "/json", 409, "content_type_mismatch", (TEXT_TYPE,), b"1")
    yield Case("POST", "/closed", 409, "stream_closed", (JSON_TYPE,), b"1")
    yield Case("POST", "/json", 413, "body_too_large", (JSON_TYPE,), b'"' + b"x" * (4 << 20) + b'"')
    yield Case("POST", "/json", 413, "body_too_large", (JSON_TYPE,), b"[" + b"1," * 65_536 + b"1]")
    yield Case("PUT", "/json/attrs", 400, "attributes_invalid", (JSON_TYPE,), b"")
    yield Case("PUT", "/json/attrs", 400, "content_type_missing", (), b"{}")
    yield Case("PUT", "/json/attrs", 400, "attributes_invalid", (TEXT_TYPE,), b"{}")
    yield Case(
        "PUT", "/json/attrs", 400, "attributes_invalid", (JSON_TYPE,), b'{"title":"' + b"x" * 16373 + b'"}'
    )
    yield Case("PUT", "/json/attrs", 400, "attributes_invalid", (JSON_TYPE,), b" " * 70_000)
    for body, code in (
        (b"", "empty_body"),
        (b"\0", "invalid_frames"),
        (b"\0\0\0", "invalid_frames"),
        (b"\0\0\0\0", "invalid_frames"),
        (b"\0\0\0\2x", "invalid_frames"),
        (frames(b"1") + b"\0", "invalid_frames"),
        (frames(b"1", b"", b"2"), "invalid_frames"),
        (b"\xff\xff\xff\xff1", "invalid_frames"),
    ):
        yield Case("POST", "/json/append-batch", 400, code, (JSON_TYPE,), body)
    many = frames(*[b"1"] * 513)
    yield Case("POST", "/json/append-batch", 413, "body_too_large", (JSON_TYPE,), many)
    too_long = frames(b'"' + b"x" * (4 << 20) + b'"')
    yield Case("POST", "/json/append-batch", 413, "body_too_large", (JSON_TYPE,), too_long)
    yield Case("POST", "/json/append-batch", 400, "content_type_missing", (), frames(b"1"))
    for line in ("Stream-Seq: z", "Stream-Closed: true", "If-Match: *", "Stream-Record-Match: 3"):
        yield Case("POST", "/json/append-batch", 400, "header_invalid", (JSON_TYPE, line), frames(b"1"))
    yield Case("POST", "/json", 409, "stream_seq_conflict", (JSON_TYPE, "Stream-Seq: m"), b"4")
    writer = [f"{name}: {value}" for name, value in producer(2, 1).items()]
    stale = [f"{name}: {value}" for name, value in producer(0, 0).items()]
    ahead = [f"{name}: {value}" for name, value in producer(1, 2).items()]
    for path, body in (("/json", b"4"), ("/json/append-batch", frames(b"4", b"5"))):
        yield Case("POST", path, 409, "producer_seq_conflict", (JSON_TYPE, *writer), body)
        yield Case("POST", path, 403, "producer_epoch_stale", (JSON_TYPE, *stale), body)
        yield Case("POST", path, 400, "producer_headers_invalid", (JSON_TYPE, *ahead), body)
        yield Case("POST", path.replace("json", "closed"), 409, "stream_closed", (JSON_TYPE, *writer), body)
        yield Case("POST", path, 409, "content_type_mismatch", (TEXT_TYPE, *writer), body)
    bad_frame = (JSON_TYPE, *[f"{name}: {value}" for name, value in producer(1, 1).items()])
    yield Case("POST", "/json/append-batch", 400, "invalid_json", bad_frame, frames(b"4", b"{"))
    for path, length in (
        ("/json", 33 << 20),
        ("/json/append-batch", (32 << 20) + 1),
        ("/json/attrs", 1 << 20),
        ("/text/snapshot/5", (128 << 20) + 1),
    ):
        method = "POST" if path in ("/json", "/json/append-batch") else "PUT"
        status, code = (400, "attributes_invalid") if "attrs" in path else (413, "body_too_large")
        yield Case(method, path, status, code, (JSON_TYPE, f"Content-Length: {length}"))


def exists() -> Iterator[Case]:
    yield Case("PUT", "", 409, "bucket_exists")
    yield Case("DELETE", "", 409, "bucket_not_empty")
    yield Case("PUT", "/text", 409, "stream_exists", (BINARY_TYPE,), b"")
    yield Case("PUT", "/closed", 409, "stream_exists", (JSON_TYPE,), b"")
    yield Case("PUT", "/fork", 404, "stream_not_found", ("Stream-Forked-From: /{bucket}/no-such",), b"")
    yield Case("PUT", "/fork", 409, "stream_exists", ("Stream-Forked-From: /{bucket}/gone",), b"")
    early = ("Stream-Forked-From: /{bucket}/trimmed", "Stream-Fork-Offset: 4")
    yield Case("PUT", "/fork", 410, "offset_trimmed", early, b"")
    late = ("Stream-Forked-From: /{bucket}/trimmed", "Stream-Fork-Offset: 13")
    yield Case("PUT", "/fork", 400, "offset_beyond_tail", late, b"")
    yield Case("PUT", "/fork", 400, "fork_across_buckets", ("Stream-Forked-From: /other-bucket/x",), b"")
    yield Case("PUT", "/fork", 400, "header_invalid", ("Stream-Forked-From: /{bucket}/text/attrs",), b"")


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "bad names": bad_names,
    "what is not there": missing,
    "bad offsets": bad_offsets,
    "bad parameters": bad_parameters,
    "bad headers": bad_headers,
    "bad bodies": bad_bodies,
    "what is there already": exists,
}


def full_path(world: World, path: str) -> str:
    return path[1:] if path.startswith("//") else world.bucket + path


def check(answer: Answer, method: str, status: int, code: str) -> None:
    assert answer.status == status, (answer.status, answer.body)
    assert answer.headers["x-content-type-options"] == "nosniff"
    if method != "HEAD":
        assert answer.code == code


@pytest.mark.parametrize("family", FAMILIES)
def test_every_refused_request_has_its_code_and_changes_nothing(world: World, family: str) -> None:
    before, glance = world.seen(), world.glance()
    wrong: list[str] = []
    for case in FAMILIES[family]():
        lines = [line.encode() if isinstance(line, str) else line for line in case.lines]
        lines = [line.replace(b"{bucket}", world.bucket[1:].encode()) for line in lines]
        answer = ask(world.server, case.method, full_path(world, case.path), *lines, body=case.body)
        try:
            check(answer, case.method, case.status, case.code)
        except (AssertionError, ValueError, KeyError):
            wrong.append(f"{in_words(case)}, not {answer.status} {answer.body[:200]!r}")
        if case.method not in ("GET", "HEAD") and world.glance() != glance:
            wrong.append(f"{in_words(case)} and changes something")
            glance = world.glance()
    assert wrong == []
    assert world.is_as(before)


@pytest.mark.parametrize(("method", "path", "allow"), list(wrong_methods()))
def test_a_method_that_is_not_possible_tells_those_that_are(
    world: World, method: str, path: str, allow: str
) -> None:
    answer = ask(world.server, method, world.bucket + path)
    check(answer, method, 405, "method_not_allowed")
    assert answer.headers["allow"] == allow


def test_the_newest_snapshot_has_no_address_to_write_to(world: World) -> None:
    for method in ("PUT", "DELETE"):
        answer = ask(world.server, method, f"{world.bucket}/kept/snapshot")
        check(answer, method, 405, "method_not_allowed")
        assert answer.headers["allow"] == "GET, HEAD, OPTIONS"


def answer_or_end(raw: Raw) -> Answer | None:
    try:
        return raw.answer()
    except (CutOff, ConnectionError):
        return None


ROUTES_WITH_BODIES = {
    "append": ("POST", "/json", b'"' + b"x" * 30 + b'"'),
    "create": ("PUT", "/new", b'"' + b"x" * 30 + b'"'),
    "attributes": ("PUT", "/json/attrs", b'{"title":"' + b"x" * 30 + b'"}'),
    "snapshot": ("PUT", "/json/snapshot/3", b"x" * 30),
    "batch": ("POST", "/json/append-batch", frames(b'"' + b"x" * 30 + b'"')),
}


def partial(method: str, path: str, body: bytes, way: str) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n".encode()
    half = body[: len(body) // 2]
    if way == "length":
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + half
    if way == "length, nothing":
        return head + b"Content-Length: %d\r\n\r\n" % len(body)
    return head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(half), half)


@pytest.mark.parametrize("route", ROUTES_WITH_BODIES)
@pytest.mark.parametrize("way", ["length", "length, nothing", "chunked"])
def test_a_body_that_is_cut_off_changes_nothing(world: World, route: str, way: str) -> None:
    method, path, body = ROUTES_WITH_BODIES[route]
    before = world.seen()
    sent = partial(method, world.bucket + path, body, way)
    with until_gone(world.api), Raw(world.server) as raw:
        raw.send(sent).finish_sending()
        answer = answer_or_end(raw)
        assert answer is None or (answer.status, answer.code) == (400, "body_incomplete")
    with until_gone(world.api), Raw(world.server) as raw:
        raw.send(sent)
    assert world.is_as(before)


@pytest.mark.parametrize("route", ROUTES_WITH_BODIES)
def test_broken_chunks_change_nothing(world: World, route: str) -> None:
    method, path, body = ROUTES_WITH_BODIES[route]
    before = world.seen()
    with until_gone(world.api), Raw(world.server) as raw:
        raw.send(partial(method, world.bucket + path, body, "chunked") + b"xyz\r\n")
        answer = answer_or_end(raw)
        assert answer is None or (answer.status, answer.code) == (400, "body_incomplete")
    assert world.is_as(before)


@pytest.mark.parametrize("route", ROUTES_WITH_BODIES)
def test_a_chunked_body_is_as_good_as_one_with_a_length(
    server: Server, api: httpx.Client, route: str
) -> None:
    world = World(server, api)
    method, path, body = ROUTES_WITH_BODIES[route]
    first, second = body[:7], body[7:]
    head = f"{method} {world.bucket}{path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
    with Raw(server) as raw:
        raw.send(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        raw.send(b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(first), first, len(second), second))
        assert raw.answer().status in (200, 201, 204)


@pytest.fixture(scope="module")
def hasty(start_server: StartServer) -> Iterator[World]:
    """The same on a server that waits a second for a body."""
    server = start_server(limits__body_timeout="1s")
    with httpx.Client(base_url=server.url, timeout=60) as api:
        yield World(server, api)


@pytest.mark.parametrize("way", ["length", "chunked"])
def test_bodies_that_come_too_slowly_change_nothing(hasty: World, way: str) -> None:
    before = hasty.seen()
    connections = []
    for method, path, body in ROUTES_WITH_BODIES.values():
        raw = Raw(hasty.server).send(partial(method, hasty.bucket + path, body, way))
        connections.append(raw)
    for raw in connections:
        answer = raw.answer()
        assert (answer.status, answer.code) == (408, "body_timeout")
        raw.close()
    assert hasty.is_as(before)
