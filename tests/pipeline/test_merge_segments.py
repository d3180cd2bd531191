"""Merged segments: all rows of all of them, sorted, with their positions, in little memory."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ursula.cold.segment.footer import Footer
from ursula.cold.segment.schema import SEGMENT_SCHEMA
from ursula.cold.segment.writer import encode_segment
from ursula.spark.executor_store import ExecutorStore
from ursula.spark.options import S3Options
from ursula.spark.tasks.merge_segments import merge_segments, merged_rows


def rows_of(random: Random, first: int, last: int, count: int) -> list[dict[str, Any]]:
    """Rows as they come from a log: offsets grow with positions."""
    positions = sorted(random.randrange(first + 1, last + 1) for _ in range(count))
    rows = []
    for number, position in enumerate(positions):
        row: dict[str, Any] = dict.fromkeys(SEGMENT_SCHEMA.names)
        name = random.choice(["a", "b", "long", "long", "long"])
        kind = random.choice(["append"] * 5 + ["close"])
        row |= {"group": 0, "bucket": random.choice(["demo", "other"]), "stream": name, "kind": kind}
        row |= {"incarnation": "0-1-0", "offset": position // 9, "next_offset": position // 9 + 1}
        row |= {"position": position, "index": number, "content_type": "text/plain"}
        row["payload"] = random.randbytes(10) if kind == "append" else None
        rows.append(row)
    return rows


@pytest.fixture
def store(tmp_path: Path) -> ExecutorStore:
    return ExecutorStore(str(tmp_path), S3Options())


def put(store: ExecutorStore, number: int, rows: list[dict[str, Any]], first: int, last: int) -> str:
    table = pa.Table.from_pylist(rows, schema=SEGMENT_SCHEMA)
    encoded = encode_segment(table, 0, first, last, row_group_rows=7)
    path = Path(store.root) / f"{number}.parquet"
    path.write_bytes(encoded.data)
    return path.name


@pytest.mark.parametrize("seed", range(20))
def test_all_rows_are_there_in_the_order_of_a_segment(store: ExecutorStore, seed: int) -> None:
    random = Random(seed)
    every, paths = [], []
    for number in range(random.randrange(1, 6)):
        rows = rows_of(random, number * 50, number * 50 + 50, random.randrange(60))
        paths.append(put(store, number, rows, number * 50, number * 50 + 50))
        every += rows
    merged = merge_segments(store, 0, 0, len(paths) * 50, paths)
    expected = encode_segment(pa.Table.from_pylist(every, schema=SEGMENT_SCHEMA), 0, 0, len(paths) * 50)
    found = Path(store.root) / merged.path
    assert pq.read_table(found).to_pylist() == pq.read_table(pa.BufferReader(expected.data)).to_pylist()
    assert (merged.rows, merged.size) == (len(every), found.stat().st_size)
    footer = Footer.parse(merged.path, found.read_bytes(), None)
    assert (footer.group, footer.positions) == (0, (0, len(paths) * 50))
    assert not list((Path(store.root) / "tmp").iterdir()), "nothing unfinished is left"


def test_only_a_few_row_groups_are_in_memory(store: ExecutorStore) -> None:
    random = Random(1)
    paths = []
    for first, last in ((0, 500), (500, 1000)):
        paths.append(put(store, first, rows_of(random, first, last, 400), first, last))
    tables = list(merged_rows([store.segment(path) for path in paths]))
    assert sum(table.num_rows for table in tables) == 800
    assert max(table.num_rows for table in tables) <= 14


def test_a_damaged_segment_is_not_merged(store: ExecutorStore) -> None:
    path = Path(store.root) / put(store, 0, rows_of(Random(1), 0, 50, 40), 0, 50)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="checksum"):
        merge_segments(store, 0, 0, 50, [path.name])
    assert not (Path(store.root) / "segments").exists()
