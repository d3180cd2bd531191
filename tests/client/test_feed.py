"""A bucket's feed through the client: everything once, in order, over every stop and loss."""

import threading
from itertools import islice
from typing import Any

import pytest
from tests.client.conftest import Connect
from tests.client.proxy import CUT_BEFORE, Fault, Proxy, answer
from tests.server import Server

from ursula.client import Client, FeedEntry, Gone, NotFound

JSON = "application/json"


@pytest.fixture
def feed_bucket(client: Client, name: str) -> str:
    """A bucket of its own, with a few streams and events."""
    own = name.replace("/", "-")
    client.bucket(own).create()
    stream = client.stream(f"{own}/json")
    stream.create(JSON)
    stream.append_json(1, 2, "three")
    text = client.stream(f"{own}/text")
    text.create("text/plain", body="four\r\n")
    text.close()
    client.stream(f"{own}/bytes").create(body=b"\x00\xff")
    return own


def seen(entries: list[FeedEntry]) -> list[tuple[str, str, Any]]:
    return [(row.kind, row.stream, row.value) for entry in entries for row in entry.rows]


EVERYTHING = [
    ("create", "json", None),
    ("append", "json", 1),
    ("append", "json", 2),
    ("append", "json", "three"),
    ("create", "text", None),
    ("append", "text", "four\r\n"),
    ("close", "text", None),
    ("create", "bytes", None),
    ("append", "bytes", b"\x00\xff"),
]
ENTRIES = 5


def test_the_feed_gives_everything_in_order(client: Client, feed_bucket: str) -> None:
    entries = list(client.bucket(feed_bucket).feed())
    assert seen(entries) == EVERYTHING
    positions = [entry.rows[0].position for entry in entries]
    assert positions == sorted(set(positions))
    assert [row.index for row in entries[1].rows] == [0, 0, 0]
    assert entries[1].rows[2].fields["record"] == 2


def test_a_reader_of_the_feed_can_stop_anywhere(client: Client, feed_bucket: str) -> None:
    offset, found = "-1", list[FeedEntry]()
    while entries := list(islice(client.bucket(feed_bucket).feed(offset), 1)):
        found += entries
        offset = entries[0].next_offset
    assert seen(found) == EVERYTHING


def test_the_feed_is_read_page_by_page(client: Client, feed_bucket: str) -> None:
    bucket = client.bucket(feed_bucket)
    offset, found = "-1", list[FeedEntry]()
    while True:
        page = bucket.feed_page(offset, max_bytes=1)
        found += page.entries
        offset = page.next_offset
        if page.up_to_date:
            break
    assert seen(found) == EVERYTHING
    assert bucket.feed_page("now").entries == ()


def test_the_feed_ends_where_it_was_asked_to(client: Client, feed_bucket: str) -> None:
    bucket = client.bucket(feed_bucket)
    entries = list(bucket.feed())
    middle = entries[2].rows[0].position
    assert seen(list(bucket.feed(until=middle))) == seen(entries[:3])
    assert seen(list(bucket.feed(middle))) == seen(entries[3:])


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_the_feed_is_followed_over_every_kind_of_loss(
    connect: Connect, proxy: Proxy, server: Server, feed_bucket: str, live: Any
) -> None:
    broken = answer(503, "outcome_unknown")
    proxy.faults["GET"] += [CUT_BEFORE, Fault(), CUT_BEFORE, broken, Fault(cut_after_bytes=300), CUT_BEFORE]
    proxy.faults["GET"] += [Fault(cut_after_bytes=size) for size in (350, 370, 390, 700, 1000)]
    proxy.faults["GET"] += [
        broken,
        answer(429, "rate_limited", 0),
        CUT_BEFORE,
    ]

    def write() -> None:
        with Client(server.url) as other:
            for number in range(25):
                other.stream(f"{feed_bucket}/json", JSON).append_json(number, [number])
                done.wait(0.02)

    done = threading.Event()
    thread = threading.Thread(target=write)
    thread.start()
    followed = connect(proxy.url).bucket(feed_bucket).feed(live=live)
    entries = list(islice(followed, ENTRIES + 25))
    thread.join()
    values = [value for kind, stream, value in seen(entries)[len(EVERYTHING) :]]
    assert seen(entries)[: len(EVERYTHING)] == EVERYTHING
    assert values == [value for number in range(25) for value in (number, [number])]


def test_a_bucket_that_is_not_there_has_no_feed(client: Client, name: str) -> None:
    with pytest.raises(NotFound):
        next(client.bucket(f"missing-{name.replace('/', '-')}").feed())


def test_a_position_before_the_bucket_is_gone(client: Client, feed_bucket: str) -> None:
    with pytest.raises(Gone):
        next(client.bucket(feed_bucket).feed("1"))
