"""Reading segments from a store: few bytes are fetched, and damage is reported by the name of the object."""

import asyncio
import random
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cold.sample_rows import mixed_rows, one_stream, table_of

from ursula.cold.cache import Cache
from ursula.cold.objects.fs import FsStore
from ursula.cold.objects.store import ObjectDamaged, ObjectMissing, Store
from ursula.cold.segment.reader import SegmentRef, Segments
from ursula.cold.segment.writer import encode_segment

pytestmark = pytest.mark.anyio

KEY = "segments/g0/0-9-01J.parquet"
NAME = ("b", "s", "1-1-0")


@asynccontextmanager
async def opened(root: Path, cache_bytes: int = 64 << 20) -> AsyncIterator[tuple[Segments, Store]]:
    store, cache = FsStore(root), Cache(cache_bytes)
    with ThreadPoolExecutor(2) as threads:
        yield Segments(store, cache, threads), store
    await cache.close()
    await store.close()


async def stored(store: Store, table: pa.Table, row_group_bytes: int = 1 << 20) -> SegmentRef:
    segment = encode_segment(table, 0, 0, 9, row_group_bytes=row_group_bytes)
    await store.put(KEY, memoryview(segment.data))
    return SegmentRef(KEY, segment.summary.size, segment.summary.footer_bytes, segment.summary.footer_crc)


async def read(segments: Segments, ref: SegmentRef, offset: int, bytes_max: int) -> bytes:
    """As the server does it: the row group of the offset, then those that follow."""
    chunks: list[bytes] = []
    footer = await segments.footer(ref)
    row_group = footer.find(*NAME, offset)
    while row_group is not None and bytes_max > 0:
        found = await segments.stream_slice(ref, row_group, NAME)
        if found is not None:
            end = found.read(offset, found.end, bytes_max, False, chunks, False)
            bytes_max -= end - offset
            offset = end
        row_group = footer.following(row_group, *NAME)
    return b"".join(chunks)


async def test_a_small_read_of_a_large_segment_fetches_little(tmp_path: Path) -> None:
    draw = random.Random(1)
    messages = [draw.randbytes(64 << 10) for _ in range(1024)]
    table = one_stream(messages)

    async with opened(tmp_path) as (segments, store):
        ref = await stored(store, table)
        assert ref.size > 64 << 20
        assert await read(segments, ref, 40 << 20, 64 << 10) == messages[640]
        assert segments.fetched_bytes < 1.2 * (1 << 20)
        assert segments.fetch_count == 2
        assert len(await read(segments, ref, (40 << 20) + 1000, 64 << 10)) == 64 << 10
        assert segments.fetch_count == 2


@pytest.mark.parametrize("cache_bytes", [0, 100_000, 64 << 20])
async def test_a_stream_is_read_whole_whatever_the_cache_holds(tmp_path: Path, cache_bytes: int) -> None:
    draw = random.Random(2)
    messages = [draw.randbytes(draw.randrange(1, 5000)) for _ in range(300)]

    async with opened(tmp_path, cache_bytes) as (segments, store):
        ref = await stored(store, one_stream(messages), 20_000)
        assert await read(segments, ref, 0, 1 << 40) == b"".join(messages)


async def test_readers_of_one_row_group_share_one_fetch(tmp_path: Path) -> None:
    async with opened(tmp_path, 0) as (segments, store):
        ref = await stored(store, one_stream([b"abc"] * 100))
        answers = await asyncio.gather(*(read(segments, ref, 3 * i, 3) for i in range(50)))
        assert set(answers) == {b"abc"}
        assert segments.fetch_count == 2


async def test_all_rows_come_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as (segments, store):
        ref = await stored(store, table_of(mixed_rows(3)), 10_000)
        footer = await segments.footer(ref)
        tables = [await segments.row_group(ref, row_group) for row_group in footer.row_groups]
        assert len(tables) > 10
        assert sum(table.num_rows for table in tables) == len(mixed_rows(3))


async def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as (segments, store):
        ref = await stored(store, one_stream([b"abc"]))
        row_group = (await segments.footer(ref)).row_groups[0]
        await store.delete([KEY])
        with pytest.raises(ObjectMissing, match=KEY):
            await segments.row_group(ref, row_group)
        with pytest.raises(ObjectMissing, match=KEY):
            await segments.footer(ref._replace(size=ref.size + 1))


async def test_a_damaged_segment_is_named_and_read_again_when_it_is_whole(tmp_path: Path) -> None:
    async with opened(tmp_path) as (segments, store):
        ref = await stored(store, one_stream([b"abc"] * 100))
        good = await store.get(KEY)
        for place in (-20, 100):
            bad = bytearray(good)
            bad[place] ^= 1
            await store.put(KEY, bytes(bad))
            with pytest.raises(ObjectDamaged) as damage:
                await read(segments, ref, 0, 3)
            assert damage.value.key == KEY
            assert "checksum" in damage.value.problem
            assert str(damage.value).count(KEY) == 1
        await store.put(KEY, good[:-5])
        with pytest.raises(ObjectDamaged, match=KEY):
            await segments.footer(ref._replace(footer_crc=0))
        await store.put(KEY, good)
        assert await read(segments, ref, 0, 3) == b"abc"
