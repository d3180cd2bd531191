"""The official Python client: it knows live reads that say where they start, but not the end of a stream."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from durable_streams import (
    AsyncDurableStream,
    DurableStream,
    SeqConflictError,
    StreamExistsError,
    StreamNotFoundError,
    stream,
)
from tests.conftest import StartServer
from tests.http.wire import CLOSED, offset
from tests.server import Server

AT_ONCE_SECONDS = 30.0
"""Far less than the server would wait if it had to, and more than a busy machine needs."""


@pytest.fixture(scope="module")
def patient_server(start_server: StartServer) -> Server:
    """Whoever is answered quickly by this server was not made to wait."""
    return start_server(http__long_poll="60s")


@pytest.fixture
def url(patient_server: Server, path: str) -> str:
    return patient_server.url + path


@pytest.fixture
def answers() -> list[httpx.Response]:
    """What the server answered to `client`, in order."""
    return []


@pytest.fixture
def client(answers: list[httpx.Response]) -> Iterator[httpx.Client]:
    with httpx.Client(event_hooks={"response": [answers.append]}, timeout=60) as client:
        yield client


def close(url: str) -> None:
    """The client has no call for it."""
    assert httpx.post(url, headers=CLOSED, timeout=60).status_code == 204


def test_a_stream_is_created_found_and_deleted(url: str) -> None:
    with DurableStream.create(url, content_type="text/plain", ttl_seconds=3600, body="hello") as handle:
        handle.create_stream(content_type="text/plain", ttl_seconds=3600)
        with pytest.raises(StreamExistsError):
            handle.create_stream(content_type="application/json")
        found = DurableStream.head_static(url)
        assert (found.content_type, found.offset) == ("text/plain", offset(5))
        handle.delete()
        with pytest.raises(StreamNotFoundError):
            handle.head()


def test_appends_are_read_back_from_the_start_and_from_an_offset(url: str) -> None:
    with DurableStream.create(url, content_type="application/json") as handle:
        middle = handle.append({"n": 0}, seq="a").next_offset
        end = handle.append({"n": 1}, seq="b").next_offset
        with pytest.raises(SeqConflictError):
            handle.append({"n": 2}, seq="a")
        with stream(url) as whole:
            assert whole.read_json() == [{"n": 0}, {"n": 1}]
            assert (whole.offset, whole.up_to_date) == (end, True)
        with stream(url, offset=middle, live=False) as rest:
            assert list(rest.iter_json()) == [{"n": 1}]


def test_a_stream_of_many_pages_is_read_to_its_end(
    url: str, client: httpx.Client, answers: list[httpx.Response]
) -> None:
    content = bytes(range(256)) * 9000
    DurableStream.create(url, body=content).close()
    with stream(url, client=client, live=False) as pages:
        assert b"".join(pages) == content
    assert len(answers) == 3


def test_a_long_poll_brings_what_is_appended_while_it_follows(url: str) -> None:
    with DurableStream.create(url, content_type="application/json") as handle:
        handle.append(0)
        with stream(url, offset="-1", live="long-poll", timeout=AT_ONCE_SECONDS) as followed:
            items = followed.iter_json()
            assert next(items) == 0
            for number in range(1, 4):
                end = handle.append(number).next_offset
                assert next(items) == number
                assert followed.offset == end


def test_events_bring_what_is_appended_and_stop_at_the_end(url: str) -> None:
    with DurableStream.create(url, content_type="application/json") as handle:
        handle.append(0)
        with handle.stream(offset="-1", live="sse") as followed:
            events = followed.iter_events(mode="json")
            first = next(events)
            assert (first.data, first.up_to_date) == ([0], True)
            for number in range(1, 4):
                end = handle.append(number).next_offset
                event = next(events)
                assert (event.data, event.next_offset, event.up_to_date) == ([number], end, True)
            close(url)
            assert list(events) == []
            assert followed.offset == end


def test_text_comes_through_events_unchanged(url: str) -> None:
    sent = "one\n two\n\n:three\ndata: four é漢😀\n"
    DurableStream.create(url, content_type="text/plain", body=sent).close()
    close(url)
    with stream(url, offset="-1", live="sse") as followed:
        assert list(followed.iter_text()) == [sent]


def test_a_closed_stream_answers_every_poll_at_once(
    url: str, client: httpx.Client, answers: list[httpx.Response]
) -> None:
    """This client would ask for ever, so it is told to stop after a while: no answer may have waited."""
    DurableStream.create(url, content_type="application/json", body="[1,2]").close()
    close(url)
    polls = 20
    with stream(url, offset="-1", live="long-poll", client=client, timeout=AT_ONCE_SECONDS) as followed:

        def stop_after_many(answer: httpx.Response) -> None:
            if len(answers) > polls:
                followed.close()

        client.event_hooks["response"].append(stop_after_many)
        assert list(followed.iter_json()) == [1, 2]
    assert [answer.status_code for answer in answers] == [200] + [204] * polls
    for answer in answers:
        assert answer.headers["stream-closed"] == "true"
        assert answer.headers["stream-up-to-date"] == "true"
        assert answer.headers["stream-next-offset"] == answers[0].headers["stream-next-offset"]


def test_a_reader_that_waits_is_told_when_the_stream_is_closed(
    url: str, client: httpx.Client, answers: list[httpx.Response]
) -> None:
    DurableStream.create(url, content_type="application/json", body="[1]").close()
    with (
        stream(url, client=client, timeout=AT_ONCE_SECONDS) as followed,
        ThreadPoolExecutor() as threads,
    ):

        def stop_at_nothing(answer: httpx.Response) -> None:
            if answer.status_code == 204:
                followed.close()

        client.event_hooks["response"].append(stop_at_nothing)
        items = followed.iter_json()
        assert next(items) == 1
        rest = threads.submit(list, items)
        close(url)
        assert rest.result() == []
    assert [answer.status_code for answer in answers] == [200, 204]
    assert ["stream-closed" in answer.headers for answer in answers] == [False, True]


@pytest.mark.anyio
async def test_the_asynchronous_client_follows_events_to_the_end(url: str) -> None:
    async with (
        await AsyncDurableStream.create(url, content_type="application/json") as handle,
        handle.stream(offset="-1", live="sse") as followed,
    ):
        seen = []
        items = followed.iter_json()
        for number in range(3):
            await handle.append({"n": number})
            seen.append(await anext(items))
        await asyncio.to_thread(close, url)
        seen += [item async for item in items]
    assert seen == [{"n": 0}, {"n": 1}, {"n": 2}]
