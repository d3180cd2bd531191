"""GET and HEAD without waiting: offsets, chunks, caching."""

from pathlib import Path

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.in_process import serving
from tests.http.raw import ask
from tests.http.wire import BINARY, CLOSED, JSON, TEXT, make, offset, post, refused
from tests.server import Server

from ursula.log.memory import MemoryLog

CACHED = "public, max-age=60, stale-while-revalidate=300"


def test_head_describes_a_stream(api: httpx.Client, path: str) -> None:
    made = make(api, path, {"content-type": "text/X; a=B"}, b"hello")
    answer = api.head(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/X; a=B"
    assert answer.headers["stream-next-offset"] == offset(5)
    assert answer.headers["etag"] == made.headers["etag"]
    assert answer.headers["stream-incarnation"] == made.headers["stream-incarnation"]
    assert answer.headers["cache-control"] == "no-store"
    for name in ("stream-closed", "stream-ttl", "stream-expires-at", "stream-up-to-date"):
        assert name not in answer.headers
    post(api, path, b"", CLOSED)
    closed = api.head(path)
    assert closed.headers["stream-closed"] == "true"
    assert closed.headers["etag"] == made.headers["etag"][:-1] + ':c"'


@pytest.mark.parametrize(
    "query", ["", "?offset=-1", "?offset=0", "?offset=" + offset(0), "?unknown=1&offset=0&x"]
)
def test_a_read_from_the_beginning_gives_everything(api: httpx.Client, path: str, query: str) -> None:
    made = make(api, path, TEXT, b"one")
    post(api, path, b"two", TEXT)
    answer = api.get(path + query)
    assert answer.status_code == 200
    assert answer.content == b"onetwo"
    assert answer.headers["content-type"] == "text/plain"
    assert answer.headers["stream-next-offset"] == offset(6)
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.headers["cache-control"] == "no-store"
    incarnation = made.headers["stream-incarnation"]
    assert answer.headers["stream-incarnation"] == incarnation
    assert answer.headers["etag"] == f'"{incarnation}:0:6"'
    assert "stream-closed" not in answer.headers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2", b"etwo"),
        ("00000000000000000002", b"etwo"),
        ("0000000000000000_0000000000000003", b"two"),
        ("9999999999999999_0000000000000003", b"two"),
        ("6", b""),
        ("now", b""),
        ("%36", b""),
    ],
)
def test_a_read_begins_at_any_offset(api: httpx.Client, path: str, text: str, expected: bytes) -> None:
    make(api, path, TEXT, b"one")
    post(api, path, b"two", TEXT)
    answer = api.get(f"{path}?offset={text}")
    assert answer.status_code == 200
    assert answer.content == expected
    assert answer.headers["stream-next-offset"] == offset(6)
    assert answer.headers["stream-up-to-date"] == "true"


@pytest.mark.parametrize(
    "query",
    [
        "offset=",
        "offset",
        "offset=0&offset=0",
        "offset=-1&offset=now",
        "offset=0&off%73et=0",
        "offset=+5",
        "offset=%2B5",
        "offset=1_000",
        "offset=-0",
        "offset=-2",
        "offset=1.0",
        "offset=%D9%A3",
        "offset=000000000000000000001",
        "offset=0%0A",
        "offset=%0A0",
        "offset=0%00",
        "offset=%200",
        "offset=NOW",
        "offset=000000000000000_0000000000000000",
        "offset=0000000000000000_0000000000000000_0",
        "offset=0000000000000000_000000000000000",
        "offset=0x1",
        "offset=%FF",
    ],
)
def test_an_offset_of_another_form_is_refused(
    server: Server, api: httpx.Client, path: str, query: str
) -> None:
    make(api, path, TEXT, b"12345678")
    for live in ("", "&live=long-poll", "&live=sse"):
        answer = ask(server, "GET", f"{path}?{query}{live}".encode().decode("latin-1"))
        assert (answer.status, answer.code) == (400, "invalid_offset")


@pytest.mark.parametrize("beyond", ["7", "99999999999999999999", "0000000000000000_0000000000000007"])
@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
def test_an_offset_beyond_the_tail_is_refused(api: httpx.Client, path: str, beyond: str, live: str) -> None:
    make(api, path, TEXT, b"onetwo")
    answer = api.get(f"{path}?offset={beyond}{live}")
    refused(answer, 400, "offset_beyond_tail")
    assert answer.headers["stream-next-offset"] == offset(6)


def test_now_is_the_tail_without_a_tag(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"hello")
    answer = api.get(f"{path}?offset=now")
    assert answer.status_code == 200
    assert answer.content == b""
    assert answer.headers["stream-next-offset"] == offset(5)
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.headers["cache-control"] == "no-store"
    assert "etag" not in answer.headers
    post(api, path, b"", CLOSED)
    assert api.get(f"{path}?offset=now").headers["stream-closed"] == "true"


def test_a_read_at_the_tail_of_json_is_an_empty_array(api: httpx.Client, path: str) -> None:
    make(api, path, JSON, b"[1]")
    for text in ("1", "now"):
        answer = api.get(f"{path}?offset={text}")
        assert answer.status_code == 200
        assert answer.content == b"[]"
        assert answer.headers["content-type"] == "application/json"


def test_a_chunk_before_the_tail_may_be_cached_and_says_nothing_of_the_end(
    api: httpx.Client, path: str
) -> None:
    made = make(api, path, {**TEXT, **CLOSED}, b"hello world")
    incarnation = made.headers["stream-incarnation"]
    answer = api.get(f"{path}?offset=2&max_bytes=4")
    assert answer.content == b"llo "
    assert answer.headers["stream-next-offset"] == offset(6)
    assert answer.headers["cache-control"] == CACHED
    assert answer.headers["etag"] == f'"{incarnation}:2:6"'
    assert "stream-up-to-date" not in answer.headers
    assert "stream-closed" not in answer.headers
    rest = api.get(f"{path}?offset=6")
    assert rest.content == b"world"
    assert rest.headers["cache-control"] == "no-store"
    assert rest.headers["etag"] == f'"{incarnation}:6:11:c"'
    assert rest.headers["stream-up-to-date"] == "true"
    assert rest.headers["stream-closed"] == "true"


def test_caches_can_be_made_private(start_server: StartServer, path: str) -> None:
    server = start_server(http__cache="private")
    ask(server, "PUT", path, body=b"hello")
    answer = ask(server, "GET", f"{path}?max_bytes=2")
    assert answer.headers["cache-control"] == CACHED.replace("public", "private")


def test_a_stream_is_read_in_chunks_of_a_mebibyte(api: httpx.Client, path: str) -> None:
    data = bytes(range(256)) * 10_000
    make(api, path)
    for start in range(0, len(data), 700_000):
        post(api, path, data[start : start + 700_000])
    parts, at = [], "-1"
    while True:
        answer = api.get(path, params={"offset": at})
        parts.append(answer.content)
        at = answer.headers["stream-next-offset"]
        if "stream-up-to-date" in answer.headers:
            break
        assert len(answer.content) == 1 << 20
    assert len(parts) == 3
    assert b"".join(parts) == data


@pytest.mark.parametrize("text", ["0", "", "-1", "+1", "x", "1.5", "1_000", "%D9%A3", "1%0A"])
def test_max_bytes_is_a_number_from_1(api: httpx.Client, path: str, text: str) -> None:
    make(api, path, TEXT, b"x")
    refused(api.get(f"{path}?max_bytes={text}"), 400, "invalid_parameter")


def test_max_bytes_is_lowered_to_16_mebibytes(api: httpx.Client, path: str) -> None:
    make(api, path, BINARY, b"x" * (17 << 20))
    answer = api.get(f"{path}?max_bytes=999999999999")
    assert len(answer.content) == 16 << 20
    assert answer.headers["stream-next-offset"] == offset(16 << 20)


@pytest.mark.parametrize(
    ("limit", "expected", "after"), [(1, b'["one"]', 5), (9, b'["one"]', 5), (10, b'["one",22222]', 10)]
)
def test_json_is_cut_between_messages(
    api: httpx.Client, path: str, limit: int, expected: bytes, after: int
) -> None:
    make(api, path, JSON, b'["one",22222,3]')
    answer = api.get(f"{path}?max_bytes={limit}")
    assert answer.content == expected
    assert answer.headers["stream-next-offset"] == offset(after)
    assert "stream-up-to-date" not in answer.headers


def test_an_offset_inside_a_json_message_is_refused(api: httpx.Client, path: str) -> None:
    make(api, path, JSON, b'["one","two"]')
    refused(api.get(f"{path}?offset=3"), 400, "invalid_offset")
    assert api.get(f"{path}?offset=5").content == b'["two"]'


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
def test_a_missing_stream_is_404_everywhere(
    server: Server, api: httpx.Client, path: str, method: str
) -> None:
    body = b"x" if method == "POST" else None
    lines = ["Content-Type: text/plain"] if method == "POST" else []
    flat = ask(server, method, path, *lines, body=body)
    assert flat.status == 404
    assert method == "HEAD" or flat.code == "stream_not_found"
    bucketed = ask(server, method, "/missing-bucket/stream", *lines, body=body)
    assert bucketed.status == 404
    assert method == "HEAD" or bucketed.code == "bucket_not_found"
    bucket = path.rpartition("/")[2]
    api.put(f"/{bucket}")
    inside = ask(server, method, f"/{bucket}/stream", *lines, body=body)
    assert method == "HEAD" or inside.code == "stream_not_found"


def test_no_read_is_up_to_date_while_nobody_can_tell_how_far_the_log_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log on other machines may not answer; an answer from old state could deny what was acknowledged."""

    async def unreachable(log: MemoryLog) -> int:
        raise OSError("no quorum")

    with (
        serving(tmp_path) as place,
        httpx.Client(base_url=f"http://{place.host}:{place.port}", timeout=30) as api,
    ):
        make(api, "/v1/stream/s", TEXT, b"here")
        monkeypatch.setattr(MemoryLog, "known_tail", None)
        assert api.get("/v1/stream/s").content == b"here"
        monkeypatch.setattr(MemoryLog, "tail", unreachable)
        data = api.get("/v1/stream/s")
        assert (data.content, "stream-up-to-date" in data.headers) == (b"here", False)
        answer = api.get("/v1/stream/s", params={"offset": data.headers["stream-next-offset"]})
        refused(answer, 503, "unavailable")
        assert "no quorum" in answer.text


def test_local_reads_are_the_same_on_a_single_node(start_server: StartServer) -> None:
    with httpx.Client(base_url=start_server(http__reads="local").url) as api:
        path = "/v1/stream/only"
        refused(api.get(path), 404, "stream_not_found")
        make(api, path, TEXT, b"one")
        answer = api.get(path)
        assert (answer.text, answer.headers["stream-up-to-date"]) == ("one", "true")
        with api.stream("GET", path, params={"offset": "now", "live": "sse"}) as events:
            assert "event: control" in events.iter_lines()
