"""Bootstrap: the snapshot and every message after it, as the parts of one answer."""

import email
import email.policy
import re
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest
from tests.http.raw import Raw, is_held_up
from tests.http.signs import wait_until_clients_are_full
from tests.http.surface import MEBIBYTE, flush_all, frames, impatient_server, make_bucket
from tests.http.wire import BINARY, CLOSED, JSON, TEXT, make, offset, post, refused
from tests.server import Server
from tests.waiting import wait_for


class Part(NamedTuple):
    """One part of an answer."""

    content_type: str
    body: bytes


def parts_of(answer: httpx.Response) -> list[Part]:
    """The parts of a multipart answer, by a parser that takes nothing but what RFC 2046 says."""
    assert answer.status_code == 200, answer.text
    match = re.fullmatch(r"multipart/mixed; boundary=([0-9A-Za-z'()+_,./:=?-]{1,70})", type_of(answer))
    assert match is not None
    boundary = match[1].encode()
    body = answer.content
    assert body.startswith(b"--" + boundary + b"\r\n")
    end = b"\r\n--" + boundary + b"--\r\n"
    assert body.endswith(end)
    parts = (b"\r\n" + body.removesuffix(end)).split(b"\r\n--" + boundary)
    assert parts[0] == b""
    found = []
    for part in parts[1:]:
        assert part.startswith(b"\r\n")
        head, separator, payload = part[2:].partition(b"\r\n\r\n")
        assert separator
        (name, _, value) = head.decode().partition(": ")
        assert name == "Content-Type"
        found.append(Part(value, payload))
    return found


def type_of(answer: httpx.Response) -> str:
    return answer.headers["content-type"]


def bootstrap(api: httpx.Client, stream: str) -> httpx.Response:
    return api.get(f"{stream}/bootstrap")


def publish(api: httpx.Client, stream: str, at: int, body: bytes, headers: dict[str, str]) -> None:
    answer = api.put(f"{stream}/snapshot/{at}", headers=headers, content=body)
    assert answer.status_code == 204, answer.text


NASTY = (
    b"\r\n",
    b"--",
    b"\r\n--x\r\nContent-Type: text/plain\r\n\r\nsmuggled",
    b"--0123456789abcdef0123456789abcdef--\r\n",
    b"\n\n\r\r",
    bytes(range(256)),
    b"\0",
    b"Content-Type: text/html\r\n\r\n",
)


def test_without_a_snapshot_the_first_part_is_empty(api: httpx.Client) -> None:
    stream = f"{make_bucket(api)}/s"
    make(api, stream, TEXT, b"one")
    post(api, stream, b"two", TEXT)
    answer = bootstrap(api, stream)
    assert parts_of(answer) == [
        Part("application/octet-stream", b""),
        Part("text/plain", b"one"),
        Part("text/plain", b"two"),
    ]
    assert answer.headers["stream-snapshot-offset"] == "none"
    assert answer.headers["stream-next-offset"] == offset(6)
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["stream-incarnation"] == api.head(stream).headers["stream-incarnation"]
    assert "stream-closed" not in answer.headers


@pytest.mark.parametrize("trim", ["true", "false"])
def test_with_a_snapshot_it_goes_on_from_there(api: httpx.Client, trim: str) -> None:
    stream = f"{make_bucket(api)}/s"
    make(api, stream, JSON, b"[1,22,333]")
    post(api, stream, b'[{"a":\r\n4},5]', JSON)
    path = f"{stream}/snapshot/3?trim={trim}"
    assert api.put(path, headers={"content-type": "application/xml"}, content=b"<state/>").status_code == 204
    answer = bootstrap(api, stream)
    assert parts_of(answer) == [
        Part("application/xml", b"<state/>"),
        Part("application/json", b"333"),
        Part("application/json", b'{"a":\r\n4}'),
        Part("application/json", b"5"),
    ]
    assert answer.headers["stream-snapshot-offset"] == offset(3)
    assert answer.headers["stream-next-offset"] == api.head(stream).headers["stream-next-offset"]


def test_an_empty_stream_has_one_empty_part(api: httpx.Client) -> None:
    stream = f"{make_bucket(api)}/s"
    make(api, stream, {**JSON, **CLOSED})
    answer = bootstrap(api, stream)
    assert parts_of(answer) == [Part("application/octet-stream", b"")]
    assert answer.headers["stream-closed"] == "true"
    assert answer.headers["stream-next-offset"] == offset(0)


def test_a_closed_stream_says_so(api: httpx.Client) -> None:
    stream = f"{make_bucket(api)}/s"
    make(api, stream, TEXT, b"one")
    publish(api, stream, 3, b"state", TEXT)
    post(api, stream, b"two", {**TEXT, **CLOSED})
    answer = bootstrap(api, stream)
    assert parts_of(answer) == [Part("text/plain", b"state"), Part("text/plain", b"two")]
    assert answer.headers["stream-closed"] == "true"
    assert answer.headers["stream-up-to-date"] == "true"


def test_each_append_is_a_part_whatever_it_holds(api: httpx.Client) -> None:
    stream = f"{make_bucket(api)}/s"
    make(api, stream)
    post(api, stream, b"before")
    publish(api, stream, 6, NASTY[2], BINARY)
    for payload in NASTY[:4]:
        post(api, stream, payload)
    assert api.post(f"{stream}/append-batch", headers=BINARY, content=frames(*NASTY[4:])).status_code == 200
    found = parts_of(bootstrap(api, stream))
    assert [part.body for part in found] == [NASTY[2], *NASTY]
    assert {part.content_type for part in found} == {"application/octet-stream"}


def test_the_boundary_is_another_each_time(api: httpx.Client) -> None:
    stream = f"{make_bucket(api)}/s"
    make(api, stream, TEXT, b"x")
    assert len({type_of(bootstrap(api, stream)) for _ in range(5)}) == 5


def test_an_answer_with_another_boundary_inside_can_be_told_apart(api: httpx.Client) -> None:
    stream = f"{make_bucket(api)}/s"
    make(api, stream, BINARY, b"x")
    for _ in range(3):
        post(api, stream, bootstrap(api, stream).content)
    assert len(parts_of(bootstrap(api, stream))) == 5


@pytest.mark.parametrize("headers", [TEXT, JSON, {"content-type": "text/plain; charset=utf-8"}])
def test_the_email_package_of_python_reads_it_too(api: httpx.Client, headers: dict[str, str]) -> None:
    stream = f"{make_bucket(api)}/s"
    make(api, stream, headers, b'"one"')
    post(api, stream, b'"two"', headers)
    publish(api, stream, 5, b"state", TEXT)
    answer = bootstrap(api, stream)
    text = b"Content-Type: %b\r\n\r\n%b" % (type_of(answer).encode(), answer.content)
    message = email.message_from_bytes(text, policy=email.policy.HTTP)
    assert message.is_multipart()
    assert message.defects == []
    found = [
        (str(part["content-type"]).replace('"', ""), part.get_payload(decode=True))
        for part in message.iter_parts()
    ]
    assert found == [("text/plain", b"state"), (headers["content-type"], b'"two"')]


def test_a_fork_has_the_parts_of_its_source(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    source, fork = f"{bucket}/source", f"{bucket}/fork"
    make(api, source, TEXT)
    for word in (b"one", b"two", b"six", b"ten"):
        post(api, source, word, TEXT)
    publish(api, source, 3, b"state", TEXT)
    forked = {"stream-forked-from": source, "stream-fork-offset": "6", "stream-fork-sub-offset": "2"}
    make(api, fork, forked, b"own")
    publish(api, source, 12, b"later", TEXT)
    answer = bootstrap(api, fork)
    assert [part.body for part in parts_of(answer)] == [b"state", b"two", b"si", b"own"]
    assert answer.headers["stream-snapshot-offset"] == offset(3)
    assert answer.headers["stream-next-offset"] == offset(11)


def test_it_does_not_wait(api: httpx.Client) -> None:
    stream = f"{make_bucket(api)}/s"
    make(api, stream, TEXT)
    for live in ("sse", "long-poll", "", "no"):
        refused(api.get(f"{stream}/bootstrap", params={"live": live}), 400, "invalid_parameter")
    assert api.get(f"{stream}/bootstrap", params={"other": "x"}).status_code == 200


def test_reading_it_keeps_a_stream_alive(timed_server: Server, timed_api: httpx.Client) -> None:
    stream = f"{make_bucket(timed_api)}/s"
    make(timed_api, stream, {**TEXT, "stream-ttl": "1000"}, b"x")
    for _ in range(3):
        timed_server.pass_time(600)
        assert bootstrap(timed_api, stream).status_code == 200
    timed_server.pass_time(1001)
    assert wait_for(lambda: timed_api.head(stream).status_code == 404)


# Large ones


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with impatient_server(tmp_path_factory.mktemp("lone")) as running:
        yield running
        assert running.complaints() == []


@pytest.fixture(scope="module")
def near(lone: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=lone.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def large(near: httpx.Client) -> str:
    """A stream of 20 MiB after a snapshot of 20 MiB."""
    stream = f"{make_bucket(near)}/large"
    make(near, stream, BINARY, b"old")
    publish(near, stream, 3, b"s" * 20 * MEBIBYTE, TEXT)
    for number in range(20):
        body = frames(*[b"%05d" % (number * 16 + count) * 13107 for count in range(16)])
        assert near.post(f"{stream}/append-batch", headers=BINARY, content=body).status_code == 200
    return stream


def wait_until_no_scratch_files(server: Server) -> None:
    give_up_at = time.monotonic() + 60
    while any((server.data_dir / "tmp").iterdir()):
        assert time.monotonic() < give_up_at, "it leaves a file behind"
        time.sleep(0.05)


@pytest.mark.one_node("looks into the folder of one node")
def test_a_large_one_comes_whole(lone: Server, near: httpx.Client, large: str) -> None:
    answer = bootstrap(near, large)
    found = parts_of(answer)
    assert len(found) == 321
    assert found[0] == Part("text/plain", b"s" * 20 * MEBIBYTE)
    for number, part in enumerate(found[1:]):
        assert part == Part("application/octet-stream", b"%05d" % number * 13107)
    assert int(answer.headers["content-length"]) == len(answer.content)
    wait_until_no_scratch_files(lone)


@pytest.mark.one_node("measures the memory of one process")
def test_a_large_one_takes_no_memory_however_slow_the_client(
    lone: Server, near: httpx.Client, large: str
) -> None:
    flush_all(near)
    bootstrap(near, large)
    before = lone.rss_bytes
    connections = [Raw(lone) for _ in range(5)]
    for raw in connections:
        raw.ask("GET", f"{large}/bootstrap")
    for raw in connections:
        raw.begin()
    most = lone.rss_bytes
    wait_until_clients_are_full(near)
    most = max(most, lone.rss_bytes)
    for raw in connections:
        raw.close()
    assert most - before < 40 * MEBIBYTE, "200 MiB were asked for"


@pytest.mark.one_node("looks into the folder of one node")
def test_a_client_that_is_slow_still_gets_all_of_it(lone: Server, near: httpx.Client, large: str) -> None:
    """The file is gone by its name when the last byte is sent."""
    with Raw(lone) as raw:
        raw.ask("GET", f"{large}/bootstrap")
        _, headers = raw.begin()
        wait_until_no_scratch_files(lone)
        left = int(headers["content-length"])
        while left:
            left -= len(raw._exactly(min(left, 4 * MEBIBYTE)))


def test_appends_go_on_while_large_ones_are_put_together(
    lone: Server, near: httpx.Client, large: str
) -> None:
    other = f"{make_bucket(near)}/s"
    make(near, other)
    assert not is_held_up(lone, f"{large}/bootstrap", lambda: post(near, other, b"x"))


@pytest.fixture(scope="module")
def tiny(near: httpx.Client) -> str:
    """A stream of half a million numbers, in less than a mebibyte."""
    stream = f"{make_bucket(near)}/tiny"
    make(near, stream, JSON)
    for _ in range(8):
        post(near, stream, b"[" + b",".join([b"7"] * 65_536) + b"]", JSON)
    return stream


@pytest.mark.one_node("measures the memory of one process")
def test_many_small_messages_are_a_large_answer_too(lone: Server, near: httpx.Client, tiny: str) -> None:
    """What lies between the parts is far more than what is in them."""
    flush_all(near)
    found = parts_of(bootstrap(near, tiny))
    assert len(found) == 8 * 65_536 + 1
    assert set(found[1:]) == {Part("application/json", b"7")}
    before = most = lone.rss_bytes
    connections = [Raw(lone).ask("GET", f"{tiny}/bootstrap") for _ in range(5)]
    while not all(raw.has_news() for raw in connections):
        most = max(most, lone.rss_bytes)
        time.sleep(0.01)
    for raw in connections:
        assert raw.begin()[0] == 200
        raw.close()
    assert most - before < 80 * MEBIBYTE, "all answers together are more than twice as large"
    make(near, f"{tiny}-other")
    assert not is_held_up(lone, f"{tiny}/bootstrap", lambda: post(near, f"{tiny}-other", b"x"))


@pytest.mark.one_node("looks into the folder of one node")
def test_a_folder_that_was_taken_away_is_made_again(lone: Server, near: httpx.Client, large: str) -> None:
    (lone.data_dir / "tmp").rename(lone.data_dir / "taken")  # at once: the server removes files there too
    assert len(parts_of(bootstrap(near, large))) == 321


@pytest.mark.one_node("looks into the folder of one node")
def test_a_disk_without_room_is_told(lone: Server, near: httpx.Client, large: str) -> None:
    place, kept = lone.data_dir / "tmp", lone.data_dir / "kept"
    place.rename(kept)
    place.write_bytes(b"in the way")
    try:
        refused(bootstrap(near, large), 503, "unavailable")
    finally:
        place.unlink()
        kept.rename(place)
    assert bootstrap(near, large).status_code == 200


def test_what_is_trimmed_while_it_is_put_together_is_left_out(lone: Server, near: httpx.Client) -> None:
    """Each answer is of one moment: a snapshot, and just what comes after it."""
    stream = f"{make_bucket(near)}/s"
    size, messages = 100_000, 60
    make(near, stream)

    def write() -> None:
        with httpx.Client(base_url=lone.url, timeout=60) as api:
            for number in range(messages):
                post(api, stream, b"%04d" % number * (size // 4))
                if number % 4 == 3:
                    publish(api, stream, size * (number - 1), b"%d" % (number - 1), TEXT)

    writer = threading.Thread(target=write)
    writer.start()
    rounds = 0
    while writer.is_alive() or rounds == 0:
        rounds += 1
        answer = bootstrap(near, stream)
        snapshot, *rest = parts_of(answer)
        first = 0
        if answer.headers["stream-snapshot-offset"] != "none":
            first = int(snapshot.body)
            assert int(answer.headers["stream-snapshot-offset"]) == first * size
        expected = [b"%04d" % number * (size // 4) for number in range(first, first + len(rest))]
        assert [part.body for part in rest] == expected
        assert int(answer.headers["stream-next-offset"]) == (first + len(rest)) * size
    writer.join()
    assert int(near.head(stream).headers["stream-next-offset"]) == size * messages


def test_a_stream_that_is_made_anew_meanwhile_is_missing_or_answered_as_one_of_them(
    lone: Server, near: httpx.Client
) -> None:
    """Nobody asked for an incarnation, so none is missed."""
    stream = f"{make_bucket(near)}/s"
    old = frames(*[b"old" * 30_000 for _ in range(250)])
    for turn in range(3):
        make(near, stream)
        assert near.post(f"{stream}/append-batch", headers=BINARY, content=old).status_code == 200
        readers = [Raw(lone).ask("GET", f"{stream}/bootstrap") for _ in range(4)]
        time.sleep(0.05 * turn)
        with Raw(lone) as raw:
            assert raw.ask("DELETE", stream).answer().status == 204
            assert raw.ask("PUT", stream, "Content-Type: text/plain", body=b"new").answer().status == 201
        for reader in readers:
            answer = reader.answer()
            reader.close()
            assert answer.status in (200, 404), answer.body
            if answer.status == 200:
                assert answer.headers["stream-next-offset"] in (offset(3), offset(22_500_000))
                assert (b"old" in answer.body) is not (b"new" in answer.body)
        near.delete(stream)
