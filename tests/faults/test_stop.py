"""SIGTERM and SIGINT: an end that loses nothing, in time, whatever the clients are doing."""

import json
import signal
import socket
import time
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest
from tests.faults.client import Client
from tests.faults.long_log import expected_tail, write_long_log
from tests.faults.rounds import seeded
from tests.faults.writers import BINARY, Crowd
from tests.http.raw import Raw
from tests.http.signs import wait_until_held, wait_until_waiting
from tests.server import Server
from tests.waiting import wait_for

from ursula.http.server import STOP_SECONDS_MAX

BODY_SECONDS_MAX = 30.0
"""As long would a stop take that waited for the bodies that never end."""

MESSAGES = 300_000


def stop(server: Server, number: signal.Signals) -> int:
    """Send the signal; the exit code, which must come in time."""
    process, began = server.process, time.monotonic()
    process.send_signal(number)
    process.wait(2 * BODY_SECONDS_MAX)
    assert time.monotonic() - began < BODY_SECONDS_MAX - 5
    complaints = server.complaints()
    code = server.kill()
    assert complaints == []
    return code


def is_accepting(server: Server) -> bool:
    """Whether the server takes new connections: one that stops does not."""
    try:
        with socket.create_connection((server.host, server.port), STOP_SECONDS_MAX):
            return True
    except ConnectionRefusedError:
        return False


def begin_body(server: Server, path: str) -> Raw:
    """An append whose body never comes to its end."""
    raw = Raw(server)
    raw.send(
        f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/octet-stream\r\n"
        "Content-Length: 1000\r\n\r\n".encode()
        + b"never "
    )
    return raw


def begin_chunked(server: Server, path: str) -> Raw:
    """The same in chunks."""
    raw = Raw(server)
    raw.send(
        f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/octet-stream\r\n"
        "Transfer-Encoding: chunked\r\n\r\n6\r\nnever \r\n".encode()
    )
    return raw


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_stop_under_load_loses_nothing_acknowledged(tmp_path: Path, number: signal.Signals) -> None:
    crowd = Crowd(seeded(f"stop {number.name}"))
    server = Server(tmp_path / "data").start()
    crowd.make_streams(server)
    with ExitStack() as stack:

        def ask(path: str) -> Raw:
            return stack.enter_context(Raw(server)).ask("GET", path)

        client = stack.enter_context(closing(Client(server)))
        assert client.ask("PUT", "/v1/stream/quiet", headers=BINARY).status == 201
        events = [ask("/v1/stream/json-0?offset=-1&live=sse") for _ in range(20)]
        polls = [ask("/v1/stream/quiet?offset=-1&live=long-poll&timeout=60") for _ in range(20)]
        if number == signal.SIGTERM:  # each kind of signal takes the same way, and this one takes long
            for begin in (begin_body, begin_chunked):
                for _ in range(5):
                    stack.enter_context(begin(server, "/v1/stream/quiet"))
        crowd.start(server)
        with httpx.Client(base_url=server.url, timeout=60) as api:
            wait_until_waiting(api, "long_poll", len(polls))
        assert wait_for(lambda: crowd.acknowledged > 20)
        assert stop(server, number) == 0
        crowd.finish()
        for raw in events:
            check_events(raw, crowd)
        for raw in polls:
            assert raw.answer().status == 204
    with server:
        crowd.check(server)
        with closing(Client(server)) as client:
            assert client.read("/v1/stream/quiet") == b"", "half a body was stored"


def check_events(raw: Raw, crowd: Crowd) -> None:
    """The events end between two of them, and the response ends as it should."""
    status, headers = raw.begin()
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    text = raw.rest().decode()
    assert text.endswith("\n\n")
    blocks = text.removesuffix("\n\n").split("\n\n")
    assert blocks[-1].startswith("event: control\n") or blocks[-1] == ":"
    numbers: dict[str, list[int]] = {}
    for block in blocks:
        if block.startswith("event: data\n"):
            lines = block.splitlines()[1:]
            for message in json.loads("\n".join(line.removeprefix("data:") for line in lines)):
                if message["part"] == 0:
                    numbers.setdefault(message["w"], []).append(message["n"])
    assert numbers
    for appender in crowd.streams["/v1/stream/json-0"]:
        seen = numbers.get(appender.name, [])
        assert seen == sorted(set(seen))
        assert set(seen) <= appender.sent


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_an_idle_server_with_idle_connections_stops_at_once(tmp_path: Path, number: signal.Signals) -> None:
    server = Server(tmp_path / "data").start()
    client = Client(server)
    assert client.ask("PUT", "/v1/stream/a", b"kept", BINARY).status == 201
    silent = Raw(server)
    events = Raw(server).ask("GET", "/v1/stream/a?offset=-1&live=sse")
    assert events.begin()[0] == 200
    began = time.monotonic()
    assert stop(server, number) == 0
    assert time.monotonic() - began < STOP_SECONDS_MAX, "it waited for someone"
    assert events.rest().endswith(b"\n\n")
    for raw in (silent, events):
        raw.close()
    client.close()
    with server:
        client = Client(server)
        assert client.read("/v1/stream/a") == b"kept"
        client.close()


def test_a_live_read_that_begins_while_the_server_stops_is_ended_too(tmp_path: Path) -> None:
    server = Server(tmp_path / "data").start()
    client = Client(server)
    assert client.ask("PUT", "/v1/stream/a", b"kept", BINARY).status == 201
    half = begin_body(server, "/v1/stream/a")
    with httpx.Client(base_url=server.url, timeout=60) as api:
        wait_until_held(api, len(b"never "))
    early = [Raw(server) for _ in range(10)]
    for raw in early:
        assert raw.ask("GET", "/healthz").answer().status == 200
        raw.send(b"GET /v1/stream/a?offset=now&live=sse HTTP/1.1\r\n")
    process, began = server.process, time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert wait_for(lambda: not is_accepting(server))
    for raw in early:
        raw.send(b"Host: test\r\n\r\n")
        assert raw.begin()[0] == 200
        assert raw.rest().endswith(b"\n\n")
        raw.close()
    assert time.monotonic() - began < STOP_SECONDS_MAX, "live reads were held until the server died"
    # A second signal changes nothing.
    process.send_signal(signal.SIGTERM)
    half.close()
    client.close()
    process.wait(BODY_SECONDS_MAX)
    assert server.kill() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_stop_during_replay_is_clean(tmp_path: Path, number: signal.Signals) -> None:
    write_long_log(tmp_path / "data", messages=MESSAGES)
    server = Server(tmp_path / "data")
    for _ in range(20):
        if is_replaying(server.start(ready=False)):
            break
        server.kill()
    else:
        pytest.fail("every replay was over before it could be stopped")
    assert stop(server, number) == 0
    with server:
        client = Client(server)
        for path, tail in expected_tail(messages=MESSAGES).items():
            assert client.ask("HEAD", path).headers["stream-next-offset"] == f"{tail:020}"
        client.close()


def is_replaying(server: Server) -> bool:
    """Whether a server that was just started is not ready yet, and says so; a slow client comes too late."""
    client = Client(server)
    refused = client.ask("POST", "/v1/stream/not-there", b"x", BINARY)
    is_ready = client.ask("GET", "/readyz/local").status == 200
    client.close()
    if is_ready or refused.status == 404:
        return False
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    return True


def test_a_hangup_changes_nothing_and_is_told_of(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        client = Client(server)
        server.process.send_signal(signal.SIGHUP)
        assert wait_for(lambda: any("SIGHUP" in entry["message"] for entry in server.log))
        assert client.ask("PUT", "/v1/stream/after", b"x", BINARY).status == 201
        client.close()
        assert server.complaints() == []
        assert server.stop() == 0


def test_a_node_whose_store_was_restored_elsewhere_says_so_and_stops(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        client = Client(server)
        assert client.ask("PUT", "/v1/stream/kept", b"x", BINARY).status == 201
        take_over(tmp_path / "data" / "cold")
        answer = client.ask("POST", "/cluster/flush")
        client.close()
        assert answer.status == 503
        error = json.loads(answer.body)["error"]
        assert error["code"] == "unavailable"
        assert "generation 2" in error["message"]
        assert server.process.wait(BODY_SECONDS_MAX) == 1
        (complaint,) = server.complaints()
        assert "generation 2" in complaint["message"]
        assert not any("Traceback" in line for line in server.lines)


def take_over(store: Path) -> None:
    """Begin another generation, as a restore elsewhere does."""
    generation = json.loads((store / "generations" / "1.json").read_text())
    del generation["checksum"]  # as an older version does it
    (store / "generations" / "2.json").write_text(json.dumps({**generation, "generation": 2}))
