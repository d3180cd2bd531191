"""A web page of another origin tails a stream with `EventSource`, in a real browser."""

import json
from pathlib import Path

import httpx
from tests.conftest import StartServer
from tests.http.wire import CLOSED, JSON, make, post
from tests.interop.browser import Browser

PAGE = Path(__file__).parent / "tail.html"
CYCLES = 3

CONNECTING, OPEN, STOPPED = 0, 1, 2
"""The states of an `EventSource`."""


def values(browser: Browser) -> list[object]:
    """What the page got, in order. A data event is an array of what was new."""
    events = [report.data or "" for report in browser.reports if report.kind in ("data", "message")]
    return [value for event in events for value in json.loads(event)]


def test_a_page_follows_a_stream_over_many_connections_to_its_end(
    start_server: StartServer, path: str
) -> None:
    """Each time it misses something and gets it later. A browser takes 3 s to connect again."""
    server = start_server(http__sse_cycle="500ms")
    sent: list[str] = []
    with httpx.Client(base_url=server.url, timeout=60) as api, Browser(PAGE) as browser:

        def send(value: str, headers: dict[str, str] = JSON) -> None:
            sent.append(value)
            post(api, path, json.dumps(value).encode(), headers)

        make(api, path, JSON)
        send("before")
        browser.open(f"{server.url}{path}?offset=-1&live=sse")
        for cycle in range(CYCLES):
            assert browser.next_of("open").state == OPEN
            assert browser.next_of("data").data == json.dumps(sent[-1:])
            send(f"while connected {cycle}")
            assert browser.next_of("data").data == json.dumps(sent[-1:])
            assert browser.next_of("error").state == CONNECTING
            send(f"while away {cycle}")
        browser.next_of("data")
        send("the last", {**JSON, **CLOSED})
        browser.next_of("data")
        assert [browser.next_of("error").state for _ in range(2)] == [CONNECTING, STOPPED]
        assert values(browser) == sent

        ids = [report.id or "" for report in browser.reports if report.kind == "control"]
        assert ids == sorted(ids)
        tail = api.head(path).headers["stream-next-offset"]
        assert ids[-1] == tail
        stopped = api.get(path, params={"offset": "-1", "live": "sse"}, headers={"last-event-id": tail})
        assert stopped.status_code == 204
    assert server.complaints() == []


def test_a_page_sees_a_stream_only_if_its_origin_is_allowed(start_server: StartServer, path: str) -> None:
    for is_allowed in (True, False):
        with Browser(PAGE) as browser:
            server = start_server(cors__origins=browser.origin if is_allowed else "http://example.org")
            with httpx.Client(base_url=server.url, timeout=60) as api:
                make(api, path, JSON, b'["hello"]')
            browser.open(f"{server.url}{path}?offset=-1&live=sse")
            if is_allowed:
                browser.next_of("data")
                assert values(browser) == ["hello"]
            else:
                refused = browser.next_report()
                assert (refused.kind, refused.state) == ("error", STOPPED)
