"""Signs of how far a server is, from its own metrics: a test waits for one of them instead of for a while."""

from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager

import httpx
from tests.scrape import scrape
from tests.waiting import wait_for


def waiting_count(api: httpx.Client, kind: str) -> int:
    """How many requests of a kind (`long_poll` or `sse`) wait at the server for something new."""
    return int(scrape(api).value("ursula_live_connections", kind=kind))


def wait_until_waiting(api: httpx.Client, kind: str, count: int = 1) -> None:
    """Wait until exactly so many requests of a kind wait at the server."""
    assert wait_for(lambda: waiting_count(api, kind) == count), f"{waiting_count(api, kind)} {kind} wait"


def begin_long_poll(pool: Executor, api: httpx.Client, url: str) -> "Future[httpx.Response]":
    """Ask in another thread, and return once that request waits at the server.

    Nobody else's may wait there: those of earlier tests are gone, or are noticed to be gone soon.
    """
    wait_until_waiting(api, "long_poll", 0)
    waiting = pool.submit(api.get, url)
    wait_until_waiting(api, "long_poll")
    return waiting


def wait_until_clients_are_full(api: httpx.Client) -> None:
    """Wait until the server sends no more to clients that do not read: it has answered others meanwhile."""
    assert wait_for(lambda: _unread_bytes(api) > 0), "everything was taken"
    assert wait_for(lambda: len({_unread_bytes(api) for _ in range(10)}) == 1), "it sends more and more"


def wait_until_held(api: httpx.Client, count: int) -> None:
    """Wait until the server holds exactly so many bytes of bodies that are not stored yet."""
    assert wait_for(lambda: _held_bytes(api) == count), f"{_held_bytes(api)} bytes are held"


@contextmanager
def until_gone(api: httpx.Client) -> Iterator[None]:
    """Return when the server has noticed the end of every connection that came and went in the block.

    It is asked several times, since it may still have to accept one of them when it is asked first.
    """
    before = _connection_count(api)
    yield
    gone = wait_for(lambda: all(_connection_count(api) <= before for _ in range(3)))
    assert gone, f"{_connection_count(api)} connections instead of {before}"


def _unread_bytes(api: httpx.Client) -> int:
    return int(scrape(api).value("ursula_http_unread_bytes"))


def _held_bytes(api: httpx.Client) -> int:
    return int(scrape(api).value("ursula_write_backpressure_bytes", limit="inflight_bytes"))


def _connection_count(api: httpx.Client) -> int:
    return int(scrape(api).value("ursula_http_connections"))
