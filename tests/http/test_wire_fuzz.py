"""The boundary of the parser: bytes that arrive in any pieces, and bytes that are almost a request."""

import itertools
import re

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.http.raw import Answer, CutOff, Raw
from tests.http.wire import TEXT, content, make
from tests.server import Server

_numbers = itertools.count()

TYPED = "Content-Type: text/plain\r\n"


def requests(path: str) -> list[tuple[str, bytes]]:
    """Requests of every shape: method and bytes."""

    def head(method: str, target: str, *lines: str) -> bytes:
        return "".join([f"{method} {target} HTTP/1.1\r\nHost: t\r\n", *lines, "\r\n"]).encode()

    sized = [
        ("PUT", head("PUT", path, TYPED, "Content-Length: 0\r\n")),
        ("POST", head("POST", path, TYPED, "Content-Length: 5\r\n") + b"hello"),
        ("POST", head("POST", path, TYPED, "Content-Length: 20000\r\n") + b"x" * 20_000),
        ("POST", head("POST", path, TYPED, "Prefer: x\r\n", "Content-Length: 3\r\n") + b"\r\n\r"),
    ]
    chunks = b"4;a=b\r\nfour\r\n1\r\n\n\r\n0\r\nX-Trailer: a\r\n\r\n"
    return [
        *sized,
        ("POST", head("POST", path, TYPED, "Transfer-Encoding: chunked\r\n") + chunks),
        ("GET", head("GET", f"{path}?offset=20000")),
        ("HEAD", head("HEAD", path)),
        ("GET", head("GET", f"{path}-missing")),
        ("POST", head("POST", path, TYPED, "Content-Length: 0\r\n")),
        ("OPTIONS", head("OPTIONS", path)),
        ("POST", head("POST", path, TYPED, "Stream-Closed: true\r\n", "Content-Length: 3\r\n") + b"end"),
        ("DELETE", head("DELETE", path)),
    ]


def told(answer: Answer, path: str) -> tuple[int, dict[str, str], bytes]:
    """An answer without what differs between two streams of equal content."""
    name = path.rpartition("/")[2]
    headers = {
        key: re.sub(r"\d+-\d+-\d+-\d+", "INCARNATION", value).replace(name, "NAME")
        for key, value in answer.headers.items()
        if key != "date"
    }
    return answer.status, headers, answer.body.replace(name.encode(), b"NAME")


def answers(server: Server, path: str, pieces: list[bytes], methods: list[str]) -> list[object]:
    with Raw(server) as raw:
        for piece in pieces:
            raw.send(piece)
        return [told(raw.answer(head=method == "HEAD"), path) for method in methods]


@settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
@given(places=st.lists(st.integers(1, 22_000), max_size=40))
def test_requests_are_the_same_in_whatever_pieces_they_arrive(
    server: Server, api: httpx.Client, places: list[int]
) -> None:
    number = next(_numbers)
    whole, cut = f"/v1/stream/cut-{number:04d}-a", f"/v1/stream/cut-{number:04d}-b"
    methods = [method for method, _ in requests(whole)]
    expected = answers(server, whole, [b"".join(sent for _, sent in requests(whole))], methods)
    data = b"".join(sent for _, sent in requests(cut))
    bounds = sorted({0, len(data), *(place % len(data) for place in places)})
    pieces = [data[first:last] for first, last in itertools.pairwise(bounds)]
    assert answers(server, cut, pieces, methods) == expected


def test_requests_may_arrive_byte_by_byte(server: Server) -> None:
    whole, cut = "/v1/stream/bytes-a", "/v1/stream/bytes-b"
    small = [one for one in requests(whole) if len(one[1]) < 1000]
    methods = [method for method, _ in small]
    expected = answers(server, whole, [sent for _, sent in small], methods)
    data = b"".join(sent for _, sent in requests(cut) if len(sent) < 1000)
    assert answers(server, cut, [data[at : at + 1] for at in range(len(data))], methods) == expected


STRANGE = [
    b"\0",
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b":",
    b"0",
    b"-1",
    b"\xff",
    b"HTTP/1.1",
    b"%",
]


@st.composite
def mutations(draw: st.DrawFn) -> list[tuple[str, float, int, bytes]]:
    """Some changes to some bytes, each at a place between 0 and 1."""
    kinds = st.sampled_from(["insert", "replace", "delete", "repeat", "cut"])
    place = st.floats(0, 1, exclude_max=True)
    strange = st.sampled_from(STRANGE) | st.binary(min_size=1, max_size=4)
    return draw(st.lists(st.tuples(kinds, place, st.integers(1, 30), strange), min_size=1, max_size=4))


def mutated(data: bytes, changes: list[tuple[str, float, int, bytes]]) -> bytes:
    for kind, where, count, strange in changes:
        at = int(where * len(data))
        if kind == "insert":
            data = data[:at] + strange + data[at:]
        elif kind == "replace":
            data = data[:at] + strange + data[at + len(strange) :]
        elif kind == "delete":
            data = data[:at] + data[at + count :]
        elif kind == "repeat":
            data = data[: at + count] + data[at:]
        else:
            data = data[: max(1, at)]
    return data


@settings(max_examples=300, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
@given(which=st.integers(0, 10), changes=mutations())
def test_what_is_almost_a_request_is_refused_or_understood_but_never_breaks_anything(
    server: Server, api: httpx.Client, which: int, changes: list[tuple[str, float, int, bytes]]
) -> None:
    path = f"/v1/stream/almost-{next(_numbers):05d}"
    make(api, path, TEXT, b"x" * 20_000)
    method, data = [one for one in requests(path) if one[0] != "DELETE"][which % 11]
    statuses: list[int] = []
    with Raw(server) as raw:
        raw.send(mutated(data, changes)).finish_sending()
        try:
            while True:
                head_only = method == "HEAD" and not statuses
                statuses.append(raw.answer(head=head_only).status)
        except (CutOff, ConnectionError):
            pass  # the server has answered what it could, and hung up
    assert all(200 <= status < 500 or status == 501 for status in statuses), statuses
    stored = content(api, path)
    assert stored.startswith(b"x" * 20_000)
    if not any(200 <= status < 300 for status in statuses):
        assert len(stored) == 20_000, "nothing was acknowledged, and nothing is stored"
