"""The producer over a proxy that loses, delays and refuses: nothing is lost and nothing is doubled."""

import random
import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest
from tests.client.conftest import QUICK, Connect
from tests.client.proxy import CUT_AFTER, CUT_BEFORE, FINE, TOO_LATE, Fault, Proxy, answer, late
from tests.server import Server

from ursula.client import (
    Batching,
    Client,
    Closed,
    Fenced,
    FrameReader,
    NotFound,
    OutcomeUnknown,
    Patience,
    Refused,
    Retryable,
)

JSON = "application/json"
ONE_BY_ONE = Batching(linger_seconds=0, batch_messages=1)
IMPATIENT = Patience(first_seconds=0.01, give_up_seconds=0.05)

UNAVAILABLE = answer(503, "unavailable", retry_after=0)
LOST_AFTER_STORING = answer(503, "outcome_unknown", passes_on=True)
LOST_BEFORE_STORING = answer(503, "outcome_unknown")
FOREIGN = Fault(status=502, body=b"<html>bad gateway</html>")


def through(connect: Connect, proxy: Proxy, *faults: Fault, **options: Any) -> Client:
    """A client behind the proxy, which waits briefly only if an answer is to be too late for it."""
    return connect(proxy.url, timeout=1.0 if TOO_LATE in faults else 30.0, **options)


@pytest.mark.parametrize(
    "fault",
    [CUT_BEFORE, CUT_AFTER, TOO_LATE, UNAVAILABLE, LOST_AFTER_STORING, LOST_BEFORE_STORING, FOREIGN],
)
def test_a_message_is_stored_once_whatever_happens_to_its_request(
    connect: Connect, proxy: Proxy, client: Client, name: str, fault: Fault
) -> None:
    client.stream(name).create(JSON)
    with through(connect, proxy, fault).stream(name).producer(batching=ONE_BY_ONE) as producer:
        producer.append_json(0)
        proxy.faults["POST"] += [fault, fault]
        producer.append_json(1)
        producer.append_json(2)
    assert client.stream(name).read().values() == [0, 1, 2]
    assert proxy.seqs() == [0, 1, 1, 1, 2]


def test_many_faults_in_any_order_lose_and_double_nothing(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    chance = random.Random(4)
    kinds = [FINE, CUT_BEFORE, CUT_AFTER, UNAVAILABLE, LOST_AFTER_STORING, LOST_BEFORE_STORING, FOREIGN]
    proxy.faults["POST"] += chance.choices(kinds, k=60)
    client.stream(name).create(JSON)
    batching = Batching(linger_seconds=0.001, batch_messages=7)
    with through(connect, proxy).stream(name).producer("writer", batching=batching) as producer:
        for number in range(150):
            producer.send_json(number)
            if chance.random() < 0.2:
                producer.flush()
    assert client.stream(name).read().values() == list(range(150))


def test_a_plain_append_is_not_sent_again_when_its_fate_is_unknown(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create(JSON)
    faults = (CUT_BEFORE, CUT_AFTER, LOST_AFTER_STORING, FOREIGN, TOO_LATE)
    stream = through(connect, proxy, *faults).stream(name, JSON)
    for fault in faults:
        proxy.faults["POST"].append(fault)
        with pytest.raises(OutcomeUnknown) as unknown:
            stream.append_json("x")
        assert unknown.value.maybe_written
    assert len(proxy.seen) == 5
    assert client.stream(name).read().values() == ["x"] * 4  # only CUT_BEFORE did not reach it


def test_a_plain_append_is_sent_again_when_it_was_certainly_not_written(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create(JSON)
    proxy.faults["POST"] += [UNAVAILABLE, answer(429, "rate_limited", 0), answer(503, "write_backpressure")]
    through(connect, proxy).stream(name, JSON).append_json("x")
    assert client.stream(name).read().values() == ["x"]


def test_the_servers_advice_when_to_come_back_is_taken(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create(JSON)
    proxy.faults["POST"].append(answer(503, "unavailable", retry_after=1))
    began_at = time.monotonic()
    through(connect, proxy).stream(name, JSON).append_json("x")
    assert time.monotonic() - began_at >= 1


def test_a_read_is_repeated_whatever_happened(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create("text/plain", body="all of it" * 100)
    faults = [CUT_BEFORE, CUT_AFTER, FOREIGN, Fault(cut_after_bytes=20), TOO_LATE]
    proxy.faults["GET"] += faults
    assert through(connect, proxy, *faults).stream(name).read().data == b"all of it" * 100


def test_creating_is_repeated_and_deleting_is_not(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    proxy.faults["PUT"] += [CUT_AFTER]
    stream = through(connect, proxy).stream(name)
    assert not stream.create("text/plain").is_new
    proxy.faults["DELETE"] = proxy.faults["POST"]
    proxy.faults["DELETE"].append(CUT_AFTER)
    with pytest.raises(OutcomeUnknown):
        stream.delete()


def test_a_refused_message_fails_and_the_producer_continues(client: Client, name: str) -> None:
    client.stream(name).create(JSON)
    with client.stream(name).producer(batching=ONE_BY_ONE) as producer:
        producer.append_json(1)
        with pytest.raises(Refused) as refused:
            producer.append("not json")
        assert refused.value.code == "invalid_json"
        with pytest.raises(Refused):
            producer.flush()
        producer.append_json(2)
    assert client.stream(name).read().values() == [1, 2]


def test_flush_raises_failures_that_the_caller_has_not_seen(client: Client, name: str) -> None:
    client.stream(name).create(JSON)
    producer = client.stream(name).producer(batching=Batching(linger_seconds=5))
    producer.send("not json")
    with pytest.raises(Refused, match="invalid_json"):
        producer.flush()
    producer.flush()
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        producer.send("1")


def test_giving_up_on_an_unknown_fate_ends_the_producer(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create(JSON)
    impatient = through(connect, proxy, patience=IMPATIENT).stream(name, JSON)
    producer = impatient.producer(batching=ONE_BY_ONE)
    proxy.faults["POST"] += [CUT_AFTER, *[UNAVAILABLE] * 20]
    with pytest.raises(OutcomeUnknown) as unknown:
        producer.append_json(1)
    assert unknown.value.maybe_written
    with pytest.raises(OutcomeUnknown):
        producer.append_json(2)
    with pytest.raises(OutcomeUnknown):
        producer.close()
    assert client.stream(name).read().values() == [1]


def test_giving_up_on_what_is_certainly_not_written_keeps_the_producer(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create(JSON)
    impatient = through(connect, proxy, patience=IMPATIENT).stream(name, JSON)
    proxy.faults["POST"] += [UNAVAILABLE] * 20
    producer = impatient.producer(batching=ONE_BY_ONE)
    with pytest.raises(Retryable):
        producer.append_json(1)
    proxy.faults["POST"].clear()
    producer.append_json(2)
    with pytest.raises(Retryable):
        producer.close()
    assert client.stream(name).read().values() == [2]


def test_a_stream_that_was_closed_meanwhile_leaves_the_fate_of_a_lost_append_unknown(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create(JSON)
    producer = through(connect, proxy).stream(name, JSON).producer(batching=ONE_BY_ONE)
    proxy.faults["POST"] += [CUT_AFTER, answer(409, "stream_closed")]
    with pytest.raises(OutcomeUnknown) as unknown:
        producer.append_json(1)
    assert (unknown.value.code, unknown.value.status) == ("stream_closed", 409)
    with pytest.raises(OutcomeUnknown):
        producer.close()


def test_a_closed_stream_refuses_a_producer(client: Client, name: str) -> None:
    client.stream(name).create(JSON, closed=True)
    with client.stream(name).producer() as producer:
        with pytest.raises(Closed):
            producer.append_json(1)
        with pytest.raises(Closed):
            producer.flush()


def test_a_later_producer_of_the_same_name_takes_over(client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create(JSON)
    first = stream.producer("worker", batching=ONE_BY_ONE)
    first.append_json("first")
    with stream.producer("worker", batching=ONE_BY_ONE) as second:
        assert second.epoch > first.epoch
        second.append_json("second")
    with pytest.raises(Fenced) as fenced:
        first.append_json("zombie")
    assert fenced.value.data["current_epoch"] == second.epoch
    assert not fenced.value.maybe_written
    with pytest.raises(Fenced):
        first.send_json("again")
    with pytest.raises(Fenced):
        first.close()
    assert stream.read().values() == ["first", "second"]


def test_a_producer_claims_an_epoch_above_the_current_one(client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create(JSON)
    with stream.producer("worker", epoch=7) as seventh:
        seventh.append_json(1)
    for stale in (3, 7, 8):
        with stream.producer("worker", epoch=stale) as producer:
            producer.append_json(producer.epoch)
    assert stream.read().values() == [1, 3, 7, 8]
    assert producer.epoch == 10


@pytest.mark.parametrize("epoch", [3, 7])
def test_a_producer_that_may_not_claim_is_fenced(client: Client, name: str, epoch: int) -> None:
    stream = client.stream(name)
    stream.create(JSON)
    with stream.producer("worker", epoch=7) as seventh:
        seventh.append_json(1)
    producer = stream.producer("worker", epoch=epoch, auto_claim=False)
    with pytest.raises(Fenced):
        producer.append_json(2)
    with pytest.raises(Fenced):
        producer.close()
    assert stream.read().values() == [1]


def test_a_fenced_producer_does_not_claim_when_its_message_may_be_stored(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create(JSON)
    producer = through(connect, proxy).stream(name, JSON).producer("worker", epoch=0)
    proxy.faults["POST"] += [CUT_AFTER, answer(403, "producer_epoch_stale")]
    with pytest.raises(Fenced) as fenced:
        producer.append_json(1)
    assert fenced.value.maybe_written
    with pytest.raises(Fenced):
        producer.close()
    assert client.stream(name).read().values() == [1]


def test_closing_the_stream_comes_after_everything_queued(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create(JSON)
    with through(connect, proxy).stream(name).producer(batching=Batching(linger_seconds=5)) as producer:
        producer.send_json(1)
        producer.send_json(2)
        proxy.faults["POST"] += [FINE, CUT_AFTER]
        assert producer.close_stream().closed
    chunk = client.stream(name).read()
    assert chunk.closed
    assert chunk.values() == [1, 2]
    assert proxy.seqs() == [0, 1, 1]


def test_messages_of_one_batch_share_a_request(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create(JSON)
    batching = Batching(linger_seconds=5, batch_messages=10)
    with through(connect, proxy).stream(name).producer(batching=batching) as producer:
        futures = [producer.send_json(number) for number in range(25)]
        producer.flush()
        offsets = [future.result().next_offset for future in futures]
    assert len(set(offsets)) == 3
    assert proxy.seqs() == [0, 1, 2]
    assert client.stream(name).read().values() == list(range(25))


def test_a_batch_goes_when_its_first_message_has_waited_long_enough(client: Client, name: str) -> None:
    client.stream(name).create(JSON)
    with client.stream(name).producer(batching=Batching(linger_seconds=0.05)) as producer:
        future = producer.send_json(1)
        future.result()
    assert client.stream(name).read().values() == [1]


def test_framed_messages_come_back_one_by_one(client: Client, name: str) -> None:
    client.stream(name).create()
    batching = Batching(linger_seconds=5, framing="length-prefixed")
    messages = [b"one", b"", b"\x00" * 300]
    with client.stream(name).producer(batching=batching) as producer:
        for message in messages:
            producer.send(message)
    assert FrameReader().feed(client.stream(name).read().data) == messages


def test_on_the_flat_route_a_batch_is_one_append(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    stream = client.stream(f"/v1/stream/{name}/deep")
    stream.create("text/plain")
    behind = through(connect, proxy).stream(f"/v1/stream/{name}/deep")
    with behind.producer(batching=Batching(linger_seconds=5)) as producer:
        for text in ("a", "b", "c"):
            producer.send(text)
    assert stream.read().data == b"abc"
    assert proxy.seqs() == [0]


@pytest.mark.parametrize("lost", [CUT_BEFORE, CUT_AFTER])
def test_a_batch_that_finds_no_route_is_still_stored_once(
    connect: Connect, proxy: Proxy, client: Client, name: str, lost: Fault
) -> None:
    client.stream(name).create()
    stream = through(connect, proxy).stream(name)
    no_route = Fault(passes_on=False, status=404, body=b"Stream not found")
    with stream.producer("writer", batching=Batching(linger_seconds=60)) as producer:
        for text in "abc":
            producer.send(text)
        proxy.faults["POST"] += [lost, no_route]
        producer.flush()
        producer.send("d")
        producer.send("e")
    assert client.stream(name).read().data == b"abcde"
    assert proxy.seqs() == [0, 0, 0, 1]


def test_a_batch_for_a_stream_that_is_not_there_is_not_sent_again(
    connect: Connect, proxy: Proxy, name: str
) -> None:
    producer = through(connect, proxy).stream(name, "text/plain").producer(batching=Batching(60))
    producer.send("a")
    producer.send("b")
    with pytest.raises(NotFound) as missing:
        producer.flush()
    assert missing.value.code == "stream_not_found"
    assert proxy.seqs() == [0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_messages": 0},
        {"batch_messages": -1},
        {"batch_messages": 1.5},
        {"batch_messages": True},
        {"batch_bytes": 0},
        {"batch_bytes": -1},
        {"queue_bytes": 0},
        {"linger_seconds": -0.1},
        {"linger_seconds": float("nan")},
        {"linger_seconds": float("inf")},
        {"linger_seconds": "5"},
        {"framing": "by-lines"},
    ],
)
def test_a_batching_that_cannot_work_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Batching(**wrong)


@pytest.mark.parametrize(
    "wrong", [{"first_seconds": -1}, {"longest_seconds": float("nan")}, {"give_up_seconds": -1}]
)
def test_a_patience_that_cannot_work_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Patience(**wrong)


@pytest.mark.parametrize("epoch", [-1, 2**53, 1.5, True])
def test_a_producer_that_no_server_takes_is_refused(client: Client, name: str, epoch: Any) -> None:
    with pytest.raises(ValueError, match="epoch"):
        client.stream(name).producer("writer", epoch=epoch)
    with pytest.raises(ValueError, match="producer_id"):
        client.stream(name).producer("")


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_of_a_tail_is_a_number_of_seconds(client: Client, name: str, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        client.stream(name).tail(timeout=timeout)


@pytest.mark.parametrize("fault", [CUT_BEFORE, CUT_AFTER, UNAVAILABLE, FOREIGN])
def test_a_last_message_is_stored_once_whatever_happens_to_its_request(
    connect: Connect, proxy: Proxy, client: Client, name: str, fault: Fault
) -> None:
    client.stream(name).create(JSON)
    with through(connect, proxy).stream(name, JSON).producer("writer") as producer:
        producer.append_json(1)
        proxy.faults["POST"] += [fault, fault]
        assert producer.close_stream_json(2).closed
    chunk = client.stream(name).read()
    assert (chunk.values(), chunk.closed) == ([1, 2], True)
    assert proxy.seqs() == [0, 1, 1, 1]


def test_a_last_message_of_unknown_fate_is_not_sent_again(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create(JSON)
    producer = through(connect, proxy, patience=IMPATIENT).stream(name, JSON).producer("writer")
    proxy.faults["POST"] += [CUT_AFTER, *[UNAVAILABLE] * 20]
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            producer.close_stream_json(1)
    producer.close()
    assert client.stream(name).read().values() == [1]


def test_closing_can_be_tried_again(connect: Connect, proxy: Proxy, client: Client, name: str) -> None:
    client.stream(name).create(JSON)
    producer = through(connect, proxy, patience=IMPATIENT).stream(name, JSON).producer("writer")
    proxy.faults["POST"] += [CUT_AFTER, *[UNAVAILABLE] * 20]
    with pytest.raises(OutcomeUnknown):
        producer.close_stream()
    proxy.faults["POST"].clear()
    assert producer.close_stream().closed
    producer.close()


def test_threads_may_close_a_stream_at_the_same_time(server: Server, proxy: Proxy, name: str) -> None:
    with Client(proxy.url, patience=QUICK) as client:
        stream = client.stream(name)
        stream.create(JSON)
        results: list[Any] = []
        with stream.producer() as producer:
            producer.send_json(1)
            threads = [
                threading.Thread(target=lambda: results.append(producer.close_stream())) for _ in range(5)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(results) == 5
        assert len(set(results)) == 1
        assert proxy.seqs() == [0, 1]


def test_a_sender_waits_while_too_much_is_queued(server: Server, proxy: Proxy, name: str) -> None:
    with Client(proxy.url, patience=QUICK) as client:
        stream = client.stream(name)
        stream.create("text/plain")
        batching = Batching(linger_seconds=0, batch_messages=1, queue_bytes=4)
        proxy.faults["POST"] += [late(0.3)] * 2
        began_at = time.monotonic()
        with stream.producer(batching=batching) as producer:
            for _ in range(4):
                producer.send("abcd")
        assert time.monotonic() - began_at > 0.5
        assert stream.read().data == b"abcd" * 4


def test_threads_may_share_a_producer(server: Server, name: str) -> None:
    with Client(server.url) as client:
        stream = client.stream(name)
        stream.create(JSON)
        with stream.producer() as producer:
            threads = [
                threading.Thread(target=lambda n=n: [producer.send_json([n, i]) for i in range(50)])
                for n in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        values = stream.read().values()
        assert len(values) == 200
        for n in range(4):
            assert [value for value in values if value[0] == n] == [[n, i] for i in range(50)]


def test_a_message_that_was_cancelled_in_time_is_not_sent(server: Server, name: str) -> None:
    with Client(server.url) as client:
        stream = client.stream(name)
        stream.create(JSON)
        with stream.producer(batching=Batching(linger_seconds=5)) as producer:
            future: Future[Any] = producer.send_json(1)
            producer.send_json(2)
            assert future.cancel()
        assert stream.read().values() == [2]


def test_nothing_is_sent_after_the_stream_was_closed(client: Client, name: str) -> None:
    client.stream(name).create(JSON)
    with client.stream(name).producer() as producer:
        producer.send_json(1)
        producer.close_stream()
        with pytest.raises(RuntimeError, match="closed"):
            producer.send_json(2)
    assert client.stream(name).read().values() == [1]
