"""What an error reports: its class, its subject, and the answer of the server."""

import json
from itertools import islice
from typing import Any

import httpx
import pytest
from tests.client.conftest import Connect
from tests.client.proxy import CUT_AFTER, Fault, Proxy, answer
from tests.server import Server

from ursula.client import (
    Client,
    Closed,
    Fenced,
    InvalidAnswer,
    NotFound,
    OutcomeUnknown,
    Patience,
    Refused,
    Retryable,
    StreamError,
)
from ursula.client.errors import error_of_answer
from ursula.client.write.delivery import ends_producer

JSON = "application/json"
BODIES = {
    "empty": b"",
    "text": b"Said in\nplain text",
    "page": b"<html>Said in plain text</html>",
    "array": b'["Said in plain text"]',
    "other": b'{"error":"Said in plain text"}',
    "foreign": b'{"error":{"code":"NOPE","message":"Said in plain text"}}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize(
    ("status", "headers", "kind", "code"),
    [
        (403, {"producer-epoch": "7"}, Fenced, "producer_epoch_stale"),
        (403, {}, Refused, "http_403"),
        (409, {"stream-closed": "true"}, Closed, "stream_closed"),
        (409, {"stream-closed": "false"}, Refused, "http_409"),
        (409, {"producer-expected-seq": "3", "producer-received-seq": "5"}, Refused, "producer_seq_conflict"),
        (404, {}, NotFound, "not_found"),
        (501, {}, Refused, "http_501"),
        (503, {}, OutcomeUnknown, "http_503"),
        (429, {}, Retryable, "http_429"),
    ],
)
def test_headers_decide_and_the_text_of_the_server_is_kept(
    status: int, headers: dict[str, str], kind: type[StreamError], code: str, body: bytes
) -> None:
    error = error_of_answer(status, httpx.Headers(headers), body)
    assert type(error) is kind
    assert error.code == ("NOPE" if b"NOPE" in body else code)
    assert not body or "Said in plain text" in error.message
    if "producer-epoch" in headers:
        assert error.data["current_epoch"] == 7
    if "producer-expected-seq" in headers:
        assert (error.data["expected_seq"], error.data["received_seq"]) == (3, 5)
        assert ends_producer(error)


def test_a_long_page_is_cut_and_a_strange_header_does_no_harm() -> None:
    headers = httpx.Headers({"producer-epoch": "9" * 5000, "retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"})
    error = error_of_answer(403, headers, b"\xff" + b"x" * 100_000)
    assert type(error) is Fenced
    assert len(error.message) < 1000
    assert (error.data, error.retry_after) == ({}, None)


def test_errors_name_the_stream(connect: Connect, client: Client, proxy: Proxy, name: str) -> None:
    stream = client.stream(name)

    def told(error: StreamError) -> None:
        assert error.path == f"/{name}"
        assert str(error).startswith(f"/{name}: ")
        assert str(error).endswith(f"({error.code})")

    with pytest.raises(NotFound) as missing:
        stream.read()
    told(missing.value)
    with pytest.raises(NotFound) as tailed:
        next(stream.tail())
    told(tailed.value)
    stream.create(JSON, closed=True)
    producer = stream.producer("writer")
    with pytest.raises(Closed) as closed:
        producer.append_json(1)
    told(closed.value)
    with pytest.raises(Closed):
        producer.close()
    with pytest.raises(NotFound) as part:
        stream.read_snapshot("0")
    told(part.value)
    away = connect("http://127.0.0.1:9", patience=Patience(give_up_seconds=0)).stream(name, JSON)
    with pytest.raises(Retryable) as unreachable:
        away.append_json(1)
    told(unreachable.value)
    proxy.faults["POST"].append(CUT_AFTER)
    with pytest.raises(OutcomeUnknown) as unknown:
        connect(proxy.url).stream(name, JSON).append_json(1)
    told(unknown.value)


def test_errors_name_the_bucket_or_the_url(client: Client, server: Server, name: str) -> None:
    with pytest.raises(NotFound) as bucket:
        client.bucket("missing-one").info()
    assert bucket.value.path == "/missing-one"
    url = f"{server.url}/v1/stream/{name}/none"
    with pytest.raises(NotFound) as missing:
        client.stream(url).head()
    assert str(missing.value).startswith(f"{url}: ")


def answered(body: bytes, **headers: str) -> Fault:
    """An answer that the proxy makes up."""
    return Fault(
        passes_on=False, status=200, headers={n.replace("_", "-"): v for n, v in headers.items()}, body=body
    )


BROKEN = answered(b"XY{not json", content_type=JSON, stream_next_offset="9", stream_up_to_date="true")
NO_ARRAY = answered(b'{"a":1}', content_type=JSON, stream_next_offset="9", stream_up_to_date="true")


@pytest.mark.parametrize("fault", [BROKEN, NO_ARRAY])
def test_bad_json_is_an_error_of_the_client(
    connect: Connect, proxy: Proxy, client: Client, name: str, fault: Fault
) -> None:
    client.stream(name).create(JSON)
    stream = connect(proxy.url).stream(name)
    proxy.faults["GET"] += [fault] * 3
    with pytest.raises(InvalidAnswer) as read:
        stream.read().values()
    with pytest.raises(InvalidAnswer) as tailed:
        next(stream.tail())
    for error in (read.value, tailed.value):
        assert (error.path, error.code) == (f"/{name}", "invalid_answer")
    with pytest.raises(InvalidAnswer):
        list(stream.tail(decode=False, timeout=0)) if fault is BROKEN else stream.read().values()


def test_a_reader_stops_when_an_answer_does_not_say_where_to_continue(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create(JSON, body="[1]")
    stream = connect(proxy.url).stream(name)
    proxy.faults["GET"] += [answered(b"[1]", content_type=JSON)] * 3
    for reading in (stream.tail(), stream.read_all()):
        with pytest.raises(InvalidAnswer, match="Stream-Next-Offset"):
            list(islice(reading, 5))


def test_bad_json_of_ursulas_own_routes_is_one_too(connect: Connect, proxy: Proxy, name: str) -> None:
    client = connect(proxy.url)
    bucket = client.bucket(name.partition("/")[0])
    proxy.faults["GET"] += [answered(b"<html>a proxy's page</html>")] * 8
    calls: list[Any] = [
        bucket.info,
        lambda: next(bucket.streams()),
        lambda: next(bucket.feed()),
        client.stream(name).attributes,
        lambda: next(client.stream(name).records()),
        lambda: next(client.stream(name).bootstrap()),
        lambda: next(client.buckets()),
    ]
    for call in calls:
        with pytest.raises(InvalidAnswer):
            call()


def test_an_unreadable_answer_to_a_write_may_hide_that_it_is_done(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create()
    proxy.faults["POST"].append(Fault(status=200, body=b"<html>"))
    with pytest.raises(InvalidAnswer) as invalid:
        connect(proxy.url).stream(name).append_batch([b"one"])
    assert invalid.value.maybe_written
    assert client.stream(name).read().data == b"one"


@pytest.mark.parametrize(
    "events",
    [
        b"event: control\ndata: {invalid json here\n\n",
        b"event: control\ndata:\n\n",
        b"event: control\ndata: [1]\n\n",
        b'event: control\ndata: {"upToDate":true}\n\n',
        b'event: data\ndata: [1\n\nevent: control\ndata: {"streamNextOffset":"1"}\n\n',
    ],
)
def test_a_tail_does_not_go_on_over_events_that_make_no_sense(
    connect: Connect, proxy: Proxy, client: Client, name: str, events: bytes
) -> None:
    client.stream(name).create(JSON)
    proxy.faults["GET"] += [Fault(), answered(events, content_type="text/event-stream")]
    with pytest.raises(InvalidAnswer) as invalid:
        next(connect(proxy.url).stream(name).tail(live="sse"))
    assert invalid.value.path == f"/{name}"


def test_an_event_of_an_unknown_kind_is_skipped(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create(JSON, body="[1]", closed=True)
    end = client.stream(name).head().next_offset
    control = json.dumps({"streamNextOffset": end, "streamClosed": True})
    events = b'event: future\ndata: {"x":1}\n\nevent: data\ndata: [1]\n\nevent: control\ndata: %s\n\n'
    first = answered(b"[]", content_type=JSON, stream_next_offset="0", stream_up_to_date="true")
    proxy.faults["GET"] += [first, answered(events % control.encode(), content_type="text/event-stream")]
    tail = connect(proxy.url).stream(name).tail(live="sse")
    assert [message.value for message in tail] == [1]
    assert tail.closed


def test_events_that_are_not_base64_are_one_too(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create()
    events = b'event: data\ndata: A\n\nevent: control\ndata: {"streamNextOffset":"1"}\n\n'
    fault = answered(events, content_type="text/event-stream", stream_sse_data_encoding="base64")
    proxy.faults["GET"] += [Fault(), fault]
    with pytest.raises(InvalidAnswer, match="base64"):
        next(connect(proxy.url).stream(name).tail(live="sse"))


def test_a_server_that_is_away_makes_a_tail_with_a_timeout_fail(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create(JSON, body="[1]")
    proxy.faults["GET"] += [Fault(), *[answer(503, "unavailable", 0)] * 1000]
    tail = connect(proxy.url).stream(name).tail(timeout=0.5)
    assert next(tail).value == 1
    with pytest.raises(Retryable):
        next(tail)
