"""The limits of a streaming batch: files without rows of the bucket make no batch."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.http.wire import TEXT, make
from tests.server import Server
from tests.spark.test_streaming import Follower, append, flush, follow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that has too few segments to merge any."""
    with Server(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def buckets(server: Server) -> tuple[str, str]:
    """A bucket with messages in the first and the last segment, and another with messages in between."""
    with httpx.Client(base_url=server.url, timeout=60) as api:
        return filled(api, "ours", "theirs")


def filled(api: httpx.Client, ours: str, theirs: str) -> tuple[str, str]:
    for name in (ours, theirs):
        api.put(f"/{name}").raise_for_status()
        make(api, f"/{name}/a", TEXT)
    flush(api)
    for name, text in ((theirs, "x"), (ours, "one"), (theirs, "y"), (theirs, "z"), (ours, "two")):
        append(api, name, text)
        flush(api)
    return ours, theirs


@pytest.mark.parametrize("goal", ["maxMessagesPerTrigger", "maxBytesPerTrigger"])
def test_files_without_rows_of_the_bucket_make_no_batch(
    server: Server, buckets: tuple[str, str], goal: str
) -> None:
    ours, theirs = buckets
    given: dict[str, Any] = {"startingOffsets": "earliest", goal: "1"}
    assert follow(server, ours, **given).batches() == [["one"], ["two"]]
    alone = Follower(ours, path=str(server.data_dir / "cold"), **given)
    assert [batch for batch in alone.batches() if batch] == [["one"], ["two"]]
    assert follow(server, theirs, **given).batches() == [["x"], ["y"], ["z"]]


def test_streams_that_are_not_wanted_make_no_batch(server: Server, buckets: tuple[str, str]) -> None:
    given: dict[str, Any] = {"startingOffsets": "earliest", "maxMessagesPerTrigger": "1", "streams": '["b"]'}
    assert follow(server, buckets[0], **given).batches() == [[]], "one, to be past what is not wanted"
