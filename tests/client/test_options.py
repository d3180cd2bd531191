"""Headers and parameters of the caller's own, and an authorization that can change."""

import asyncio
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.client.conftest import OPTIONS, Connect
from tests.client.proxy import CUT_AFTER, Proxy, answer
from tests.client.test_producer import ONE_BY_ONE
from tests.server import Server

from ursula.client import AsyncClient, Client

JSON = "application/json"


def params(proxy: Proxy) -> dict[str, list[str]]:
    """The query parameters of the last request."""
    return parse_qs(urlsplit(proxy.targets[-1]).query)


def test_headers_and_parameters_of_the_client_go_with_every_request(
    connect: Connect, proxy: Proxy, name: str
) -> None:
    client = connect(proxy.url, headers={"X-Tenant": "a"}, params={"region": "eu", "n": lambda: "1"})
    stream = client.stream(name)
    stream.create(JSON)
    stream.append_json(1)
    stream.read()
    stream.close()
    list(stream.tail())
    client.bucket(name.partition("/")[0]).info()
    assert {headers.get("x-tenant") for headers in proxy.seen} == {"a"}
    assert len(proxy.targets) >= 6
    for target in proxy.targets:
        query = parse_qs(urlsplit(target).query)
        assert (query["region"], query["n"]) == (["eu"], ["1"])


def test_a_call_may_have_its_own(connect: Connect, proxy: Proxy, name: str) -> None:
    client = connect(proxy.url, headers={"x-tenant": "a", "x-kept": "k"}, params={"region": "eu"})
    stream = client.stream(name)
    stream.create(JSON)
    stream.with_options(headers={"X-Tenant": "b"}, params={"region": "us"}).read()
    assert (proxy.seen[-1]["x-tenant"], proxy.seen[-1]["x-kept"]) == ("b", "k")
    assert params(proxy)["region"] == ["us"]
    stream.read()
    assert (proxy.seen[-1]["x-tenant"], params(proxy)["region"]) == ("a", ["eu"])
    with stream.with_options(headers={"x-tenant": "c"}).producer("writer", batching=ONE_BY_ONE) as producer:
        producer.append_json(1)
        assert proxy.seen[-1]["x-tenant"] == "c"
    bucket = client.bucket(name.partition("/")[0]).with_options(params={"region": "ap"})
    bucket.info()
    assert params(proxy)["region"] == ["ap"]


def test_what_the_protocol_needs_is_not_replaced(connect: Connect, proxy: Proxy, name: str) -> None:
    client = connect(proxy.url, headers={"Content-Type": "text/html"}, params={"offset": "now"})
    stream = client.stream(name)
    stream.create(JSON, body="[1]")
    assert stream.head().content_type == JSON
    assert stream.read().values() == [1]


def test_an_authorization_is_computed_for_every_try(connect: Connect, proxy: Proxy, name: str) -> None:
    tokens = count()
    client = connect(proxy.url, auth=lambda: f"Bearer {next(tokens)}")
    stream = client.stream(name)
    proxy.faults["PUT"] += [answer(503, "unavailable", 0), CUT_AFTER]
    stream.create(JSON)
    assert [headers["authorization"] for headers in proxy.seen] == ["Bearer 0", "Bearer 1", "Bearer 2"]
    with stream.producer("writer", batching=ONE_BY_ONE) as producer:
        proxy.faults["POST"] += [CUT_AFTER]
        producer.append_json(1)
    assert [headers["authorization"] for headers in proxy.seen[3:]] == ["Bearer 3", "Bearer 4"]


def test_a_fixed_authorization_is_still_a_text(connect: Connect, proxy: Proxy, name: str) -> None:
    connect(proxy.url, auth="Bearer abc").stream(name).create(JSON)
    assert proxy.seen[-1]["authorization"] == "Bearer abc"


@pytest.mark.anyio
async def test_an_asynchronous_client_awaits_functions(proxy: Proxy, name: str) -> None:
    async def token() -> str:
        await asyncio.sleep(0)
        return "Bearer later"

    async with AsyncClient(proxy.url, auth=token, params={"soon": token, "now": lambda: "n"}) as client:
        await client.stream(name).with_options(headers={"x-late": token}).create(JSON)
    assert (proxy.seen[-1]["authorization"], proxy.seen[-1]["x-late"]) == ("Bearer later", "Bearer later")
    assert params(proxy) == {"soon": ["Bearer later"], "now": ["n"]}


def test_a_blocking_client_says_that_it_cannot_await(server: Server, name: str) -> None:
    async def token() -> str:
        return "never"

    wrong: Any = token
    with Client(server.url, auth=wrong, **OPTIONS) as client, pytest.raises(TypeError, match="AsyncClient"):
        client.stream(name).read()


def test_what_is_no_text_and_what_fails_reaches_the_caller(connect: Connect, proxy: Proxy, name: str) -> None:
    wrong: Any = lambda: 7  # noqa: E731
    with pytest.raises(TypeError, match="x-number"):
        connect(proxy.url, headers={"X-Number": wrong}).stream(name).read()

    def expired() -> str:
        raise PermissionError("log in again")

    with pytest.raises(PermissionError, match="log in again"):
        connect(proxy.url, auth=expired).stream(name).read()
    with pytest.raises(PermissionError, match="log in again"):
        next(connect(proxy.url, auth=expired).stream(name).tail())
    producer = connect(proxy.url, auth=expired).stream(name, JSON).producer("writer")
    with pytest.raises(PermissionError, match="log in again"):
        producer.append_json(1)
    with pytest.raises(PermissionError, match="log in again"):
        producer.close()
    assert proxy.seen == []
