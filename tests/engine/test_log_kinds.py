"""The kind of log is given to a node: nothing else decides where its entries go."""

import asyncio
from pathlib import Path

import pytest
from tests.engine.nodes import LOG_SEGMENT_BYTES, done

from ursula.config import LogKind
from ursula.engine.node import Node
from ursula.engine.start.data_folder import DataFolder
from ursula.log.file import FileLog
from ursula.log.memory import MemoryLog
from ursula.model.commands import CreateBucket

pytestmark = pytest.mark.anyio

CLASSES = {LogKind.FILE: FileLog, LogKind.MEMORY: MemoryLog}


async def run_once(kind: LogKind, folder: Path, write: bool) -> tuple[type, list[str]]:
    """Run a node for a moment; returns the class of its log, and its buckets."""
    node = Node(kind, DataFolder(folder) if kind.is_durable else None, LOG_SEGMENT_BYTES)
    task = asyncio.create_task(node.run())
    async with asyncio.timeout(60):
        while not node.recovered:
            await asyncio.sleep(0.001)
    if write:
        await done(node.groups[0], CreateBucket("b"))
    found = type(node.groups[0].log), [bucket.name for bucket in node.list_buckets("", 10)]
    await node.stop()
    await asyncio.gather(task, return_exceptions=True)
    return found


@pytest.mark.parametrize("kind", [LogKind.FILE, LogKind.MEMORY])
async def test_a_node_has_the_log_it_is_told_to_have(kind: LogKind, tmp_path: Path) -> None:
    assert await run_once(kind, tmp_path / "data", write=True) == (CLASSES[kind], ["b"])
    kept = ["b"] if kind.is_durable else []
    assert await run_once(kind, tmp_path / "data", write=False) == (CLASSES[kind], kept)
    assert (tmp_path / "data").exists() == kind.is_durable


async def test_a_durable_log_needs_a_data_folder_and_no_other_has_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"server\.log = file needs a data folder"):
        Node(LogKind.FILE, None, LOG_SEGMENT_BYTES)
    folder = DataFolder(tmp_path)
    with pytest.raises(ValueError, match=r"server\.log = memory must not have a data folder"):
        Node(LogKind.MEMORY, folder, LOG_SEGMENT_BYTES)
    folder.close()
