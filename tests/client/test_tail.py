"""Following a stream: over the end of connections, lost answers and a server that restarts."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any

import httpx
import pytest
from tests.client.conftest import Connect, wait_for_a_follower
from tests.client.proxy import CUT_BEFORE, Fault, Proxy, answer
from tests.conftest import StartServer
from tests.server import Server

from ursula.client import (
    Client,
    Gone,
    Message,
    NotFound,
    OutcomeUnknown,
    Patience,
    PreconditionFailed,
    StreamAddress,
)
from ursula.client.connection.steps import Answer, Call, Item, Open, OperationRun, Receive
from ursula.client.read.live import Wait
from ursula.client.read.tail import TailProgress, follow_stream
from ursula.client.target import StreamTarget

JSON = "application/json"
LIVE = pytest.mark.parametrize("live", ["sse", "long-poll"])


@contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    """Something that happens in another thread while the test goes on."""
    thread = threading.Thread(target=action)
    thread.start()
    yield
    thread.join()


def writing(server: Server, name: str, values: range, pause: float = 0.02) -> Callable[[], None]:
    """Appends numbers, then closes the stream."""

    def write() -> None:
        with Client(server.url) as client:
            stream = client.stream(name)
            for value in values:
                time.sleep(pause)
                stream.append_json(value)
            stream.close()

    return write


def values_of(messages: Iterator[Message]) -> list[Any]:
    return [message.value for message in messages]


@pytest.fixture(scope="module")
def cycling(start_server: StartServer) -> Server:
    """A server that ends live connections soon."""
    return start_server(http__sse_cycle="100ms", http__long_poll="100ms")


@LIVE
def test_a_tail_gives_what_is_there_then_what_comes_and_ends_with_the_stream(
    client: Client, server: Server, name: str, live: Any
) -> None:
    stream = client.stream(name)
    stream.create(JSON)
    stream.append_json("a", "b")
    with meanwhile(writing(server, name, range(3))):
        assert values_of(stream.tail(live=live)) == ["a", "b", 0, 1, 2]


@LIVE
@pytest.mark.parametrize("content_type", ["application/octet-stream", "text/plain"])
def test_bytes_come_as_they_are(
    client: Client, server: Server, name: str, live: Any, content_type: str
) -> None:
    stream = client.stream(name)
    stream.create(content_type)

    def write() -> None:
        with Client(server.url) as other:
            other.stream(name, content_type).append("one\ntwo")
            other.stream(name, content_type).append(" three\n\n", close=True)

    with meanwhile(write):
        assert b"".join(values_of(stream.tail(live=live))) == b"one\ntwo three\n\n"


def test_text_keeps_its_carriage_returns(connect: Connect, quiet: Server, name: str) -> None:
    path = f"/v1/stream/{name}"
    stream = connect(quiet.url).stream(path)
    stream.create("text/plain")
    with closing(stream.tail("now")) as messages:

        def write() -> None:
            wait_for_a_follower(quiet)
            with Client(quiet.url) as other:
                other.stream(path, "text/plain").append(b"a\r\nb\rc\xff", close=True)

        with meanwhile(write):
            assert b"".join(values_of(messages)) == b"a\r\nb\rc\xff"


def test_a_tail_from_now_gives_only_what_comes(connect: Connect, quiet: Server, name: str) -> None:
    path = f"/v1/stream/{name}"
    stream = connect(quiet.url).stream(path)
    stream.create(JSON)
    stream.append_json("old")

    def write() -> None:
        wait_for_a_follower(quiet)
        writing(quiet, path, range(2))()

    with meanwhile(write):
        assert values_of(stream.tail("now")) == [0, 1]


@LIVE
def test_a_tail_continues_over_the_ends_of_connections(
    connect: Connect, cycling: Server, name: str, live: Any
) -> None:
    stream = connect(cycling.url).stream(f"/v1/stream/{name}-{live}-{connect}")
    stream.create(JSON)
    with meanwhile(writing(cycling, f"/v1/stream/{name}-{live}-{connect}", range(30))):
        assert values_of(stream.tail(live=live)) == list(range(30))


@LIVE
def test_a_tail_continues_after_every_kind_of_loss(
    connect: Connect, proxy: Proxy, server: Server, client: Client, name: str, live: Any
) -> None:
    client.stream(name).create(JSON)
    broken = answer(500, "internal_error")
    proxy.faults["GET"] += [CUT_BEFORE, answer(503, "unavailable", 0), broken, Fault(), CUT_BEFORE, broken]
    # Cut inside an event, between data and control, and after a few whole events.
    proxy.faults["GET"] += [Fault(cut_after_bytes=size) for size in (10, 150, 160, 200, 333)]
    proxy.faults["GET"] += [answer(503, "outcome_unknown"), CUT_BEFORE, answer(429, "rate_limited", 0)]
    with meanwhile(writing(server, name, range(25), pause=0.03)):
        assert values_of(connect(proxy.url).stream(name).tail(live=live)) == list(range(25))


def test_a_tail_that_stored_its_offset_neither_skips_nor_repeats(client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create(JSON)
    for number in range(0, 9, 3):
        stream.append_json(number, number + 1, number + 2)
    stream.close()
    seen: list[Any] = []
    offset = "-1"
    while True:
        unsure: list[Any] = []
        for message in stream.tail(offset):
            unsure.append(message.value)
            if message.next_offset is not None:
                seen, offset = seen + unsure, message.next_offset
                break
        else:
            break
    assert seen == list(range(9))


def test_only_the_last_of_several_values_has_an_offset(client: Client, name: str) -> None:
    stream = client.stream(name)
    end = stream.create(JSON, body="[1,2,3]", closed=True).next_offset
    assert [message.next_offset for message in stream.tail()] == [None, None, end]


def test_a_tail_survives_a_restart_of_the_server(connect: Connect, start_server: StartServer) -> None:
    server = start_server()
    with Proxy(server) as door:  # it stays where it is; the server comes back on another port
        stream = connect(door.url).stream("/v1/stream/tailed")
        stream.create(JSON)
        stream.append_json("before")
        stream.content_type = None

        def restart() -> None:
            wait_for_a_follower(server)
            server.kill()
            server.start()
            writing(server, "/v1/stream/tailed", range(3))()

        with meanwhile(restart):
            assert values_of(stream.tail()) == ["before", 0, 1, 2]


def test_a_tail_can_be_left_at_any_time(client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create(JSON)
    stream.append_json(1, 2, 3)
    assert [message.value for message in islice(stream.tail(), 2)] == [1, 2]
    assert stream.head().next_offset


def test_a_tail_of_nothing_says_so(client: Client, name: str) -> None:
    with pytest.raises(NotFound):
        next(client.stream(name).tail())


def test_a_tail_ends_when_its_stream_is_deleted_or_made_again(
    connect: Connect, cycling: Server, name: str
) -> None:
    client = connect(cycling.url)
    path = f"/v1/stream/{name}-{connect}"
    stream = client.stream(path)
    for again in (False, True):
        stream.create(JSON)
        stream.append_json("x")
        tailed = stream.tail()
        assert next(tailed).value == "x"

        def end(again: bool = again) -> None:
            wait_for_a_follower(cycling)
            with Client(cycling.url) as other:
                other.stream(path).delete()
                if again:
                    other.stream(path).create(JSON, body="[1,2,3,4]")

        with meanwhile(end), pytest.raises((NotFound, PreconditionFailed, Gone)):
            next(tailed)


class Silent:
    """A tail with a timeout of a minute whose server and clock are the test's."""

    def __init__(self, live: Any) -> None:
        self.now = 0.0
        self.progress = TailProgress("-1", True)
        target = StreamTarget(StreamAddress("shop", "orders"), Patience())
        self.run = OperationRun(follow_stream(target, self.progress, live, Wait(60, lambda: self.now)))
        self.answer(b"[]")

    def answer(self, body: bytes) -> None:
        """A page that ends at the tail."""
        headers = {"content-type": JSON, "stream-next-offset": "0", "stream-up-to-date": "true"}
        self.run.resume(Answer(200, httpx.Headers(headers), body))

    def asked(self, action: type[Call | Open]) -> float | None:
        """How long the request that is wanted now may take."""
        assert isinstance(self.run.action, action)
        return self.run.action.request.longest_seconds


def test_heartbeats_do_not_prolong_the_timeout_of_a_tail() -> None:
    tail = Silent("sse")
    for left in (60, 45, 30, 15):
        assert tail.asked(Open) == left
        tail.run.resume(Answer(200, httpx.Headers({"content-type": "text/event-stream"})))
        tail.run.resume(b'event: control\ndata: {"streamNextOffset":"0","upToDate":true}\n\n')
        assert isinstance(tail.run.action, Receive)
        tail.now += 15
        tail.run.resume(b":\n")
    assert tail.run.done
    assert (tail.progress.up_to_date, tail.progress.closed) == (True, False)


def test_a_message_restarts_the_timeout_of_a_tail() -> None:
    tail = Silent("long-poll")
    for body, left in ((b"[]", 60), (b"[]", 40), (b"[1]", 20), (b"[]", 60), (b"[]", 40), (b"[]", 20)):
        assert tail.asked(Call) == left
        tail.now += 20
        tail.answer(body)
        if isinstance(tail.run.action, Item):
            tail.run.resume(None)
    assert tail.run.done


def test_a_silence_as_long_as_the_timeout_is_no_failure() -> None:
    tail = Silent("long-poll")
    tail.now += 30
    tail.run.fail(OutcomeUnknown("timed_out", "no response in time"))
    assert tail.asked(Call) == 30
    tail.now += 30
    tail.run.fail(OutcomeUnknown("timed_out", "no response in time"))
    assert tail.run.done
