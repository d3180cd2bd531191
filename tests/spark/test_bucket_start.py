"""Reading a store without its server: of a bucket that was created again, only rows of the new one."""

from pathlib import Path

import httpx
import pytest
from tests.http.wire import TEXT, make
from tests.server import Server
from tests.spark.test_streaming import Follower, append, flush, remake

from ursula.spark.http_client import RequestRefused
from ursula.spark.reads.options import ReadOptions, parse_read_options
from ursula.spark.reads.partitions import partitions_of
from ursula.spark.reads.rows import read_partition
from ursula.spark.reads.stream_reader import DataLost
from ursula.spark.reads.view import take_view


@pytest.fixture
def bucket(api: httpx.Client, path: str) -> str:
    name = f"begun-{path.rpartition('/')[2]}"
    api.put(f"/{name}").raise_for_status()
    make(api, f"/{name}/a", TEXT)
    return name


@pytest.fixture
def root(server: Server) -> str:
    return str(server.data_dir / "cold")


def values(options: ReadOptions) -> list[str]:
    """The messages of a batch read."""
    batches = [batch for task in partitions_of(options) for batch in read_partition(options, task, ["value"])]
    return [row["value"].decode() for batch in batches for row in batch.to_pylist()]


def test_rows_of_a_deleted_bucket_do_not_show(api: httpx.Client, bucket: str, root: str) -> None:
    append(api, bucket, "old")
    flush(api)
    options = parse_read_options({"bucket": bucket, "path": root})
    assert values(options) == ["old"]
    remake(api, bucket)
    flush(api)
    assert values(options) == ["new"]
    plan = api.get("/cluster/plan", params={"bucket": bucket}).json()
    assert take_view(options, None).after == plan["after"]


def test_rows_of_two_buckets_of_one_name_in_one_segment(api: httpx.Client, bucket: str, root: str) -> None:
    append(api, bucket, "old")
    remake(api, bucket)
    flush(api)
    options = parse_read_options({"bucket": bucket, "path": root})
    assert values(options) == ["new"]


def test_a_bucket_that_was_deleted_is_an_empty_table(api: httpx.Client, bucket: str, root: str) -> None:
    append(api, bucket, "old")
    flush(api)
    for path in (f"/{bucket}/a", f"/{bucket}"):
        assert api.delete(path).status_code == 204
    flush(api)
    options = parse_read_options({"bucket": bucket, "path": root})
    assert values(options) == []
    assert not take_view(options, None).exists


def test_a_position_before_the_bucket_is_refused(api: httpx.Client, bucket: str, root: str) -> None:
    append(api, bucket, "old")
    flush(api)
    options = parse_read_options({"bucket": bucket, "path": root})
    before = take_view(options, None).position
    remake(api, bucket)
    flush(api)
    with pytest.raises(RequestRefused, match="the bucket was created at position"):
        take_view(options, before)


def test_a_query_on_a_store_notices_that_its_bucket_was_created_again(
    api: httpx.Client, bucket: str, root: str
) -> None:
    append(api, bucket, "old")
    flush(api)
    follower = Follower(bucket, path=root, startingOffsets="earliest")
    assert follower.batches() == [["old"]]
    remake(api, bucket)
    flush(api)
    with pytest.raises(DataLost, match="was deleted after the checkpoint"):
        follower.batch()
    lenient = Follower(bucket, follower.offset, path=root, failOnDataLoss="false")
    assert lenient.batches() == [["new"]]


def test_a_query_may_begin_before_its_bucket_does(api: httpx.Client, bucket: str, root: str) -> None:
    append(api, bucket, "something")
    flush(api)
    later = f"{bucket}-later"
    follower = Follower(later, path=root)
    assert follower.batches() == []
    api.put(f"/{later}").raise_for_status()
    make(api, f"/{later}/a", TEXT, b"first")
    flush(api)
    assert follower.batches() == [["first"]]


def test_a_store_without_manifests_is_read_as_it_is(
    api: httpx.Client, bucket: str, root: str, tmp_path: Path
) -> None:
    append(api, bucket, "old")
    flush(api)
    for name in ("live", "generations", "segments"):
        (tmp_path / name).symlink_to(Path(root) / name)
    assert values(parse_read_options({"bucket": bucket, "path": str(tmp_path)})) == ["old"]
