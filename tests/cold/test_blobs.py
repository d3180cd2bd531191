"""Blobs over a store: their keys, whatever their bucket is called, and local copies of remote ones."""

import asyncio
import gc
from pathlib import Path

import pytest
from tests.cold.seaweed import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Seaweed

from ursula.cold.blobs import Blobs, made_at
from ursula.cold.objects.checksum import digest_of
from ursula.cold.objects.fs import FsStore
from ursula.cold.objects.s3 import Credentials, S3Store
from ursula.cold.objects.store import ObjectDamaged, ObjectMissing, StoreUnavailable
from ursula.cold.objects.ulid import new_ulid

pytestmark = pytest.mark.anyio


async def store(blobs: Blobs, bucket: str, incarnation: str, data: bytes = b"data") -> str:
    key = blobs.new_key(bucket, incarnation)
    writer = blobs.create()
    writer.write(data)
    await blobs.keep(writer, key)
    return key


@pytest.fixture
def far(seaweed: Seaweed) -> S3Store:
    """A store that is not on this machine."""
    return S3Store(
        seaweed.bucket("blobs"),
        new_ulid(),
        region="local",
        endpoint=seaweed.endpoint,
        credentials=Credentials(ACCESS_KEY_ID, SECRET_ACCESS_KEY),
    )


@pytest.mark.parametrize("bucket", ["bucket", ".", "a/b", "%2E", "é" * 61, "x" * 120, " ", "~", "UPPER"])
async def test_any_bucket_has_a_folder_of_its_own(tmp_path: Path, bucket: str) -> None:
    near = FsStore(tmp_path / "cold")
    blobs = Blobs(near, tmp_path / "tmp")
    key = await store(blobs, bucket, "0-1-0")
    (stored,) = await near.list("blobs/")
    assert stored.key == f"blobs/{key}"
    path = (await blobs.file(key)).path
    assert len(path.resolve().relative_to((tmp_path / "cold" / "blobs").resolve()).parts) == 3
    assert path.read_bytes() == b"data"
    await blobs.remove(key)
    assert not (tmp_path / "cold" / "blobs").exists()
    await blobs.remove(key)
    await near.close()


async def test_a_blob_on_this_machine_is_written_where_it_stays(tmp_path: Path) -> None:
    near = FsStore(tmp_path / "cold")
    blobs = Blobs(near, tmp_path / "tmp")
    writer = blobs.create()
    writer.write(b"bytes")
    file = writer.path.stat().st_ino
    key = blobs.new_key("bucket", "0-1-0")
    await blobs.keep(writer, key)
    found = await blobs.file(key)
    assert (found.path.stat().st_ino, found.size) == (file, 5), "it was renamed, not copied"
    assert not (tmp_path / "tmp").exists()
    del found
    gc.collect()
    assert (await blobs.file(key)).path.exists(), "only copies are removed when nothing refers to them"
    await near.close()


@pytest.mark.parametrize("where", ["near", "far"])
async def test_pieces_are_stored_in_a_row(tmp_path: Path, where: str, far: S3Store) -> None:
    place = far if where == "far" else FsStore(tmp_path / "cold")
    blobs = Blobs(place, tmp_path)
    pieces = [b"%d," % number for number in range(1000)] + [b"x" * (3 << 20), b"end"]
    for some in (pieces, [b"only one"]):
        key = blobs.new_key("bucket", "0-1-0")
        await blobs.put(key, some)
        assert (await blobs.file(key)).path.read_bytes() == b"".join(some)
        assert await blobs.size(key) == len(b"".join(some))
    unfinished = tmp_path if where == "far" else tmp_path / "cold" / "tmp"
    assert [path for path in unfinished.glob("*") if path.is_file() and "blob-" not in path.name] == []
    await blobs.close()
    await place.close()


async def test_what_cannot_be_written_is_the_failure_of_the_store(tmp_path: Path) -> None:
    near = FsStore(tmp_path / "cold")
    (tmp_path / "cold").write_bytes(b"in the way")
    blobs = Blobs(near, tmp_path / "tmp")
    with pytest.raises(StoreUnavailable, match=r"Not a directory|File exists"):
        blobs.create()
    with pytest.raises(StoreUnavailable):
        await blobs.put(blobs.new_key("bucket", "0-1-0"), [b"bytes"])
    await near.close()


def test_a_key_says_when_it_was_made() -> None:
    assert made_at("bucket/0-1-0/01ARZ3NDEKTSV4RRFFQ69G5FAV") == 1_469_922_850_259_000


async def test_a_lost_blob_is_named(tmp_path: Path, far: S3Store) -> None:
    near = FsStore(tmp_path / "cold")
    for place in (near, far):
        blobs = Blobs(place, tmp_path)
        key = blobs.new_key("bucket", "0-1-0")
        for ask in (blobs.file, blobs.size):
            with pytest.raises(ObjectMissing, match=key):
                await ask(key)
        assert copies(tmp_path) == []
    await near.close()


# Elsewhere


@pytest.fixture
def copied(far: S3Store, tmp_path: Path) -> Blobs:
    """Blobs whose copies may have 1,000 bytes together."""
    return Blobs(far, tmp_path, copies_bytes_max=1000)


def copies(folder: Path) -> list[bytes]:
    gc.collect()
    return sorted(path.read_bytes() for path in folder.glob("blob-*"))


async def test_readers_of_a_blob_that_is_elsewhere_share_one_copy(copied: Blobs, tmp_path: Path) -> None:
    key = await store(copied, "bucket", "0-1-0", b"x" * 600)
    files = await asyncio.gather(*(copied.file(key) for _ in range(20)))
    assert len({file.path for file in files}) == 1
    assert copies(tmp_path) == [b"x" * 600]
    assert (await copied.file(key)).path == files[0].path, "it is kept"


async def test_an_unused_copy_is_removed_when_there_is_no_room(copied: Blobs, tmp_path: Path) -> None:
    first = await store(copied, "bucket", "0-1-0", b"1" * 600)
    second = await store(copied, "bucket", "0-1-0", b"2" * 600)
    reading = await copied.file(first)
    await copied.file(second)
    assert copies(tmp_path) == [b"1" * 600, b"2" * 600], "one is kept, and one is being read"
    del reading
    assert copies(tmp_path) == [b"2" * 600]
    assert (await copied.file(first)).path.read_bytes() == b"1" * 600, "it is fetched again"


async def test_a_copy_that_is_larger_than_all_the_room_goes_with_its_reader(
    copied: Blobs, tmp_path: Path
) -> None:
    key = await store(copied, "bucket", "0-1-0", b"x" * 1001)
    reading = await copied.file(key)
    assert copies(tmp_path) == [b"x" * 1001]
    del reading
    async with asyncio.timeout(60):
        while copies(tmp_path):  # the task that fetched it has it in its hands a moment longer
            await asyncio.sleep(0)


async def test_a_copy_that_was_damaged_is_not_handed_out_and_fetched_again(
    tmp_path: Path, far: S3Store
) -> None:
    copied = Blobs(far, tmp_path)
    key = await store(copied, "b", "0-1-0", b"right")
    copy = await copied.file(key)
    await copied.check(key, copy, digest_of(b"right"))
    copy.path.write_bytes(b"wrong")
    with pytest.raises(ObjectDamaged, match=key):
        await copied.check(key, copy, digest_of(b"right"))
    again = await copied.file(key)
    await copied.check(key, again, digest_of(b"right"))
    assert again.path.read_bytes() == b"right"
    await copied.close()
    await far.close()
