"""The rows of a merge come sorted, whole and a few at a time, however the inputs lie to each other."""

import random
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cold.sample_rows import Row, mixed_rows, row, table_of

from ursula.cold.cache import Cache
from ursula.cold.objects.fs import FsStore
from ursula.cold.objects.temp_files import Unfinished
from ursula.cold.segment.reader import Segments
from ursula.cold.segment.writer import encode_segment
from ursula.engine.flush.segment_upload import PacedExecutor, SegmentRange, upload_streamed
from ursula.engine.segment_info import segment_from_summary
from ursula.engine.upkeep import merge_rows
from ursula.engine.upkeep.liveness import LiveRows
from ursula.engine.upkeep.merge_rows import MergeRows
from ursula.model.commands import StoredSegment
from ursula.model.state import State

pytestmark = pytest.mark.anyio


def histories(seed: int) -> list[Row]:
    """Streams of all sizes, each with an incarnation of its own, as they are in truth."""
    rows = mixed_rows(seed, 3000)
    for fields in rows:
        fields["incarnation"] += fields["stream"]
    return rows


def one_large_stream() -> list[Row]:
    """One that is larger than several ranges, between two small ones, with events at old offsets."""
    draw = random.Random(1)
    rows = [row("a", "append", 0, 1, b"a" * 100, incarnation="a")]
    offset = 0
    for position in range(2, 400):
        rows.append(row("m", "append", offset, position, draw.randbytes(500), incarnation="m"))
        offset += 500
        if position % 7 == 0:
            rows.append(row("m", "snapshot", draw.randrange(offset), position, incarnation="m"))
    rows.append(row("z", "append", 0, 401, b"z" * 100, incarnation="z"))
    return rows


async def stored(store: FsStore, rows: list[Row], count: int) -> list[StoredSegment]:
    """The rows as neighbouring segments."""
    last = max(fields["position"] for fields in rows)
    found = []
    for number in range(count):
        place = SegmentRange(0, last * number // count, last * (number + 1) // count)
        table = table_of(fields for fields in rows if place.first < fields["position"] <= place.last)
        encoded = encode_segment(table, *place, row_group_bytes=4000)
        key = place.new_key()
        await store.put(key, memoryview(encoded.data))
        found.append(segment_from_summary(key, place.first, place.last, encoded.summary))
    return found


async def weighed(tables: AsyncIterator[pa.Table], sizes: list[int]) -> AsyncIterator[pa.Table]:
    """The same tables; adds their sizes to a list."""
    async for table in tables:
        sizes.append(table.nbytes)
        yield table


@pytest.mark.parametrize("range_bytes", [20_000, 200_000, 4 << 20])
@pytest.mark.parametrize("rows", [histories(1), histories(2), one_large_stream()], ids=["1", "2", "large"])
async def test_a_merge_bit_by_bit_is_the_same_as_one_of_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[Row], range_bytes: int
) -> None:
    monkeypatch.setattr(merge_rows, "RANGE_BYTES", range_bytes)
    monkeypatch.setattr(merge_rows, "SAMPLE_BYTES_MIN", 100)
    store = FsStore(tmp_path)
    with ThreadPoolExecutor(1) as threads:
        inputs = await stored(store, rows, 5)
        merging = MergeRows(inputs, Segments(store, Cache(0), threads), LiveRows(State(0), keep_all=True))
        await merging.survey()
        assert merging.row_count == len(rows)
        place = SegmentRange(0, inputs[0].first, inputs[-1].last)
        sizes: list[int] = []
        tables = weighed(merging.ranges(), sizes)
        output = await upload_streamed(store, Unfinished(store, tmp_path), place, tables, PacedExecutor())
    assert max(sizes) < 2 * range_bytes + 10_000
    assert output is not None
    whole = encode_segment(table_of(rows), *place)
    summary = whole.summary
    assert (output.rows, output.payload_bytes) == (summary.row_count, summary.payload_bytes)
    assert output.digest == summary.digest
    written = pq.read_table(store.local_path(output.key))
    assert written.equals(pq.read_table(pa.BufferReader(whole.data)))
    await store.close()
