"""Retention: what a snapshot makes dispensable is dropped, at once or when asked, and every read knows."""

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.events import Events
from tests.http.raw import Raw, ask
from tests.http.surface import feed, make_bucket
from tests.http.wire import BINARY, CLOSED, JSON, TEXT, content, make, offset, post, refused
from tests.server import Server


@pytest.fixture
def stream(api: httpx.Client) -> str:
    """A stream of three appends of four bytes."""
    path = f"{make_bucket(api)}/s"
    make(api, path, TEXT)
    for part in (b"1234", b"5678", b"9012"):
        post(api, path, part, TEXT)
    return path


def publish(api: httpx.Client, stream: str, at: int, query: str = "") -> httpx.Response:
    answer = api.put(f"{stream}/snapshot/{at}{query}", content=b"state at %d" % at)
    assert answer.status_code == 204, answer.text
    return answer


def trim(api: httpx.Client, stream: str, at: int, status: int = 204) -> httpx.Response:
    answer = api.put(f"{stream}/retention/{at}")
    assert answer.status_code == status, answer.text
    return answer


READS = {
    "at once": "?offset={at}",
    "long-poll": "?offset={at}&live=long-poll",
    "events": "?offset={at}&live=sse",
    "few bytes": "?offset={at}&max_bytes=1",
}


@pytest.mark.parametrize("mode", READS)
def test_what_is_trimmed_is_gone_in_every_mode(
    server: Server, api: httpx.Client, stream: str, mode: str
) -> None:
    publish(api, stream, 8)
    for at in (0, 1, 4, 7):
        answer = ask(server, "GET", stream + READS[mode].format(at=at))
        assert (answer.status, answer.code) == (410, "offset_trimmed")
        assert answer.headers["stream-earliest-offset"] == offset(8)
        assert answer.headers["stream-incarnation"]
    answer = ask(server, "GET", f"{stream}?offset=-1&live=sse", "Last-Event-ID: " + offset(4))
    assert (answer.status, answer.code) == (410, "offset_trimmed")


def test_from_the_beginning_means_from_what_is_kept(server: Server, api: httpx.Client, stream: str) -> None:
    publish(api, stream, 8)
    assert content(api, stream) == b"9012"
    assert api.get(stream, params={"offset": "8"}).content == b"9012"
    assert api.get(stream, params={"offset": "10"}).content == b"12"
    assert api.get(stream).headers["etag"].split(":")[1:] == ["8", '12"']
    assert api.get(stream, params={"offset": "-1", "live": "long-poll"}).content == b"9012"
    with Events(server, stream) as events:
        assert events.data() == b"9012"
        assert events.control()["streamNextOffset"] == offset(12)


def test_head_tells_what_is_kept_and_where_the_snapshot_is(api: httpx.Client, stream: str) -> None:
    before = api.head(stream).headers
    assert "stream-earliest-offset" not in before
    assert "stream-snapshot-offset" not in before
    publish(api, stream, 8, "?trim=false")
    head = api.head(stream).headers
    assert head["stream-snapshot-offset"] == offset(8)
    assert "stream-earliest-offset" not in head
    trim(api, stream, 4)
    head = api.head(stream).headers
    assert head["stream-snapshot-offset"] == offset(8)
    assert head["stream-earliest-offset"] == offset(4)
    assert head["stream-next-offset"] == offset(12)
    assert head["etag"] == before["etag"], "the stream ends where it did"


def test_without_trim_everything_stays_until_it_is_asked_for(api: httpx.Client, stream: str) -> None:
    publish(api, stream, 8, "?trim=false")
    assert content(api, stream) == b"123456789012"
    told = trim(api, stream, 4)
    assert told.headers["stream-earliest-offset"] == offset(4)
    assert told.headers["stream-next-offset"] == offset(12)
    assert content(api, stream) == b"56789012"
    assert trim(api, stream, 4).headers["stream-earliest-offset"] == offset(4), "again is no conflict"
    trim(api, stream, 8)
    assert content(api, stream) == b"9012"
    kinds = [line["kind"] for line in feed(api, stream.rpartition("/")[0])]
    assert kinds[-3:] == ["snapshot", "trim", "trim"]


def test_trimming_has_its_limits(api: httpx.Client, stream: str) -> None:
    refused(trim(api, stream, 0, 409), 409, "snapshot_conflict")
    refused(trim(api, stream, 4, 409), 409, "snapshot_conflict")
    publish(api, stream, 8, "?trim=false")
    refused(trim(api, stream, 12, 409), 409, "snapshot_conflict")
    refused(trim(api, stream, 13, 409), 409, "snapshot_conflict")
    refused(trim(api, stream, 6, 400), 400, "invalid_offset")
    trim(api, stream, 8)
    refused(trim(api, stream, 4, 409), 409, "snapshot_conflict")
    refused(trim(api, stream, 0, 409), 409, "snapshot_conflict")
    assert content(api, stream) == b"9012"


def test_the_same_snapshot_again_can_trim_what_it_did_not(api: httpx.Client, stream: str) -> None:
    publish(api, stream, 8, "?trim=false")
    publish(api, stream, 8)
    assert content(api, stream) == b"9012"
    assert api.get(f"{stream}/snapshot/8").content == b"state at 8"


def test_a_json_stream_is_trimmed_between_messages(api: httpx.Client) -> None:
    stream = f"{make_bucket(api)}/s"
    make(api, stream, JSON, b'["ab","cd","ef"]')
    assert api.put(f"{stream}/snapshot/12?trim=false", content=b"x").status_code == 204
    refused(trim(api, stream, 6, 400), 400, "invalid_offset")
    trim(api, stream, 8)
    assert content(api, stream) == b'["ef"]'
    trim(api, stream, 12)
    assert content(api, stream) == b"[]"
    post(api, stream, b'"gh"', JSON)
    assert content(api, stream) == b'["gh"]'


def test_a_stream_trimmed_to_its_end_goes_on(api: httpx.Client, stream: str) -> None:
    publish(api, stream, 12)
    assert content(api, stream) == b""
    post(api, stream, b"more", TEXT)
    assert content(api, stream) == b"more"
    assert api.head(stream).headers["stream-next-offset"] == offset(16)
    publish(api, stream, 16)
    post(api, stream, b"", CLOSED)
    answer = api.get(stream)
    assert (answer.content, answer.headers["stream-closed"]) == (b"", "true")


def test_who_follows_live_does_not_notice(server: Server, api: httpx.Client, stream: str) -> None:
    with Events(server, stream, offset(12)) as events, Raw(server) as raw:
        events.control()
        raw.ask("GET", f"{stream}?offset=12&live=long-poll&timeout=10")
        assert raw.is_silent_for(0.1)
        publish(api, stream, 12)
        assert events.is_silent_for(0.1)
        post(api, stream, b"more", TEXT)
        assert events.data() == b"more"
        assert raw.answer().body == b"more"


def test_who_waits_at_what_is_trimmed_is_told(server: Server, api: httpx.Client, stream: str) -> None:
    """A long-poll waits at 12; two messages later its place is gone."""
    with Raw(server) as raw:
        raw.ask("GET", f"{stream}?offset=12&live=long-poll&timeout=10")
        assert raw.is_silent_for(0.05)
        post(api, stream, b"more", TEXT)
        publish(api, stream, 16)
        assert raw.answer().body == b"more"
    refused(api.get(stream, params={"offset": "12", "live": "long-poll"}), 410, "offset_trimmed")


# Forks


def test_a_fork_keeps_what_it_shares_when_its_source_trims(api: httpx.Client, stream: str) -> None:
    fork = f"{stream}-fork"
    make(api, fork, {"stream-forked-from": stream, "stream-fork-offset": "8"}, b"own")
    publish(api, stream, 12)
    assert content(api, stream) == b""
    assert content(api, fork) == b"12345678own"
    assert "stream-earliest-offset" not in api.head(fork).headers
    api.delete(stream)
    assert content(api, fork) == b"12345678own"


def test_a_trimmed_stream_is_forked_only_where_it_is_kept(api: httpx.Client, stream: str) -> None:
    publish(api, stream, 8)
    for at in (0, 4, 7):
        headers = {"stream-forked-from": stream, "stream-fork-offset": str(at)}
        answer = api.put(f"{stream}-fork", headers=headers)
        refused(answer, 410, "offset_trimmed")
        assert answer.headers["stream-earliest-offset"] == offset(8)
    make(api, f"{stream}-fork", {"stream-forked-from": stream, "stream-fork-offset": "8"}, b"own")
    assert content(api, f"{stream}-fork") == b"own"
    make(api, f"{stream}-other", {"stream-forked-from": stream}, b"own")
    assert content(api, f"{stream}-other") == b"9012own"
    head = api.head(f"{stream}-other").headers
    assert head["stream-earliest-offset"] == offset(8)
    assert head["stream-snapshot-offset"] == offset(8)
    refused(api.get(f"{stream}-other", params={"offset": "4"}), 410, "offset_trimmed")


def test_a_fork_can_trim_what_it_shares(api: httpx.Client, stream: str) -> None:
    fork = f"{stream}-fork"
    make(api, fork, {"stream-forked-from": stream, "stream-fork-offset": "8"}, b"own!")
    publish(api, fork, 4)
    assert content(api, fork) == b"5678own!"
    assert content(api, stream) == b"123456789012"
    publish(api, fork, 12)
    assert content(api, fork) == b""
    post(api, fork, b"more", TEXT)
    assert content(api, fork) == b"more"
    assert content(api, stream) == b"123456789012"


def test_a_chain_of_forks_is_trimmed_link_by_link(api: httpx.Client, stream: str) -> None:
    first, second = f"{stream}-1", f"{stream}-2"
    make(api, first, {"stream-forked-from": stream}, b"abcd")
    make(api, second, {"stream-forked-from": first}, b"efgh")
    publish(api, stream, 12)
    publish(api, first, 16)
    assert content(api, second) == b"123456789012abcdefgh"
    api.delete(stream)
    api.delete(first)
    assert content(api, second) == b"123456789012abcdefgh"
    publish(api, second, 8)
    assert content(api, second) == b"9012abcdefgh"


def test_trims_survive_a_restart(start_server: StartServer) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        path = f"{make_bucket(api)}/s"
        make(api, path, BINARY)
        for part in (b"1234", b"5678", b"9012"):
            post(api, path, part)
        make(api, f"{path}-fork", {"stream-forked-from": path, "stream-fork-offset": "8"}, b"own")
        publish(api, path, 8, "?trim=false")
        trim(api, path, 4)
    server.kill()
    server.start()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        assert content(api, path) == b"56789012"
        assert content(api, f"{path}-fork") == b"12345678own"
        refused(api.get(path, params={"offset": "0"}), 410, "offset_trimmed")
        assert api.head(path).headers["stream-earliest-offset"] == offset(4)
        trim(api, path, 8)
        assert content(api, path) == b"9012"
