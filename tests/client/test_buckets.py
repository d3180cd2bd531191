"""Buckets, listings, attributes, batches and records through the client."""

import threading
import time
from typing import Any

import pytest
from tests.client.conftest import Connect, wait_for_a_follower
from tests.client.proxy import Proxy
from tests.server import Server

from ursula.client import Batching, Client, NotFound, PreconditionFailed, Record, Refused

JSON = "application/json"


@pytest.fixture
def own_bucket(client: Client, name: str) -> str:
    """A bucket that no other test uses."""
    own = name.replace("/", "-")
    client.bucket(own).create()
    return own


def test_a_bucket_is_made_filled_and_deleted(client: Client, name: str) -> None:
    bucket = client.bucket(name.replace("/", "-"))
    assert bucket.create()
    assert not bucket.create()
    stream = client.stream(f"{bucket.name}/one")
    stream.create()
    assert bucket.info().streams == 1
    with pytest.raises(Refused) as refused:
        bucket.delete()
    assert (refused.value.code, refused.value.status) == ("bucket_not_empty", 409)
    stream.delete()
    bucket.delete()
    with pytest.raises(NotFound) as missing:
        bucket.info()
    assert missing.value.code == "bucket_not_found"


def test_all_streams_are_listed_over_the_pages(client: Client, own_bucket: str) -> None:
    ids = [f"s{number}" for number in range(7)] + ["other"]
    for stream_id in ids:
        client.stream(f"{own_bucket}/{stream_id}").create("text/plain", body="12345")
    client.stream(f"{own_bucket}/s3").close()
    bucket = client.bucket(own_bucket)
    assert [stream.stream_id for stream in bucket.streams(page_size=3)] == sorted(ids)
    listed = list(bucket.streams(prefix="s", after="s1", page_size=2))
    assert [stream.stream_id for stream in listed] == ["s2", "s3", "s4", "s5", "s6"]
    assert [stream.status for stream in listed[:2]] == ["open", "closed"]
    assert listed[0].tail_offset == client.stream(f"{own_bucket}/s2").head().next_offset
    assert listed[0].content_type == "text/plain"
    assert abs(listed[0].created_at_ms / 1000 - time.time()) < 60


def test_all_buckets_are_listed(client: Client, own_bucket: str) -> None:
    assert own_bucket in [bucket.bucket_id for bucket in client.buckets()]


def test_attributes_are_set_replaced_and_cleared(client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create(attributes={"title": "ä first"})
    assert stream.attributes() == {"title": "ä first"}
    stream.close()
    stream.set_attributes({"metadata": {"a": [1]}})
    assert stream.attributes() == {"metadata": {"a": [1]}}
    stream.clear_attributes()
    assert stream.attributes() == {}


def test_what_the_flat_route_does_not_have_is_said_before_anything_is_sent(client: Client) -> None:
    with pytest.raises(ValueError, match="flat route only"):
        client.stream("a/b/c").attributes()


def test_a_batch_reports_each_message(client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create(JSON)
    good, bad, two = stream.append_batch(["1", "not json", b"[2,3]"])
    assert (good.status, good.record_start, good.record_next) == (204, 0, 1)
    assert bad.error is not None
    assert (bad.status, bad.error.code) == (400, "invalid_json")
    assert two.next_offset == stream.head().next_offset
    assert stream.read().values() == [1, 2, 3]


def test_a_producer_sends_many_messages_as_one_batch(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    from tests.client.proxy import CUT_AFTER

    client.stream(name).create()
    proxy.faults["POST"] += [CUT_AFTER, CUT_AFTER]
    with connect(proxy.url).stream(name).producer(batching=Batching(linger_seconds=5)) as producer:
        futures = [producer.send(bytes([number])) for number in range(20)]
        producer.flush()
        assert futures[0].result().duplicate
    assert proxy.seqs() == [0, 0, 0]
    parts = list(client.stream(name).bootstrap())[1:]
    assert [part.value for part in parts] == [bytes([number]) for number in range(20)]  # type: ignore[union-attr]


def test_a_producers_batch_is_refused_as_a_whole(client: Client, name: str) -> None:
    client.stream(name).create("text/plain")
    producer = client.stream(name).producer(batching=Batching(linger_seconds=5))
    first, second = producer.send("a"), producer.send("")
    with pytest.raises(Refused):
        producer.flush()
    for future in (first, second):
        with pytest.raises(Refused, match="invalid_frames"):
            future.result()
    producer.close()
    assert client.stream(name).read().data == b""


def test_records_are_read_by_number(client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create(JSON)
    appended = stream.append_json(*range(10))
    assert (appended.record_start, appended.record_next) == (0, 10)
    assert list(stream.records(7)) == [Record(7, 7), Record(8, 8), Record(9, 9)]
    assert [record.number for record in stream.records(max_records=3)] == list(range(10))
    assert [record.number for record in stream.records(last=2)] == [8, 9]
    assert list(stream.records("now")) == []
    with pytest.raises(Refused, match="record_beyond_next"):
        next(stream.records(11))


def test_an_append_can_demand_the_next_record(client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create(JSON)
    stream.append_json("a", record_match=0)
    with pytest.raises(PreconditionFailed):
        stream.append_json("b", record_match=0)
    assert stream.head().record_next == 1


@pytest.mark.parametrize("start", [0, "now"])
def test_records_are_followed_until_the_stream_is_closed(
    connect: Connect, quiet: Server, name: str, start: Any
) -> None:
    path = f"/v1/stream/{name}"
    stream = connect(quiet.url).stream(path)
    stream.create(JSON)
    stream.append_json("old")

    def write() -> None:
        with Client(quiet.url) as other:
            for number in range(3):
                wait_for_a_follower(quiet)
                other.stream(path, JSON).append_json(number, number)
            other.stream(path).close()

    thread = threading.Thread(target=write)
    thread.start()
    found = [(record.number, record.value) for record in stream.records(start, live=True)]
    thread.join()
    assert found[-6:] == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)]
    assert len(found) == (7 if start == 0 else 6)
