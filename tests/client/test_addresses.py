"""Which URL a stream is at: by name on Ursula, or anywhere on another server."""

import httpx
import pytest
from tests.client.conftest import Connect
from tests.server import Server

from ursula.client import Client, Refused, StreamAddress, StreamUrl
from ursula.client.address import address_of

TEXT = "text/plain"
ELSEWHERE = "http://127.0.0.1:9"


def test_a_full_url_is_the_stream_at_that_url(connect: Connect, target_url: str, path: str) -> None:
    client = connect(ELSEWHERE)
    stream = client.stream(target_url + path)
    stream.create(TEXT, body="one")
    with stream.producer("writer") as producer:
        producer.append(" two")
    assert httpx.get(target_url + path).content == b"one two"
    assert client.stream(target_url + path, TEXT).head().content_type == TEXT


@pytest.mark.parametrize("place", ["/name", "/deep/er/name", "/a/b", "/sp%20ace/%C3%A4%2Fb"])
def test_a_foreign_server_may_have_a_stream_anywhere(
    connect: Connect, reference: str, path: str, place: str
) -> None:
    here = place + path.rpartition("/")[2]
    by_url = connect(ELSEWHERE).stream(reference + here)
    by_url.create(TEXT, body="x")
    by_path = connect(reference).stream_at(here)
    with by_path.producer("writer") as producer:
        for text in "yz":
            producer.send(text)
    assert by_url.read().data == b"xyz"
    assert httpx.get(reference + here).content == b"xyz"


def test_a_server_may_be_under_a_path(connect: Connect, target_url: str, path: str) -> None:
    stream = connect(f"{target_url}/v1/").stream_at(path.removeprefix("/v1"))
    stream.create(TEXT, body="x")
    assert connect(target_url).stream(path).read().data == b"x"


def test_the_query_of_a_url_is_kept(connect: Connect, reference: str, path: str) -> None:
    stream = connect(ELSEWHERE).stream(f"{reference}{path}?tenant=a%26b")
    stream.create(TEXT, body="x")
    assert stream.read("-1").data == b"x"
    with pytest.raises(Refused, match="offset"):
        connect(ELSEWHERE).stream(f"{reference}{path}?offset=-1").read()  # so it is there, twice


def test_what_belongs_to_a_stream_is_found_by_its_url(server: Server, client: Client, name: str) -> None:
    client.stream(name).create(TEXT)
    for url in (f"{server.url}/{name}", f"{server.url}/v1/stream/{name}"):
        stream = client.stream(url)
        stream.set_attributes({"title": url})
        assert client.stream(name).attributes() == {"title": url}
    with pytest.raises(ValueError, match="attrs"):
        client.stream(f"{server.url}/a/b/c").attributes()


def test_a_name_is_still_a_name() -> None:
    assert address_of("shop/orders") == StreamAddress("shop", "orders")
    assert address_of("/v1/stream/a") == StreamAddress("_default", "a", flat=True)
    assert address_of("https://host/a") == StreamUrl("https://host/a")


def test_a_path_that_is_no_name_is_said_to_be_for_stream_at() -> None:
    with pytest.raises(
        ValueError, match=r"write bucket/stream.*; for exactly this path, use stream_at\('/name'\)"
    ):
        address_of("/name")
    for text in ("name", "/v1/stream/"):
        with pytest.raises(ValueError, match="write") as caught:
            address_of(text)
        assert "stream_at" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "name", "http://", "http:///name", "ftp://host/name", "/a#b", "http://h/a#b"]
)
def test_what_is_no_place_of_a_stream_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|fragment"):
        StreamUrl(text)
