"""Snapshots: published, read back whole or in part, replaced, and gone from the disk when they are."""

import hashlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.cluster.spread_server import any_server
from tests.conftest import StartServer
from tests.http.raw import Answer, CutOff, Raw, ask
from tests.http.signs import wait_until_clients_are_full
from tests.http.surface import MEBIBYTE, blob_files, flush_all, impatient_server, make_bucket, position_of
from tests.http.wire import BINARY, CLOSED, JSON, TEXT, content, make, offset, post, refused
from tests.server import Server
from tests.waiting import wait_for

LIMIT = 128 * MEBIBYTE


@pytest.fixture
def stream(api: httpx.Client) -> str:
    """A stream of three appends of four bytes."""
    return make_stream(api)


def make_stream(api: httpx.Client, headers: dict[str, str] = BINARY) -> str:
    path = f"{make_bucket(api)}/stream"
    make(api, path, headers)
    for part in (b"1234", b"5678", b"9012"):
        post(api, path, part, headers)
    return path


def publish(
    api: httpx.Client,
    stream: str,
    at: int,
    body: bytes,
    headers: dict[str, str] = BINARY,
    query: str = "",
    status: int = 204,
) -> httpx.Response:
    answer = api.put(f"{stream}/snapshot/{offset(at)}{query}", headers=headers, content=body)
    assert answer.status_code == status, answer.text
    return answer


def digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def test_a_snapshot_is_published_and_read_back(api: httpx.Client, stream: str) -> None:
    body = bytes(range(256)) * 10
    told = publish(api, stream, 8, body, {"content-type": "application/x-state; v=1"}).headers
    assert told["stream-next-offset"] == offset(12)
    assert told["stream-snapshot-offset"] == offset(8)
    assert told["stream-snapshot-digest"] == digest(body)
    answer = api.get(f"{stream}/snapshot/{offset(8)}")
    assert answer.status_code == 200
    assert answer.content == body
    assert answer.headers["content-type"] == "application/x-state; v=1"
    assert answer.headers["content-length"] == "2560"
    assert answer.headers["stream-snapshot-offset"] == offset(8)
    assert answer.headers["stream-next-offset"] == offset(8)
    assert answer.headers["stream-snapshot-digest"] == digest(body)
    assert answer.headers["stream-incarnation"] == told["stream-incarnation"]
    assert answer.headers["cache-control"] == "no-store"
    assert "stream-up-to-date" not in answer.headers
    head = api.head(f"{stream}/snapshot/{offset(8)}")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == "2560"
    ours = {name for name in answer.headers if name != "date"}
    assert {name: head.headers[name] for name in ours} == {name: answer.headers[name] for name in ours}
    shown = api.head(stream).headers
    assert shown["stream-snapshot-offset"] == offset(8)
    assert shown["stream-earliest-offset"] == offset(8)


def test_a_snapshot_has_its_own_content_type_or_the_default(api: httpx.Client) -> None:
    stream = f"{make_bucket(api)}/stream"
    make(api, stream, JSON, b"[1,2]")
    answer = api.request("PUT", f"{stream}/snapshot/2", content=b"state")
    assert answer.status_code == 204
    assert api.get(f"{stream}/snapshot/2").headers["content-type"] == "application/octet-stream"
    assert api.head(stream).headers["content-type"] == "application/json"


def test_short_offsets_name_the_same_snapshot(api: httpx.Client, stream: str) -> None:
    publish(api, stream, 8, b"state")
    assert api.get(f"{stream}/snapshot/8").content == b"state"


def test_the_newest_is_found_by_a_redirect(server: Server, api: httpx.Client, stream: str) -> None:
    missing = api.get(f"{stream}/snapshot")
    refused(missing, 404, "snapshot_not_found")
    assert missing.headers["stream-incarnation"] == api.head(stream).headers["stream-incarnation"]
    publish(api, stream, 12, b"state")
    for method in ("GET", "HEAD"):
        answer = api.request(method, f"{stream}/snapshot")
        assert answer.status_code == 307
        assert answer.headers["location"] == f"{server.url}{stream}/snapshot/{offset(12)}"
        assert answer.headers["stream-snapshot-offset"] == offset(12)
        assert answer.headers["stream-next-offset"] == offset(12)
        assert answer.headers["stream-up-to-date"] == "true"
        assert answer.headers["cache-control"] == "no-store"
    assert api.get(f"{stream}/snapshot", follow_redirects=True).content == b"state"


def test_the_redirect_leads_to_names_that_need_escaping(api: httpx.Client) -> None:
    stream = f"{make_bucket(api)}/caf%C3%A9%20%3F%23%25"
    make(api, stream, BINARY, b"1234")
    publish(api, stream, 4, b"state")
    assert api.get(f"{stream}/snapshot", follow_redirects=True).content == b"state"


def test_a_snapshot_at_the_tail_of_a_closed_stream_says_so(api: httpx.Client, stream: str) -> None:
    post(api, stream, b"", CLOSED)
    told = publish(api, stream, 12, b"all").headers
    assert told["stream-closed"] == "true"
    answer = api.get(f"{stream}/snapshot/12")
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.headers["stream-closed"] == "true"
    assert "stream-closed" in api.get(stream).headers


def test_an_empty_snapshot_is_one(api: httpx.Client, stream: str) -> None:
    assert publish(api, stream, 4, b"").headers["stream-snapshot-digest"] == digest(b"")
    answer = api.get(f"{stream}/snapshot/4")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == "0"
    refused(api.get(f"{stream}/snapshot/4", headers={"range": "bytes=0-"}), 416, "range_not_satisfiable")


BODY = bytes(range(200))
RANGES = {
    "bytes=0-0": (0, 1),
    "bytes=0-99": (0, 100),
    "bytes=10-19": (10, 20),
    "bytes=199-199": (199, 200),
    "bytes=150-9999": (150, 200),
    "bytes=150-": (150, 200),
    "bytes=0-": (0, 200),
    "bytes=0-199": (0, 200),
    "bytes=-1": (199, 200),
    "bytes=-50": (150, 200),
    "bytes=-200": (0, 200),
    "bytes=-9999": (0, 200),
}
NO_RANGES = (
    "bytes=0-1,5-6",
    "bytes=5-1",
    "bytes=",
    "bytes=-",
    "bytes=a-b",
    "items=0-1",
    "0-5",
    "bytes=1-2-3",
)


@pytest.fixture(scope="module")
def ranged(api: httpx.Client) -> str:
    stream = make_stream(api)
    publish(api, stream, 8, BODY)
    return f"{stream}/snapshot/8"


@pytest.mark.parametrize("text", RANGES)
def test_a_range_gives_just_those_bytes(api: httpx.Client, ranged: str, text: str) -> None:
    start, end = RANGES[text]
    answer = api.get(ranged, headers={"range": text})
    assert answer.status_code == 206
    assert answer.content == BODY[start:end]
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/200"
    assert answer.headers["content-length"] == str(end - start)
    assert answer.headers["accept-ranges"] == "bytes"


@pytest.mark.parametrize("text", NO_RANGES)
def test_what_is_not_one_range_gives_everything(api: httpx.Client, ranged: str, text: str) -> None:
    answer = api.get(ranged, headers={"range": text})
    assert (answer.status_code, answer.content) == (200, BODY)
    assert "content-range" not in answer.headers


@pytest.mark.parametrize("text", ["bytes=200-", "bytes=200-300", "bytes=99999999999999999999-", "bytes=-0"])
def test_a_range_outside_is_refused(api: httpx.Client, ranged: str, text: str) -> None:
    answer = api.get(ranged, headers={"range": text})
    refused(answer, 416, "range_not_satisfiable")
    assert answer.headers["content-range"] == "bytes */200"


def test_a_range_of_another_version_gives_everything(api: httpx.Client, ranged: str) -> None:
    """Who resumes a download of what is no longer there must not get half of each."""
    tag = api.head(ranged).headers["etag"]
    part = api.get(ranged, headers={"range": "bytes=100-", "if-range": tag})
    assert (part.status_code, part.content) == (206, BODY[100:])
    for other in ('"other"', f"W/{tag}", "Wed, 21 Oct 2015 07:28:00 GMT"):
        whole = api.get(ranged, headers={"range": "bytes=100-", "if-range": other})
        assert (whole.status_code, whole.content) == (200, BODY)


def test_a_head_has_no_ranges(api: httpx.Client, ranged: str) -> None:
    answer = api.head(ranged, headers={"range": "bytes=10-19"})
    assert (answer.status_code, answer.headers["content-length"]) == (200, "200")
    assert api.head(ranged, headers={"range": "bytes=200-"}).status_code == 200


def test_who_has_it_is_told_so(api: httpx.Client, ranged: str) -> None:
    tag = api.get(ranged).headers["etag"]
    assert tag == f'"{digest(BODY)}"'
    for known in (tag, f'"x", {tag}', f"W/{tag}", "*"):
        for method in ("GET", "HEAD"):
            answer = api.request(method, ranged, headers={"if-none-match": known})
            assert (answer.status_code, answer.content) == (304, b"")
            assert answer.headers["etag"] == tag
    assert api.get(ranged, headers={"if-none-match": '"x"'}).status_code == 200


def test_the_same_again_is_no_conflict_and_other_bytes_are(
    server: Server, api: httpx.Client, stream: str
) -> None:
    first = publish(api, stream, 8, b"state")
    bucket = stream.rpartition("/")[0]
    files = blob_files(server, bucket)
    position = position_of(api, bucket)
    again = publish(api, stream, 8, b"state")
    assert again.headers["stream-snapshot-digest"] == first.headers["stream-snapshot-digest"]
    refused(api.put(f"{stream}/snapshot/8", headers=BINARY, content=b"other"), 409, "snapshot_conflict")
    assert api.get(f"{stream}/snapshot/8").content == b"state"
    assert position_of(api, bucket) == position, "nothing was logged"
    assert wait_for(lambda: blob_files(server, bucket) == files), "what was not needed is gone"


@pytest.mark.parametrize("same", [True, False])
def test_of_many_at_once_one_is_published(server: Server, api: httpx.Client, stream: str, same: bool) -> None:
    bodies = [b"state" if same else b"state %d" % number for number in range(8)]
    connections = [Raw(server) for _ in bodies]
    for raw, body in zip(connections, bodies, strict=True):
        raw.ask("PUT", f"{stream}/snapshot/8", body=body)
    statuses = [raw.answer().status for raw in connections]
    for raw in connections:
        raw.close()
    assert sorted(statuses) == ([204] * 8 if same else [204] + [409] * 7)
    assert api.get(f"{stream}/snapshot/8").content == bodies[statuses.index(204)]
    assert wait_for(lambda: len(blob_files(server, stream.rpartition("/")[0])) == 1)


def test_only_the_newest_is_visible(api: httpx.Client, stream: str) -> None:
    publish(api, stream, 4, b"first")
    publish(api, stream, 12, b"second")
    refused(api.get(f"{stream}/snapshot/4"), 404, "snapshot_not_found")
    assert api.get(f"{stream}/snapshot/12").content == b"second"
    answer = api.put(f"{stream}/snapshot/8", headers=BINARY, content=b"between")
    refused(answer, 410, "offset_trimmed")
    assert answer.headers["stream-earliest-offset"] == offset(12)


def test_an_older_one_conflicts_while_its_data_is_kept(api: httpx.Client, stream: str) -> None:
    publish(api, stream, 8, b"first", query="?trim=false")
    refused(api.put(f"{stream}/snapshot/4", headers=BINARY, content=b"x"), 409, "snapshot_conflict")
    assert content(api, stream) == b"123456789012"


@pytest.mark.parametrize("at", range(14))
def test_a_snapshot_lies_between_messages(api: httpx.Client, at: int) -> None:
    stream = make_stream(api)
    answer = api.put(f"{stream}/snapshot/{at}", headers=BINARY, content=b"x")
    if at > 12:
        refused(answer, 409, "snapshot_conflict")
    elif at % 4:
        refused(answer, 400, "invalid_offset")
    else:
        assert answer.status_code == 204


def test_a_snapshot_of_a_json_stream_may_lie_inside_an_append(api: httpx.Client) -> None:
    stream = f"{make_bucket(api)}/stream"
    make(api, stream, JSON)
    post(api, stream, b'["ab","cd","ef"]', JSON)
    publish(api, stream, 4, b"x")
    assert content(api, stream) == b'["cd","ef"]'


def test_an_empty_stream_can_have_a_snapshot(api: httpx.Client) -> None:
    stream = f"{make_bucket(api)}/stream"
    make(api, stream, JSON)
    publish(api, stream, 0, b"nothing yet")
    assert api.get(f"{stream}/snapshot", follow_redirects=True).content == b"nothing yet"
    post(api, stream, b"1", JSON)
    assert content(api, stream) == b"[1]"


def test_a_snapshot_is_never_deleted(api: httpx.Client, stream: str) -> None:
    refused(api.delete(f"{stream}/snapshot/8"), 404, "snapshot_not_found")
    publish(api, stream, 8, b"state")
    refused(api.delete(f"{stream}/snapshot/{offset(8)}"), 409, "snapshot_conflict")
    refused(api.delete(f"{stream}/snapshot/4"), 404, "snapshot_not_found")
    assert api.get(f"{stream}/snapshot/8").content == b"state"


def test_streams_made_on_flat_paths_have_snapshots_too(server: Server, api: httpx.Client) -> None:
    for bucket in ("%2E", "%D0%B1" * 40, "a b", "UPPER"):
        make(api, f"/v1/stream/{bucket}/stream", BINARY, b"1234")
        stream = f"/{bucket}/stream"
        publish(api, stream, 4, b"state of " + bucket.encode())
        assert api.get(f"{stream}/snapshot/4").content == b"state of " + bucket.encode()
    depths = {len(path.relative_to(server.data_dir / "cold").parts) for path in blob_files(server)}
    assert depths == {4}, "blobs/{bucket}/{incarnation}/{ulid}"


# On the disk


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of our own, which removes superseded blobs soon."""
    with impatient_server(tmp_path_factory.mktemp("lone"), limits__body_timeout="2s") as running:
        yield running
        assert running.complaints() == []


@pytest.fixture(scope="module")
def near(lone: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=lone.url, timeout=60) as client:
        yield client


def test_what_is_superseded_or_ended_leaves_no_file(lone: Server, near: httpx.Client) -> None:
    before = blob_files(lone)
    stream, ended = make_stream(near), make_stream(near)
    for at in (4, 8, 12):
        publish(near, stream, at, b"state at %d" % at)
        publish(near, ended, at, b"state at %d" % at)
    assert near.delete(ended).status_code == 204
    assert wait_for(lambda: len(blob_files(lone)) == len(before) + 1)
    assert near.get(f"{stream}/snapshot/12").content == b"state at 12"
    blobs = lone.data_dir / "cold" / "blobs"
    assert wait_for(lambda: not (blobs / ended.split("/")[1]).exists())
    near.delete(stream)
    assert wait_for(lambda: blob_files(lone) == before)


def test_a_fork_keeps_the_snapshot_that_it_shares(lone: Server, near: httpx.Client) -> None:
    before = blob_files(lone)
    stream = make_stream(near)
    fork = f"{stream}-fork"
    publish(near, stream, 8, b"state")
    make(near, fork, {"stream-forked-from": stream})
    assert near.head(fork).headers["stream-snapshot-offset"] == offset(8)
    publish(near, stream, 12, b"later")
    near.delete(stream)
    assert wait_for(lambda: len(blob_files(lone)) == len(before) + 1)
    assert near.get(f"{fork}/snapshot/8").content == b"state"
    near.delete(fork)
    assert wait_for(lambda: blob_files(lone) == before)


def upload(raw: Raw, path: str, size: int, chunked: bool, sent: int | None = None) -> Answer | None:
    """Send a body of so many bytes, or the first of them; the answer if one comes."""
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    raw.ask("PUT", path, length)
    piece = b"x" * MEBIBYTE
    left = size if sent is None else sent
    try:
        while left:
            part = piece[:left]
            raw.send(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
            left -= len(part)
        if chunked and sent is None:
            raw.send(b"0\r\n\r\n")
        return raw.answer()
    except (CutOff, ConnectionError):
        return None


def test_a_body_over_the_limit_is_refused_and_not_kept(lone: Server, near: httpx.Client) -> None:
    before = blob_files(lone)
    stream = make_stream(near)
    with Raw(lone) as raw:
        answer = upload(raw, f"{stream}/snapshot/8", LIMIT + 1, chunked=False, sent=0)
        assert answer is not None
        assert (answer.status, answer.code) == (413, "body_too_large")
    with Raw(lone) as raw:
        answer = upload(raw, f"{stream}/snapshot/8", LIMIT + MEBIBYTE, chunked=True)
        assert answer is None or (answer.status, answer.code) == (413, "body_too_large")
    assert wait_for(lambda: blob_files(lone) == before)
    refused(near.get(f"{stream}/snapshot"), 404, "snapshot_not_found")
    assert content(near, stream) == b"123456789012"


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("way", ["half closed", "hung up", "silent"])
def test_a_body_that_does_not_come_whole_leaves_nothing(
    lone: Server, near: httpx.Client, way: str, chunked: bool
) -> None:
    before = blob_files(lone)
    stream = make_stream(near)
    with Raw(lone) as raw:
        length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {5 * MEBIBYTE}"
        raw.ask("PUT", f"{stream}/snapshot/8", length)
        part = b"x" * (3 * MEBIBYTE)
        raw.send(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
        assert wait_for(lambda: blob_files(lone) != before)
        if way == "half closed":
            raw.finish_sending()
        if way != "hung up":
            try:
                answer = raw.answer()
            except (CutOff, ConnectionError):
                assert way == "half closed"
            else:
                expected = (408, "body_timeout") if way == "silent" else (400, "body_incomplete")
                assert (answer.status, answer.code) == expected
    assert wait_for(lambda: blob_files(lone) == before)
    refused(near.get(f"{stream}/snapshot"), 404, "snapshot_not_found")


def test_a_slow_body_that_makes_progress_is_taken(lone: Server, near: httpx.Client) -> None:
    """2 s are the patience of this server: the whole takes longer."""
    stream = make_stream(near)
    for _ in range(5):
        with Raw(lone) as raw:
            raw.ask("PUT", f"{stream}/snapshot/8", "Content-Length: 6")
            longest, last = 0.0, time.monotonic()
            for _ in range(6):
                time.sleep(0.45)
                raw.send(b"x")
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
            if raw.answer().status == 204:
                break
        assert longest > 1.5, "nothing but a machine that stood still excuses it"
    assert near.get(f"{stream}/snapshot/8").content == b"xxxxxx"


@pytest.mark.parametrize("again", [False, True])
def test_a_stream_that_ends_during_the_upload_has_no_snapshot(
    lone: Server, near: httpx.Client, again: bool
) -> None:
    before = blob_files(lone)
    stream = make_stream(near)
    with Raw(lone) as raw:
        raw.ask("PUT", f"{stream}/snapshot/8", "Content-Length: 40000").send(b"x" * 20_000)
        assert wait_for(lambda: blob_files(lone) != before)
        near.delete(stream)
        if again:
            make(near, stream, BINARY, b"12345678")
        answer = raw.send(b"x" * 20_000).answer()
        assert (answer.status, answer.code) == (404, "stream_not_found")
    assert wait_for(lambda: blob_files(lone) == before)
    if again:
        refused(near.get(f"{stream}/snapshot"), 404, "snapshot_not_found")
        assert content(near, stream) == b"12345678"


def test_appends_go_on_while_a_large_body_hangs_half_way(lone: Server, near: httpx.Client) -> None:
    stream = make_stream(near)
    size = 20 * MEBIBYTE
    with Raw(lone) as raw:
        raw.ask("PUT", f"{stream}/snapshot/8", f"Content-Length: {size}").send(b"x" * (size // 2))
        for _ in range(20):
            post(near, stream, b"more")
        assert content(near, stream) == b"123456789012" + b"more" * 20
        assert raw.send(b"x" * (size // 2)).answer().status == 204
    assert near.get(f"{stream}/snapshot/8", headers={"range": "bytes=-3"}).content == b"xxx"


class Memory:
    """The most memory that a server holds while something goes on."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.before = self.most = server.rss_bytes
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def growth(self) -> int:
        return self.most - self.before

    def _look(self) -> None:
        while not self._over.wait(0.01):
            self.most = max(self.most, self._server.rss_bytes)


@pytest.mark.one_node("measures the memory of one process")
def test_the_largest_body_goes_through_with_flat_memory(lone: Server, near: httpx.Client) -> None:
    stream = make_stream(near)
    flush_all(near)
    with Memory(lone) as uploading, Raw(lone) as raw:
        answer = upload(raw, f"{stream}/snapshot/8", LIMIT, chunked=False)
    assert answer is not None
    assert answer.status == 204
    assert answer.headers["stream-snapshot-digest"] == digest(b"x" * LIMIT)
    assert uploading.growth < 40 * MEBIBYTE
    with Memory(lone) as downloading, Raw(lone) as raw:
        raw.ask("GET", f"{stream}/snapshot/8")
        status, headers = raw.begin()
        assert (status, headers["content-length"]) == (200, str(LIMIT))
        wait_until_clients_are_full(near)
        left = LIMIT
        while left:
            part = raw._exactly(min(left, MEBIBYTE))
            assert part.count(b"x") == len(part)
            left -= len(part)
    assert downloading.growth < 40 * MEBIBYTE
    near.delete(stream)


# Trouble


@pytest.fixture
def troubled(tmp_path: Path) -> Iterator[Server]:
    with any_server(tmp_path / "data") as running:
        yield running


def test_a_snapshot_survives_a_restart_and_a_kill(start_server: StartServer) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        stream = make_stream(api)
        publish(api, stream, 4, b"old")
        publish(api, stream, 8, b"state" * 1000, TEXT)
        with Raw(server) as raw:  # and one that is under way
            raw.ask("PUT", f"{stream}/snapshot/12", "Content-Length: 3000000").send(b"x" * 2_000_000)
            assert wait_for(lambda: any(path.suffix == ".blob" for path in blob_files(server)))
            server.kill()
    server.start()
    for _ in range(2):
        with httpx.Client(base_url=server.url, timeout=60) as api:
            answer = api.get(f"{stream}/snapshot", follow_redirects=True)
            assert answer.content == b"state" * 1000
            assert answer.headers["content-type"] == "text/plain"
            assert answer.headers["stream-snapshot-digest"] == digest(b"state" * 1000)
            shown = api.head(stream).headers
            assert shown["stream-snapshot-offset"] == shown["stream-earliest-offset"] == offset(8)
            assert content(api, stream) == b"9012"
            refused(api.get(stream, params={"offset": "4"}), 410, "offset_trimmed")
            assert not any(path.suffix == ".blob" for path in blob_files(server)), "half a blob is no blob"
        server.restart()


def test_a_snapshot_whose_file_is_lost_or_short_is_not_sent(troubled: Server) -> None:
    with httpx.Client(base_url=troubled.url, timeout=60) as api:
        stream = make_stream(api)
        publish(api, stream, 8, b"0123456789")
        (blob,) = blob_files(troubled)
        for damage, words in ((lambda: blob.write_bytes(b"01234"), "5 bytes"), (blob.unlink, "lost")):
            damage()
            for part in (f"snapshot/{offset(8)}", "bootstrap"):
                answer = api.get(f"{stream}/{part}")
                message = answer.json()["error"]["message"]
                refused(answer, 500, "object_damaged")
                assert words in message
            assert api.head(f"{stream}/snapshot/8").status_code == 500
        assert content(api, stream) == b"9012", "the stream itself is as before"
        publish(api, stream, 12, b"better")
        assert api.get(f"{stream}/snapshot/12").content == b"better"


def test_a_disk_that_does_not_take_it_is_told_and_nothing_is_left(troubled: Server) -> None:
    cold = troubled.data_dir / "cold"
    with httpx.Client(base_url=troubled.url, timeout=60) as api:
        stream = make_stream(api)
        publish(api, stream, 4, b"first")
        kept = cold.with_name("kept")
        for place in (cold, cold / "blobs"):
            place.rename(kept)
            place.write_bytes(b"in the way")
            answer = api.put(f"{stream}/snapshot/8", headers=BINARY, content=b"state")
            refused(answer, 503, "store_unavailable")
            assert answer.headers["retry-after"] == "1"
            place.unlink()
            kept.rename(place)
        assert [path.read_bytes() for path in blob_files(troubled)] == [b"first"]
        assert api.get(f"{stream}/snapshot/4").content == b"first"
        publish(api, stream, 8, b"state")
        assert api.get(f"{stream}/snapshot/8").content == b"state"


def test_a_blob_whose_unfinished_file_was_taken_away_is_told(troubled: Server) -> None:
    with httpx.Client(base_url=troubled.url, timeout=60) as api:
        stream = make_stream(api)
        with Raw(troubled) as raw:
            raw.ask("PUT", f"{stream}/snapshot/8", "Content-Length: 6").send(b"abc")
            assert wait_for(lambda: len(blob_files(troubled)) == 1)
            for path in blob_files(troubled):
                path.unlink()
            answer = raw.send(b"def").answer()
            assert (answer.status, answer.code) == (503, "store_unavailable")
        assert ask(troubled, "GET", "/readyz/local").status == 200
