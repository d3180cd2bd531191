"""What every store promises, and how each fails."""

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from tests.cold.seaweed import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Seaweed

from ursula import config
from ursula.cold.objects.fs import FsStore
from ursula.cold.objects.open import open_at, open_store
from ursula.cold.objects.s3 import Credentials, S3Store
from ursula.cold.objects.store import PART_BYTES, ObjectDamaged, ObjectMissing, Store, StoreUnavailable

pytestmark = pytest.mark.anyio

SEGMENT = "segments/g0/00-07-01ARZ3NDEKTSV4RRFFQ69G5FAV.parquet"
ODD_KEY = "blobs/a%2Fb%C3%BC ~+&=/0-1-0/01ARZ3NDEKTSV4RRFFQ69G5FAV"
LARGE = os.urandom(1 << 20) * 20 + b"end"

_numbers = count()


def cold_of(seaweed: Seaweed, bucket: str, **others: Any) -> config.ColdSettings:
    """How to reach the S3 server."""
    return config.ColdSettings(
        backend="s3",
        s3_bucket=bucket,
        s3_endpoint=seaweed.endpoint,
        s3_access_key_id=ACCESS_KEY_ID,
        s3_secret_access_key=config.Secret(SECRET_ACCESS_KEY),
        **others,
    )


@pytest.fixture(params=["fs", "s3"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store of each kind, without objects."""
    if request.param == "fs":
        cold = config.ColdSettings()
    else:
        seaweed: Seaweed = request.getfixturevalue("seaweed")
        cold = cold_of(seaweed, seaweed.bucket("tests"), root=f"some/prefix-{next(_numbers)}")
    store = open_store(cold, tmp_path / "data")
    yield store
    await store.close()


async def test_what_was_put_is_what_is_read(store: Store) -> None:
    for key, data in [(SEGMENT, b"rows"), (ODD_KEY, b"\0" * 1000), ("empty", b""), ("large", LARGE)]:
        await store.put(key, data)
        assert await store.get(key) == data
        assert await store.size(key) == len(data)
    await store.put("view", memoryview(b"a view of bytes")[2:6])
    assert await store.get("view") == b"view"
    await store.put("arrow", memoryview(pa.py_buffer(b"rows of Arrow")))
    assert await store.get("arrow") == b"rows of Arrow"


async def test_the_live_list_is_replaced_whole(store: Store) -> None:
    texts = [b"1" * 10_000, b"2" * 20_000]
    await store.put("live/g0.json", texts[0])

    async def replace() -> None:
        for number in range(20):
            await store.put("live/g0.json", texts[number % 2])

    replacing = asyncio.create_task(replace())
    while not replacing.done():
        assert await store.get("live/g0.json") in texts
    await replacing
    assert len(await store.list("live/")) == 1


async def test_a_part_of_an_object_is_read_exactly(store: Store) -> None:
    await store.put(SEGMENT, b"0123456789")
    assert await store.get_range(SEGMENT, 2, 5) == b"234"
    assert await store.get_range(SEGMENT, 9, 10) == b"9"
    assert await store.get_range(SEGMENT, 4, 4) == b""
    for start, end in [(5, 11), (10, 12), (100, 200)]:
        with pytest.raises(ObjectDamaged, match=rf"^the object {SEGMENT} is damaged: it ") as damaged:
            await store.get_range(SEGMENT, start, end)
        assert damaged.value.key == SEGMENT
    with pytest.raises(ValueError, match="is not a range of bytes"):
        await store.get_range(SEGMENT, 5, 4)


async def test_of_many_creates_of_the_same_object_one_succeeds(store: Store) -> None:
    assert await store.create("generations/1.json", b"first")
    assert not await store.create("generations/1.json", b"second")
    assert await store.get("generations/1.json") == b"first"
    tries = [b"by %d" % number for number in range(12)]
    outcomes = await asyncio.gather(*[store.create("generations/2.json", data) for data in tries])
    assert sorted(outcomes) == [False] * 11 + [True]
    assert await store.get("generations/2.json") == tries[outcomes.index(True)]


@pytest.mark.parametrize("data", [b"", b"small", LARGE], ids=["empty", "small", "large"])
async def test_a_local_file_becomes_an_object_and_an_object_a_local_file(
    store: Store, tmp_path: Path, data: bytes
) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(data)
    await store.put_file(SEGMENT, source)
    assert not source.exists()
    assert await store.get(SEGMENT) == data
    copy.write_bytes(b"something else")
    await store.get_file(SEGMENT, copy)
    assert copy.read_bytes() == data
    assert await store.get(SEGMENT) == data


async def test_a_missing_object_differs_from_every_other_failure(store: Store, tmp_path: Path) -> None:
    await store.put("segments/g0/1", b"1")
    for key in (SEGMENT, "segments/g0", "segments/g0/1/2", "nowhere"):
        for asked in (
            store.get(key),
            store.size(key),
            store.get_range(key, 0, 1),
            store.get_file(key, tmp_path / "copy"),
        ):
            with pytest.raises(ObjectMissing) as missing:
                await asked
            assert missing.value.key == key
            assert str(missing.value) == f"the object {key} is missing"
    assert not (tmp_path / "copy").exists()


async def test_objects_are_listed_by_folder_in_order(store: Store) -> None:
    assert await store.list("") == []
    assert await store.list("segments/g1/") == []
    before = time.time()
    for key in ("segments/g1/b", "segments/g1/a", "segments/g10/c", "state/g1/d/e", ODD_KEY):
        await store.put(key, key.encode())
    assert [one.key for one in await store.list("segments/g1/")] == ["segments/g1/a", "segments/g1/b"]
    listed = await store.list("")
    assert [one.key for one in listed] == [
        ODD_KEY,
        "segments/g1/a",
        "segments/g1/b",
        "segments/g10/c",
        "state/g1/d/e",
    ]
    for one in listed:
        assert one.size == len(one.key.encode())
        assert before - 2 < one.modified_at < time.time() + 2
    with pytest.raises(ValueError, match="slash"):
        await store.list("segments/g1")


async def test_more_objects_than_one_answer_holds_are_listed_and_deleted(store: Store) -> None:
    keys = [f"state/g0/{number:04}" for number in range(1100)]
    for first in range(0, len(keys), 50):
        await asyncio.gather(*[store.create(key, b"row") for key in keys[first : first + 50]])
    assert [one.key for one in await store.list("state/")] == keys
    await store.delete(keys)
    assert await store.list("") == []


async def test_deleted_objects_are_gone_and_others_stay(store: Store) -> None:
    for key in (SEGMENT, ODD_KEY, "live/g0.json"):
        await store.put(key, b"bytes")
    await store.delete([SEGMENT, "never/there", ODD_KEY])
    await store.delete([SEGMENT])
    await store.delete([])
    assert [one.key for one in await store.list("")] == ["live/g0.json"]
    await store.put(SEGMENT, b"again")
    assert await store.get(SEGMENT) == b"again"


@pytest.mark.parametrize("key", ["", "/a", "a//b", "a/", "../a", "a/../../b", "./a", "tmp/a", "tmp", "a\0b"])
async def test_no_key_leads_out_of_the_store(store: Store, key: str) -> None:
    asked = (store.put(key, b"1"), store.create(key, b"1"), store.get(key), store.delete([key]))
    for outcome in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(outcome, ValueError)
    assert await store.list("") == []


async def test_what_another_store_wrote_at_the_same_place_is_read(seaweed: Seaweed, tmp_path: Path) -> None:
    bucket = seaweed.bucket("tests-of-places")
    cold = cold_of(seaweed, bucket, root="/some/prefix/")
    for at in (str(tmp_path / "folder"), f"s3://{bucket}", f"s3://{bucket}/some/prefix"):
        first, second = open_at(at, cold), open_at(at, cold)
        assert first.root == at
        await first.put(SEGMENT, at.encode())
        assert await second.get(SEGMENT) == at.encode()
    assert await open_store(cold, tmp_path).get(SEGMENT) == at.encode()
    with pytest.raises(ValueError, match="names no bucket"):
        open_at("s3:///prefix", cold)


# --- Local files -------------------------------------------------------------------------------------------


class Disk:
    """Which names were synced, and which were given, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[tuple[str, str]] = []
        for name in ("rename", "link"):
            monkeypatch.setattr(os, name, self._noting(getattr(os, name)))
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._note_sync)

    def _note_sync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        self.steps.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))

    def _noting(self, give: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
        def noted(before: Path, after: Path) -> None:
            assert ("sync", str(before)) in self.steps, "a name for bytes that may not be there"
            give(before, after)
            self.steps.append(("named", str(after)))

        return noted


@pytest.mark.parametrize("how", ["put", "create", "put_file"])
@pytest.mark.parametrize("is_known", [False, True], ids=["new folder", "folder of one that was killed"])
async def test_a_stored_object_has_all_its_names_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, is_known: bool
) -> None:
    root = tmp_path / "data" / "cold"
    path = root / SEGMENT
    if is_known:  # made, but not synced
        path.parent.mkdir(parents=True)
    (tmp_path / "source").write_bytes(b"bytes")
    disk = Disk(monkeypatch)
    store = FsStore(root)
    if how == "put":
        await store.put(SEGMENT, b"bytes")
    elif how == "create":
        assert await store.create(SEGMENT, b"bytes")
    else:
        await store.put_file(SEGMENT, tmp_path / "source")
    await store.close()
    after = disk.steps[disk.steps.index(("named", str(path))) :]
    assert {("sync", str(folder)) for folder in path.parents[:4]} <= set(after)
    assert path.parents[3] == root.parent
    if not is_known:
        assert ("sync", str(tmp_path)) in disk.steps
    assert path.read_bytes() == b"bytes"
    assert list((root / "tmp").iterdir()) == []


@pytest.mark.parametrize("others", [["segments/g0/other"], []], ids=["folder stays", "folder goes"])
async def test_a_removed_object_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[str]
) -> None:
    store = FsStore(tmp_path / "cold")
    for key in ("segments/g0/one", "segments/g0/two", *others):
        await store.put(key, b"bytes")
    disk = Disk(monkeypatch)
    await store.delete(["segments/g0/one", "segments/g0/two", "never/there"])
    dirty_at = store.local_path(others[0]).parent if others else tmp_path / "cold"
    assert dirty_at.exists()
    assert ("sync", str(dirty_at)) in disk.steps
    await store.close()


async def test_an_object_created_by_another_process_is_on_the_disk_once_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cold" / "generations" / "1.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"by another")
    disk = Disk(monkeypatch)
    assert not await FsStore(tmp_path / "cold").create("generations/1.json", b"mine")
    assert {("sync", str(folder)) for folder in path.parents[:3]} <= set(disk.steps)


async def test_a_file_from_another_disk_is_copied_and_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "elsewhere" / "file"
    source.parent.mkdir()
    source.write_bytes(LARGE)
    rename = os.rename

    def within_a_disk(old: Path, new: Path) -> None:
        if Path(old).parent == source.parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(old, new)

    monkeypatch.setattr(os, "rename", within_a_disk)
    await FsStore(tmp_path / "cold").put_file(SEGMENT, source)
    assert not source.exists()
    assert (tmp_path / "cold" / SEGMENT).read_bytes() == LARGE


async def test_what_was_left_unfinished_is_forgotten_and_no_object(tmp_path: Path) -> None:
    store = FsStore(tmp_path / "cold")
    await store.forget_unfinished()
    await store.put(SEGMENT, b"rows")
    left = tmp_path / "cold" / "tmp" / "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    left.write_bytes(b"half")
    assert [one.key for one in await store.list("")] == [SEGMENT]
    await store.forget_unfinished(older_than=3600)
    assert left.exists()
    await store.forget_unfinished()
    assert not left.exists()
    assert store.local_path(SEGMENT).read_bytes() == b"rows"


async def test_folders_go_with_their_last_object_whatever_is_stored_meanwhile(tmp_path: Path) -> None:
    store = FsStore(tmp_path / "cold")

    async def come_and_go(name: str) -> None:
        for _ in range(40):
            await store.put(f"blobs/bucket/{name}", b"bytes")
            await store.delete([f"blobs/bucket/{name}"])

    await asyncio.gather(*[come_and_go(name) for name in "abcd"])
    assert [path.name for path in (tmp_path / "cold").iterdir()] == ["tmp"]


async def test_a_folder_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = FsStore(tmp_path / "file" / "cold")
    for asked in (store.put(SEGMENT, b"1"), store.create(SEGMENT, b"1")):
        with pytest.raises(StoreUnavailable, match=rf"^the store {tmp_path}/file/cold: Not a directory"):
            await asked
    other = FsStore(tmp_path / "cold")
    await other.put("segments", b"a file where a folder should be")
    for asked in (other.put(SEGMENT, b"1"), other.create(SEGMENT, b"1")):
        with pytest.raises(StoreUnavailable):
            await asked
    assert list((tmp_path / "cold" / "tmp").iterdir()) == []


async def test_a_full_disk_is_reported_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = FsStore(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    for asked in (store.put(SEGMENT, b"rows"), store.create(SEGMENT, b"rows")):
        with pytest.raises(StoreUnavailable, match="No space left on device; the disk is full"):
            await asked
    assert await store.list("") == []
    assert list((tmp_path / "tmp").iterdir()) == []
    monkeypatch.undo()
    await store.put(SEGMENT, b"rows")


# --- S3 ----------------------------------------------------------------------------------------------------


async def failures_of(store: Store, tmp_path: Path) -> list[str]:
    """What each call says when the store does not work."""
    source = tmp_path / "source"
    source.write_bytes(b"x" * (PART_BYTES + 1))
    outcomes = await asyncio.gather(
        store.put("a", b"1"),
        store.put("a", bytes(PART_BYTES + 1)),
        store.create("a", b"1"),
        store.put_file("a", source),
        store.get("a"),
        store.get_range("a", 0, 1),
        store.get_file("a", tmp_path / "copy"),
        store.size("a"),
        store.list(""),
        store.delete(["a"]),
        return_exceptions=True,
    )
    assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}, outcomes
    said = [str(outcome) for outcome in outcomes]
    assert source.exists()
    assert not (tmp_path / "copy").exists()
    assert all("\n" not in one for one in said)
    return said


OURS = Credentials(ACCESS_KEY_ID, SECRET_ACCESS_KEY)


async def test_an_unreachable_endpoint_differs_from_a_missing_object(tmp_path: Path) -> None:
    store = S3Store("bucket", "p", endpoint="http://127.0.0.1:1", credentials=OURS, patience=1.0)
    began = time.monotonic()
    for said in await failures_of(store, tmp_path):
        assert said.startswith("the store s3://bucket/p: no answer from http://127.0.0.1:1 (")
        assert "check cold.s3_endpoint" in said
    assert time.monotonic() - began < 60, "the patience is 1 s, three minutes by default"


async def test_a_missing_bucket_differs_from_a_missing_object(seaweed: Seaweed, tmp_path: Path) -> None:
    store = S3Store("no-such-bucket", endpoint=seaweed.endpoint, credentials=OURS, patience=1.0)
    for said in await failures_of(store, tmp_path):
        assert said.startswith("the store s3://no-such-bucket: ")
        assert f"{seaweed.endpoint} responds with 404 NoSuchBucket; " in said
        assert "check cold.s3_bucket" in said


@pytest.mark.parametrize(
    "wrong", [Credentials("nobody", SECRET_ACCESS_KEY), Credentials(ACCESS_KEY_ID, "no-secret")]
)
async def test_wrong_credentials_are_refused_and_not_shown(
    seaweed: Seaweed, tmp_path: Path, wrong: Credentials
) -> None:
    bucket = seaweed.bucket("tests")
    store = S3Store(bucket, endpoint=seaweed.endpoint, credentials=wrong, patience=1.0)
    for said in await failures_of(store, tmp_path):
        assert f"{seaweed.endpoint} responds with 403" in said
        assert "check cold.s3_access_key_id, cold.s3_secret_access_key" in said
        assert wrong.secret_access_key not in said
    assert wrong.secret_access_key not in repr(wrong)


async def test_credentials_that_are_set_win_over_those_of_the_environment(
    seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = seaweed.bucket("tests")
    for name, value in [
        ("AWS_ACCESS_KEY_ID", "someone"),
        ("AWS_SECRET_ACCESS_KEY", "else"),
        ("AWS_SESSION_TOKEN", "entirely"),
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1"),
    ]:
        monkeypatch.setenv(name, value)
    store = S3Store(bucket, endpoint=seaweed.endpoint, credentials=OURS, patience=1.0)
    await store.put("a", b"1")


async def test_without_credentials_those_of_the_environment_are_used(
    seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = seaweed.bucket("tests")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY)
    store = S3Store(bucket, endpoint=seaweed.endpoint, patience=1.0)
    await store.put("a", b"1")


async def test_names_in_s3_are_those_that_others_see(seaweed: Seaweed) -> None:
    from pyarrow import fs

    bucket = seaweed.bucket("tests")
    store = S3Store(bucket, "p", endpoint=seaweed.endpoint, credentials=OURS)
    await store.put(ODD_KEY, b"seen")
    outside = fs.S3FileSystem(
        access_key=ACCESS_KEY_ID,
        secret_key=SECRET_ACCESS_KEY,
        endpoint_override=httpx.URL(seaweed.endpoint).netloc.decode(),
        scheme="http",
        region="us-east-1",
    )
    with outside.open_input_stream(f"{bucket}/p/{ODD_KEY}") as file:
        assert file.read() == b"seen"
