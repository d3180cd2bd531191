"""Live reads that have surely begun: the server counts those that wait for something new."""

from concurrent.futures import Executor, Future

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
