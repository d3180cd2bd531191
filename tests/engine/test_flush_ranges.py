"""A large flush goes to the store a bit at a time, and comes to the same as one of everything at once."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.engine.nodes import begin, done, is_repeat, node_on, picture, write

from ursula.cold.blobs import made_at
from ursula.cold.segment.writer import encode_segment
from ursula.config import ColdSettings
from ursula.engine.flush import ranges as flush_ranges
from ursula.engine.flush import rows as flush_rows
from ursula.engine.flush.rows import rows_by_range, rows_of
from ursula.engine.flush.segment_upload import PacedExecutor, SegmentRange, upload_streamed
from ursula.engine.node import Node
from ursula.engine.pacing import TimeSlice
from ursula.engine.reads.blobs import BlobReads
from ursula.model.commands import Append, Body, Create, Delete, Producer, PublishSnapshot, SetAttributes

pytestmark = pytest.mark.anyio


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is flushed is large."""
    monkeypatch.setattr(flush_ranges, "LARGE_BYTES", 0)
    monkeypatch.setattr(flush_ranges, "RANGE_BYTES", 3000)
    monkeypatch.setattr(flush_rows, "STEP_BYTES", 1000)


async def live(node: Node, seed: int) -> None:
    """Let very different things happen in several buckets, with a cut on the way."""
    group, draw = node.groups[0], random.Random(seed)
    for number in range(600):
        bucket, name = f"b{draw.randrange(3)}", f"s/é{draw.choice((0, 0, 0, draw.randrange(40)))}"
        if group.state.find(bucket, name) is None:
            await done(group, Create(bucket, name, "text/plain", (b"first",), make_bucket=True))
        texts = tuple(draw.randbytes(draw.choice((1, 30, 500, 2500))) for _ in range(draw.choice((1, 1, 3))))
        producer = Producer("p", 0, 0) if number % 40 == 1 else None
        await done(group, Append(bucket, name, texts, "text/plain", producer=producer))
        if number % 10 == 0:
            snapshot = PublishSnapshot(bucket, name, 5, f"{number}", "text/plain", 1, "sha256:x", made_at=0)
            await done(group, snapshot)
        if number % 20 == 0:
            await done(group, SetAttributes(bucket, name, b'{"number":%d}' % number))
        if number % 50 == 0:
            await done(group, Delete(bucket, name))
        if number % 30 == 0:
            await by_reference(node, bucket, draw)
        if number == 300:
            await node.flushers[0]._cut(False)
            group.state.dirty_rows.end_capture()


async def by_reference(node: Node, bucket: str, draw: random.Random) -> None:
    """An append of which the log has only the name."""
    group = node.groups[0]
    if group.state.find(bucket, "named") is None:
        await done(group, Create(bucket, "named", "text/plain", make_bucket=True))
    texts = [draw.randbytes(draw.choice((10, 4000))) for _ in range(3)]
    blob = node.blobs.new_key(bucket, "x")
    await node.blobs.put(blob, texts)
    body = Body(blob, tuple(map(len, texts)), made_at(blob))
    await done(group, Append(bucket, "named", (), "text/plain", body=body))


async def weighed(tables: AsyncIterator[pa.Table], sizes: list[int]) -> AsyncIterator[pa.Table]:
    """The same tables; adds their sizes to a list."""
    async for table in tables:
        sizes.append(table.nbytes)
        yield table


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("small_ranges")
async def test_a_segment_that_is_flushed_bit_by_bit_is_that_of_all_rows(tmp_path: Path, seed: int) -> None:
    async with node_on(tmp_path / "data", cold=ColdSettings(flush_size=1 << 40, cache_bytes=0)) as node:
        await live(node, seed)
        cut = await node.flushers[0]._cut(False)
        fetch = BlobReads(node.store, node.cache).fetch
        place = SegmentRange(0, cut.start, cut.position)
        whole = encode_segment(await rows_of(cut.parts, 0, fetch, TimeSlice()), *place)
        sizes: list[int] = []
        rows = weighed(rows_by_range(cut.parts, 0, fetch, TimeSlice()), sizes)
        stored = await upload_streamed(node.store, node.unfinished, place, rows, PacedExecutor())
        assert stored is not None
        assert len(sizes) > 50
        assert max(sizes) < 10_000
        assert (stored.rows, stored.digest) == (whole.summary.row_count, whole.summary.digest)
        node.groups[0].state.dirty_rows.end_capture()


@pytest.mark.usefixtures("small_ranges")
async def test_what_is_flushed_bit_by_bit_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with node_on(folder) as node:
        await begin(node)
        for part in (1, 2):
            await write(node, part)
        expected = await picture(node)
        await node.flushers[0].flush()
        assert await picture(node) == expected
        assert node.groups[0].state.gauge.count == 0
        await node.flushers[0].purge()
    async with node_on(folder) as node:
        assert await picture(node) == expected
        assert await is_repeat(node, 23)
    assert not list((folder / "cold" / "tmp").iterdir())
