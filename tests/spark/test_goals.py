"""How much a batch of a stream has: no batch is for files that have nothing of the bucket."""

import httpx
import pytest
from tests.http.wire import TEXT, make
from tests.server import Server
from tests.spark.test_streaming import Follower, append, flush, follow


@pytest.fixture
def buckets(api: httpx.Client, path: str) -> tuple[str, str]:
    """A bucket with a message in its first and its last segment, and one with messages in those between."""
    ours, theirs = (f"goals{path.rpartition('/')[2]}-{one}" for one in ("ours", "theirs"))
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
    follower = follow(server, buckets[0], startingOffsets="earliest", **{goal: "1"})
    assert follower.batches() == [["one"], ["two"]]
    alone = Follower(
        buckets[0], path=str(server.data_dir / "cold"), startingOffsets="earliest", **{goal: "1"}
    )
    assert [batch for batch in alone.batches() if batch] == [["one"], ["two"]]
    both = follow(server, buckets[1], startingOffsets="earliest", **{goal: "1"})
    assert both.batches() == [["x"], ["y"], ["z"]]


def test_streams_that_are_not_wanted_make_no_batch(server: Server, buckets: tuple[str, str]) -> None:
    wanted = {"streams": '["b"]', "startingOffsets": "earliest", "maxMessagesPerTrigger": "1"}
    assert follow(server, buckets[0], **wanted).batches() == [[]], "one, to be past what is not wanted"
