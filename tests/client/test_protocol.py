"""What is protocol works with every server: each test runs over Ursula and over the reference server."""

import threading
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.client.conftest import OPTIONS, Connect
from tests.client.proxy import Proxy
from tests.client.test_tail import meanwhile
from tests.http.raw import Place
from tests.waiting import wait_for

from ursula.client import Batching, Client, Closed, Fenced, FrameReader, NotFound, Refused

TEXT = "text/plain"
JSON = "application/json"
OCTETS = "application/octet-stream"
LIVE = pytest.mark.parametrize("live", ["sse", "long-poll"])
ONE_BY_ONE = Batching(linger_seconds=0, batch_messages=1)
TOGETHER = Batching(linger_seconds=60)


def test_a_stream_is_created_written_read_closed_and_deleted(protocol: Client, path: str) -> None:
    stream = protocol.stream(path)
    assert stream.create(TEXT).is_new
    assert not stream.create(TEXT).is_new
    stream.append("hello, ")
    appended = stream.append(b"world")
    chunk = stream.read()
    assert (chunk.data, chunk.next_offset) == (b"hello, world", appended.next_offset)
    assert (chunk.up_to_date, chunk.closed) == (True, False)
    assert stream.append("!", close=True).closed
    assert stream.close().closed
    info = stream.head()
    assert (info.content_type, info.closed) == (TEXT, True)
    assert stream.read(appended.next_offset).data == b"!"
    assert stream.read(info.next_offset).closed
    stream.delete()
    with pytest.raises(NotFound):
        stream.read()


def test_a_stream_is_created_with_content_and_closed_at_once(protocol: Client, path: str) -> None:
    stream = protocol.stream(path)
    stream.create(JSON, body="[1,2]", closed=True, ttl_seconds=600)
    chunk = stream.read()
    assert (chunk.values(), chunk.closed) == ([1, 2], True)
    assert stream.head().ttl_seconds == 600


def test_json_values_are_one_message_each_everywhere(protocol: Client, path: str) -> None:
    stream = protocol.stream(path)
    stream.create(JSON)
    stream.append_json({"a": 1})
    stream.append_json([1, 2], "drei")
    assert stream.read().values() == [{"a": 1}, [1, 2], "drei"]
    assert [chunk.values() for chunk in stream.read_all()] == [[{"a": 1}, [1, 2], "drei"]]


@LIVE
@pytest.mark.parametrize("content_type", [JSON, TEXT, OCTETS])
def test_a_tail_gives_everything_and_ends_with_the_stream(
    target_url: str, protocol: Client, path: str, live: Any, content_type: str
) -> None:
    stream = protocol.stream(path)
    stream.create(content_type)
    stream.append("1")

    def write() -> None:
        with Client(target_url, **OPTIONS) as other:
            for number in range(2, 6):
                time.sleep(0.02)
                other.stream(path).append(str(number))
            other.stream(path).append("6", close=True)

    with meanwhile(write):
        values = [message.value for message in stream.tail(live=live)]
    if content_type == JSON:
        assert values == [1, 2, 3, 4, 5, 6]
    else:
        assert b"".join(values) == b"123456"


@LIVE
def test_a_tail_from_now_skips_what_was_there(
    target_url: str, protocol: Client, path: str, live: Any
) -> None:
    stream = protocol.stream(path)
    stream.create(JSON)
    stream.append_json("old")
    going_on = threading.Event()

    def write() -> None:
        with Client(target_url, **OPTIONS) as other:
            while not going_on.wait(0.05):
                other.stream(path).append_json("new")
            other.stream(path).close()

    values = []
    with meanwhile(write):
        for message in stream.tail("now", live=live):
            values.append(message.value)
            going_on.set()
    assert set(values) == {"new"}


@LIVE
def test_a_tail_waits_over_several_polls_of_silence(
    request: pytest.FixtureRequest, connect: Connect, target_url: str, path: str, live: Any
) -> None:
    """The reference server ends a poll after half a second; Ursula when the client wants it to."""
    is_reference = request.node.callspec.params["target_url"] == "reference"
    polls = 3 if is_reference and live == "long-poll" else 1
    target = urlsplit(target_url)
    assert target.hostname is not None
    assert target.port is not None
    with Proxy(Place(target.hostname, target.port)) as door:
        stream = connect(door.url).stream(path)
        stream.create(JSON)

        def write() -> None:
            assert wait_for(lambda: sum("live=" in target for target in door.targets) >= polls)
            with Client(target_url, **OPTIONS) as other:
                other.stream(path).append_json("late")
                other.stream(path).close()

        with meanwhile(write):
            assert [message.value for message in stream.tail(live=live)] == ["late"]


@pytest.mark.parametrize("content_type", [JSON, TEXT])
def test_a_producer_writes_in_order_and_closes_the_stream(
    protocol: Client, path: str, content_type: str
) -> None:
    stream = protocol.stream(path)
    stream.create(content_type)
    with stream.producer("writer", batching=Batching(batch_messages=7)) as producer:
        for number in range(20):
            producer.send(str(number % 10))
        assert producer.close_stream().closed
    chunk = stream.read()
    assert chunk.closed
    if content_type == JSON:
        assert chunk.values() == [*range(10), *range(10)]
    else:
        assert chunk.data == b"01234567890123456789"


def test_a_batch_of_bytes_is_stored_by_every_server(protocol: Client, path: str) -> None:
    stream = protocol.stream(path)
    stream.create(OCTETS)
    with stream.producer("writer", batching=TOGETHER) as producer:
        futures = [producer.send(text) for text in ("one ", "two ", "three")]
        producer.flush()
        assert {future.result().next_offset for future in futures} == {stream.head().next_offset}
        assert not futures[0].result().duplicate
        producer.send("!")
        producer.send("?")
    assert stream.read().data == b"one two three!?"


def test_framed_messages_come_back_one_by_one_everywhere(protocol: Client, path: str) -> None:
    stream = protocol.stream(path)
    stream.create()
    messages = [b"one", b"", b"\x00" * 300]
    with stream.producer(batching=Batching(linger_seconds=60, framing="length-prefixed")) as producer:
        for message in messages:
            producer.send(message)
    assert FrameReader().feed(stream.read().data) == messages


def test_a_producer_takes_over_and_the_earlier_one_is_fenced(protocol: Client, path: str) -> None:
    stream = protocol.stream(path)
    stream.create(JSON)
    first = stream.producer("worker", batching=ONE_BY_ONE)
    first.append_json("first")
    with stream.producer("worker", batching=ONE_BY_ONE) as second:
        second.append_json("second")
    with pytest.raises(Fenced) as fenced:
        first.append_json("zombie")
    assert (fenced.value.status, fenced.value.data["current_epoch"]) == (403, second.epoch)
    assert not fenced.value.maybe_written
    with pytest.raises(Fenced):
        first.close()
    assert stream.read().values() == ["first", "second"]


def test_a_producer_with_a_stale_epoch_claims_the_next_one(protocol: Client, path: str) -> None:
    stream = protocol.stream(path)
    stream.create(JSON)
    with stream.producer("worker", epoch=7) as seventh:
        seventh.append_json(1)
    for stale in (3, 7):
        with stream.producer("worker", epoch=stale) as producer:
            producer.append_json(2)
    assert producer.epoch == 9
    assert stream.read().values() == [1, 2, 2]


def test_a_producer_that_may_not_claim_is_fenced_everywhere(protocol: Client, path: str) -> None:
    stream = protocol.stream(path)
    stream.create(JSON)
    with stream.producer("worker", epoch=7) as seventh:
        seventh.append_json(1)
    producer = stream.producer("worker", epoch=3, auto_claim=False)
    with pytest.raises(Fenced):
        producer.append_json(2)
    with pytest.raises(Fenced):
        producer.close()


def test_a_closed_stream_refuses_appends_and_producers(protocol: Client, path: str) -> None:
    stream = protocol.stream(path)
    stream.create(JSON, closed=True)
    with pytest.raises(Closed) as closed:
        stream.append_json(1)
    assert closed.value.status == 409
    producer = stream.producer("late", batching=ONE_BY_ONE)
    with pytest.raises(Closed):
        producer.append_json(1)
    with pytest.raises(Closed):
        producer.close()


def test_refusals_keep_the_text_of_the_server(protocol: Client, path: str) -> None:
    stream = protocol.stream(path)
    with pytest.raises(NotFound) as missing:
        stream.read()
    assert "not found" in missing.value.message.lower() or "no stream" in missing.value.message.lower()
    stream.create(JSON)
    with pytest.raises(Refused) as refused:
        stream.append("{broken")
    assert refused.value.status == 400
    assert "json" in refused.value.message.lower()
    with pytest.raises(Refused) as other:
        stream.create(TEXT)
    assert other.value.status == 409
    with pytest.raises(Refused) as offset:
        stream.read("not an offset")
    assert (offset.value.status, "offset" in offset.value.message.lower()) == (400, True)


def test_a_sequence_must_grow_everywhere(protocol: Client, path: str) -> None:
    stream = protocol.stream(path)
    stream.create(TEXT)
    stream.append("a", stream_seq="2")
    with pytest.raises(Refused) as refused:
        stream.append("b", stream_seq="1")
    assert refused.value.status == 409
    stream.append("b", stream_seq="3")
    assert stream.read().data == b"ab"


def test_a_fork_shares_what_its_source_had_everywhere(protocol: Client, path: str) -> None:
    source, fork = protocol.stream(path), protocol.stream(f"{path}-fork")
    middle = source.create(TEXT, body="ab").next_offset
    source.append("cd")
    fork.create(TEXT, forked_from=path, fork_offset=middle)
    fork.append("x")
    assert fork.read().data == b"abx"


def test_a_client_learns_a_new_content_type_everywhere(protocol: Client, path: str) -> None:
    writer, other = protocol.stream(path), protocol.stream(path)
    other.create(TEXT)
    writer.append("a")
    other.delete()
    other.create(JSON)
    with pytest.raises(Refused):
        writer.append("[1]")
    writer.append("[1]")
    assert other.read().values() == [1]


def test_a_producer_may_close_its_stream_twice(protocol: Client, path: str) -> None:
    stream = protocol.stream(path)
    stream.create(TEXT)
    with stream.producer("writer") as producer:
        producer.send("content")
        closed = producer.close_stream()
        assert closed.closed
        assert producer.close_stream() == closed
    assert producer.close_stream() == closed
    assert stream.read().data == b"content"


@pytest.mark.parametrize("content_type", [JSON, TEXT])
def test_a_producer_closes_its_stream_with_a_last_message(
    protocol: Client, path: str, content_type: str
) -> None:
    stream = protocol.stream(path)
    stream.create(content_type)
    with stream.producer("writer", batching=TOGETHER) as producer:
        producer.send("1")
        closed = producer.close_stream("2") if content_type == TEXT else producer.close_stream_json(2)
        assert (closed.closed, closed.duplicate) == (True, False)
        assert producer.close_stream("2") == closed
    chunk = stream.read()
    assert (chunk.closed, chunk.next_offset) == (True, closed.next_offset)
    assert chunk.data == b"12" if content_type == TEXT else chunk.values() == [1, 2]


def test_a_stream_that_another_closed_takes_no_last_message(protocol: Client, path: str) -> None:
    stream = protocol.stream(path)
    stream.create(TEXT)
    with stream.producer("writer") as producer:
        stream.close()
        with pytest.raises(Closed):
            producer.close_stream("too late")
    assert stream.read().data == b""


@LIVE
def test_a_tail_reports_that_it_is_up_to_date_and_ends_after_a_silence(
    protocol: Client, path: str, live: Any
) -> None:
    stream = protocol.stream(path)
    end = stream.create(JSON, body="[1,2]").next_offset
    tail = stream.tail(live=live, timeout=0.7)
    assert (tail.up_to_date, tail.closed) == (False, False)
    assert (next(tail).value, tail.up_to_date, tail.offset) == (1, False, "-1")
    assert (next(tail).value, tail.up_to_date, tail.offset) == (2, True, end)
    assert list(tail) == []
    assert (tail.up_to_date, tail.closed, tail.offset) == (True, False, end)
    stream.append_json(3)
    stream.close()
    rest = stream.tail(tail.offset, live=live, timeout=0.7)
    assert [message.value for message in rest] == [3]
    assert (rest.up_to_date, rest.closed, rest.offset) == (True, True, stream.head().next_offset)


@LIVE
def test_a_tail_of_nothing_is_up_to_date_at_once(protocol: Client, path: str, live: Any) -> None:
    stream = protocol.stream(path)
    stream.create(JSON)
    tail = stream.tail(live=live, timeout=0)
    assert list(tail) == []
    assert (tail.up_to_date, tail.closed) == (True, False)
    stream.close()
    tail = stream.tail(live=live, timeout=60)
    assert list(tail) == []
    assert (tail.up_to_date, tail.closed) == (True, True)


@LIVE
def test_the_end_of_a_stream_ends_a_tail_before_its_timeout(
    target_url: str, protocol: Client, path: str, live: Any
) -> None:
    stream = protocol.stream(path)
    stream.create(JSON)
    tail = stream.tail(live=live, timeout=250)

    def write() -> None:
        assert wait_for(lambda: tail.up_to_date)
        with Client(target_url, **OPTIONS) as other:
            other.stream(path).close()

    with meanwhile(write):
        assert list(tail) == []
    assert tail.closed
