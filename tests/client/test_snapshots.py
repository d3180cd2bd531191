"""Snapshots, trimming and bootstrap through the client."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.conftest import Connect
from tests.client.proxy import CUT_AFTER, CUT_BEFORE, Fault, Proxy

from ursula.client import Client, Gone, Message, NotFound, OutcomeUnknown, Refused, Start
from ursula.client.formats.multipart import PartReader

JSON = "application/json"


def test_a_snapshot_is_published_and_read(client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create(JSON)
    assert stream.latest_snapshot() is None
    offset = stream.append_json(1, 2).next_offset
    published = stream.publish_snapshot(offset, b'{"sum":3}', content_type=JSON)
    assert published.offset == offset
    assert published.digest == "sha256:" + hashlib.sha256(b'{"sum":3}').hexdigest()
    assert stream.head().snapshot_offset == offset
    for snapshot in (stream.latest_snapshot(), stream.read_snapshot(offset)):
        assert snapshot is not None
        assert (snapshot.offset, snapshot.content_type, snapshot.data) == (offset, JSON, b'{"sum":3}')
    with pytest.raises(Refused) as refused:
        stream.delete_snapshot(offset)
    assert refused.value.code == "snapshot_conflict"
    with pytest.raises(NotFound):
        stream.read_snapshot("0" * 20)


def test_a_snapshot_lets_the_data_before_it_go(client: Client, name: str) -> None:
    stream = client.stream(name)
    first = stream.create("text/plain", body="one").next_offset
    second = stream.append("two").next_offset
    stream.append("three")
    stream.publish_snapshot(second, b"", trim=False)
    assert stream.read().data == b"onetwothree"
    assert stream.trim(first) == first
    assert stream.head().earliest_offset == first
    assert stream.read().data == b"twothree"
    stream.publish_snapshot(second, b"")
    assert stream.trim(second) == second
    with pytest.raises(Gone) as gone:
        stream.read(first)
    assert gone.value.code == "offset_trimmed"
    assert stream.read().data == b"three"


def test_a_file_is_published_and_saved_as_it_goes(client: Client, name: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 8000
    given_file, saved = tmp_path / "given", tmp_path / "saved"
    given_file.write_bytes(content)
    stream = client.stream(name)
    offset = stream.create(body=b"x").next_offset
    assert stream.save_snapshot(saved) is None
    stream.publish_snapshot(offset, given_file)
    snapshot = stream.save_snapshot(saved)
    assert snapshot is not None
    assert (snapshot.offset, snapshot.data) == (offset, b"")
    assert saved.read_bytes() == content
    stream.save_snapshot(saved, offset)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given", "saved"]


def test_publishing_is_repeated_when_its_answer_was_lost(
    connect: Connect, proxy: Proxy, client: Client, name: str, tmp_path: Path
) -> None:
    given_file = tmp_path / "given"
    given_file.write_bytes(b"z" * 100_000)
    offset = client.stream(name).create(body=b"x").next_offset
    proxy.faults["PUT"] += [CUT_BEFORE, CUT_AFTER]
    connect(proxy.url).stream(name).publish_snapshot(offset, given_file)
    latest = client.stream(name).latest_snapshot()
    assert latest is not None
    assert latest.data == b"z" * 100_000


def test_a_snapshot_that_is_cut_off_leaves_no_file(
    connect: Connect, proxy: Proxy, client: Client, name: str, tmp_path: Path
) -> None:
    stream = client.stream(name)
    offset = stream.create(body=b"x").next_offset
    stream.publish_snapshot(offset, b"z" * 100_000)
    proxy.faults["GET"].append(Fault(cut_after_bytes=5000))
    with pytest.raises(OutcomeUnknown):
        connect(proxy.url).stream(name).save_snapshot(tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content_type", "values"),
    [
        (JSON, [1, [2], {"a": "\r\n--"}, "x" * 5000]),
        ("application/octet-stream", [b"\r\n", b"--", b"\x00\xff" * 3000]),
        ("text/plain", [b"one", b"two"]),
    ],
)
def test_bootstrap_gives_the_snapshot_and_what_came_after(
    client: Client, name: str, content_type: str, values: list[object]
) -> None:
    stream = client.stream(name)
    before = stream.create(content_type, body='"before"').next_offset
    start, message = stream.bootstrap()
    assert isinstance(start, Start)
    assert (start.snapshot_offset, start.data, start.content_type) == (None, b"", "application/octet-stream")
    assert isinstance(message, Message)
    assert message.next_offset == start.next_offset == before
    stream.publish_snapshot(before, b"state\r\n--", content_type="application/x-state")
    for value in values:
        stream.append(json.dumps([value]) if content_type == JSON else value)  # type: ignore[arg-type]
    stream.close()
    start, *messages = stream.bootstrap()
    assert isinstance(start, Start)
    assert (start.snapshot_offset, start.data, start.content_type) == (
        before,
        b"state\r\n--",
        "application/x-state",
    )
    assert start.closed
    assert [message.value for message in messages if isinstance(message, Message)] == values
    assert isinstance(messages[-1], Message)
    assert messages[-1].next_offset == start.next_offset == stream.head().next_offset


def test_a_bootstrap_that_is_cut_off_is_noticed(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    stream = client.stream(name)
    stream.create()
    for _ in range(20):
        stream.append(b"x" * 1000)
    proxy.faults["GET"].append(Fault(cut_after_bytes=9000))
    with pytest.raises(OutcomeUnknown):
        list(connect(proxy.url).stream(name).bootstrap())


@given(
    st.lists(st.binary(max_size=30) | st.sampled_from([b"\r\n", b"\r\n--", b"--b", b"\r"])),
    st.lists(st.integers(1, 9)),
)
def test_parts_come_back_whatever_the_cuts(bodies: list[bytes], cuts: list[int]) -> None:
    bodies = [body for body in bodies if b"--bound" not in body]
    encoded = b"".join(b"\r\n--bound\r\nContent-Type: x/y\r\n\r\n" + body for body in bodies)
    rest = (encoded + b"\r\n--bound--\r\n")[2:]
    reader = PartReader('multipart/mixed; boundary="bound"')
    parts = []
    for cut in cuts:
        parts += reader.feed(rest[:cut])
        rest = rest[cut:]
    parts += reader.feed(rest)
    assert [part.body for part in parts] == bodies
    assert all(part.headers["content-type"] == "x/y" for part in parts)
    assert reader.ended
