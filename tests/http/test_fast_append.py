"""The fast append answers as the long way does, to the same request with a header that rules it out."""

import itertools
import re

import httpx
import pytest
from tests.http.raw import Answer, Raw
from tests.http.wire import CLOSED, JSON, TEXT, content, make
from tests.server import Server

RULES_IT_OUT = "Prefer: nothing"
"""A header that the server knows, so it takes the long way, and that changes nothing about an append."""

_numbers = itertools.count()

BODIES = {
    "text": ("text", b"hello"),
    "one byte": ("text", b"\0"),
    "16 KiB": ("text", b"x" * 16384),
    "empty": ("text", b""),
    "json value": ("json", b'{"a": 1}'),
    "json array": ("json", b"[1, 2, [3]]"),
    "empty json array": ("json", b"[]"),
    "no json": ("json", b"{"),
    "closed": ("closed", b"more"),
    "missing": ("missing", b"more"),
    "deleted": ("deleted", b"more"),
    "ttl": ("ttl", b"more"),
    "fork": ("fork", b"more"),
}
TYPES: dict[str, list[str | bytes]] = {
    "plain": ["Content-Type: text/plain"],
    "with a parameter": ["Content-Type: text/plain; charset=utf-8"],
    "upper case": ["CONTENT-TYPE: TEXT/Plain"],
    "json": ["Content-Type: application/json"],
    "another": ["Content-Type: application/xml"],
    "none": [],
    "two": ["Content-Type: text/plain", "Content-Type: text/plain"],
    "empty": ["Content-Type: "],
    "not ascii": [b"Content-Type: text/pl\xe4in"],
}
MORE: dict[str, list[str]] = {
    "nothing": [],
    "origin": ["Origin: https://a.example"],
    "close": ["Connection: close"],
    "encoded": ["Content-Encoding: gzip"],
    "identity": ["Content-Encoding: identity"],
}


def make_streams(api: httpx.Client, path: str) -> None:
    make(api, f"{path}-text", TEXT, b"begin")
    make(api, f"{path}-json", JSON, b"[0]")
    make(api, f"{path}-closed", {**TEXT, **CLOSED}, b"bye")
    make(api, f"{path}-deleted", TEXT, b"gone")
    api.delete(f"{path}-deleted").raise_for_status()
    make(api, f"{path}-ttl", {**TEXT, "stream-ttl": "3600"}, b"begin")
    make(api, f"{path}-fork", {**TEXT, "stream-forked-from": f"{path}-text"})


def told(answer: Answer, path: str) -> tuple[int, dict[str, str], bytes]:
    """An answer without what differs between two streams of equal content."""
    headers = {
        name: re.sub(r"\d+-\d+-\d+-\d+", "INCARNATION", value)
        for name, value in answer.headers.items()
        if name != "date"
    }
    return answer.status, headers, answer.body.replace(path.rsplit("/", 1)[-1].encode(), b"NAME")


def make_both(api: httpx.Client) -> tuple[str, str]:
    """The same streams twice: for the fast path and for the slow one, whose paths end with `-slow`."""
    number = next(_numbers)
    fast, slow = f"/v1/stream/either-{number}-fast", f"/v1/stream/either-{number}-slow"
    make_streams(api, fast)
    make_streams(api, slow)
    return fast, slow


def ask(
    server: Server, path: str, stream: str, head: list[str | bytes], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    """Append to a stream; the answer without what differs between the two ways."""
    lines = [RULES_IT_OUT] if path.endswith("-slow") else []
    with Raw(server) as raw:
        raw.ask("POST", f"{path}-{stream}", *head, *lines, body=body)
        return told(raw.answer(), path)


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("content_type", TYPES)
def test_both_ways_give_the_same_answers_and_streams(
    server: Server, api: httpx.Client, content_type: str, more: str
) -> None:
    fast, slow = make_both(api)
    for name, (stream, body) in BODIES.items():
        ways = [ask(server, way, stream, [*TYPES[content_type], *MORE[more]], body) for way in (fast, slow)]
        assert ways[0] == ways[1], name
    for stream in ("text", "json", "closed", "ttl", "fork"):
        assert content(api, f"{fast}-{stream}") == content(api, f"{slow}-{stream}"), stream


PRODUCERS: dict[str, list[str | bytes]] = {
    "next": ["Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: 0"],
    "again": ["Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: 0"],
    "a gap": ["Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: 7"],
    "a new epoch": ["Producer-Id: p", "Producer-Epoch: 1", "Producer-Seq: 0"],
    "an old epoch": ["Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: 1"],
    "another that begins late": ["Producer-Id: q", "Producer-Epoch: 0", "Producer-Seq: 3"],
    "without a number": ["Producer-Id: p", "Producer-Epoch: 1"],
    "a bad number": ["Producer-Id: p", "Producer-Epoch: 1", "Producer-Seq: one"],
    "a negative number": ["Producer-Id: p", "Producer-Epoch: 1", "Producer-Seq: -1"],
    "no name": ["Producer-Id: ", "Producer-Epoch: 1", "Producer-Seq: 1"],
    "a long name": [f"Producer-Id: {'p' * 300}", "Producer-Epoch: 1", "Producer-Seq: 1"],
    "two names": ["Producer-Id: p", "Producer-Id: q", "Producer-Epoch: 1", "Producer-Seq: 1"],
    "not ascii": [b"Producer-Id: p\xe4", "Producer-Epoch: 1", "Producer-Seq: 1"],
}
"""In this order, so that each finds the producer as the ones before left it."""


@pytest.mark.parametrize("more", ["nothing", "origin", "close"])
@pytest.mark.parametrize("content_type", ["plain", "json", "another", "none"])
def test_both_ways_give_producers_the_same_answers_and_streams(
    server: Server, api: httpx.Client, content_type: str, more: str
) -> None:
    fast, slow = make_both(api)
    for (name, producer), stream in itertools.product(
        PRODUCERS.items(), ("text", "json", "closed", "missing")
    ):
        head = [*TYPES[content_type], *MORE[more], *producer]
        ways = [ask(server, way, stream, head, b"[1,2]") for way in (fast, slow)]
        assert ways[0] == ways[1], (name, stream)
    for stream in ("text", "json", "closed"):
        assert content(api, f"{fast}-{stream}") == content(api, f"{slow}-{stream}"), stream


def test_a_stream_that_is_closed_while_appends_are_queued_refuses_them_as_ever(
    server: Server, api: httpx.Client, path: str
) -> None:
    """Queued by the fast way before the close is applied: its outcome is no success."""
    make(api, path, TEXT)
    connections = [Raw(server) for _ in range(40)]
    for number, raw in enumerate(connections):
        more = ["Stream-Closed: true"] if number == 20 else []
        raw.ask("POST", path, "Content-Type: text/plain", *more, body=b"%02d" % number)
    answers = [raw.answer() for raw in connections]
    for raw in connections:
        raw.close()
    stored = content(api, path)
    for number, answer in enumerate(answers):
        is_stored = b"%02d" % number in [stored[at : at + 2] for at in range(0, len(stored), 2)]
        assert answer.status == (204 if is_stored else 409)
        if not is_stored:
            assert answer.code == "stream_closed"
            assert answer.headers["stream-closed"] == "true"
