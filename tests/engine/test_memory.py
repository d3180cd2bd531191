"""What the allocators are told, which they hear only if it is said before they are loaded; and garbage."""

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path

from tests.engine.nodes import node_on

from ursula.engine.node import YOUNG_OBJECTS_MAX


def test_arrow_gives_memory_back_soon_in_a_server() -> None:
    told = {name: value for name, value in os.environ.items() if not name.startswith("MIMALLOC_")}
    started = subprocess.run(
        [sys.executable, "-c", "import ursula.http.server"],
        env=told | {"MIMALLOC_VERBOSE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "option 'purge_delay': 10 " in started.stderr


def collections() -> list[int]:
    """How often Python has collected garbage in each generation."""
    return [generation["collections"] for generation in gc.get_stats()]


async def collections_of_a_node(folder: Path, objects: int) -> list[int]:
    """How often Python collects garbage in each generation while so many objects are made beside a node."""
    async with node_on(folder):
        before = collections()
        kept: list[list[int]] = [[] for _ in range(objects)]
        after = collections()
    assert len(kept) == objects
    return [later - earlier for earlier, later in zip(before, after, strict=True)]


def test_garbage_is_looked_for_among_few_objects_at_a_time_and_never_among_all(tmp_path: Path) -> None:
    enabled, thresholds = gc.isenabled(), gc.get_threshold()
    try:
        *young, full = asyncio.run(collections_of_a_node(tmp_path, 50 * YOUNG_OBJECTS_MAX))
        assert sum(young) >= 25
        assert full == 0
    finally:
        gc.set_threshold(*thresholds)
        (gc.enable if enabled else gc.disable)()
