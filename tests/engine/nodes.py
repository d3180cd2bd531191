"""A node on a folder, as a server has it, and everything that can be seen of what it holds."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ursula.cold.objects.fs import FsStore
from ursula.cold.objects.store import Store, StoreUnavailable
from ursula.config import ColdSettings, LogKind
from ursula.engine.group.group import Group
from ursula.engine.node import Node
from ursula.engine.reads.deferred import Deferred
from ursula.engine.start.data_folder import DataFolder
from ursula.model.commands import (
    AnyCommand,
    Append,
    Create,
    Delete,
    ForkPoint,
    Producer,
    PublishSnapshot,
    SetAttributes,
)
from ursula.model.outcomes import Appended, FeedPage, Page, Refused

LOG_SEGMENT_BYTES = 4096
STREAMS = ("text", "json", "fork", "other", "gone", "closed")

T = TypeVar("T")


class FaultyStore(FsStore):
    """Local files that, from the n-th call on, cannot be reached; before that call has an effect, or after.

    `calls` are those that were made, each with the kind of object.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.calls: list[str] = []
        self.calls_left: int | None = None
        self.is_late = False

    async def _do(self, work: Any, *arguments: Any) -> Any:
        name = work.__name__.strip("_") if hasattr(work, "__name__") else "call"
        kind = str(arguments[0]).split("/")[0] if arguments and isinstance(arguments[0], str) else ""
        self.calls.append(f"{name} {kind}".strip())
        if self.calls_left is None:
            return await super()._do(work, *arguments)
        self.calls_left -= 1
        if self.calls_left >= 0:
            return await super()._do(work, *arguments)
        if self.calls_left == -1 and self.is_late:
            await super()._do(work, *arguments)
        raise StoreUnavailable("the store cannot be reached: it is a test")


@asynccontextmanager
async def node_on(
    folder: Path, store: Store | None = None, cold: ColdSettings | None = None
) -> AsyncIterator[Node]:
    """A node that has replayed its log. It does not flush by itself; it is stopped at the end.

    What it flushes is out of memory, unless it is given a cache.
    """
    node = Node(
        LogKind.FILE,
        DataFolder(folder),
        LOG_SEGMENT_BYTES,
        cold=cold or ColdSettings(cache_bytes=0),
        store=store,
    )
    task = asyncio.create_task(node.run())
    try:
        async with asyncio.timeout(60):
            while not node.recovered and not task.done():
                await asyncio.sleep(0.001)
        if task.done():
            task.result()
        yield node
    finally:
        await node.stop()
        await asyncio.gather(task, return_exceptions=True)


async def begin(node: Node) -> None:
    """Make streams of every kind."""
    group = node.groups[0]
    for command in (
        Create("b", "text", "text/plain", make_bucket=True),
        Create("b", "json", "application/json", attributes=b'{"a":1}'),
        Create("b", "other", "text/plain", ttl_seconds=1000),
        Create("b", "gone", "text/plain", (b"soon",)),
        Create("b", "closed", "text/plain", (b"the end",), close=True),
    ):
        await done(group, command)
    await write(node, 0)
    await done(group, Create("b", "fork", None, fork=ForkPoint("text", 10)))


async def write(node: Node, part: int) -> None:
    """Let something happen in all of them."""
    group = node.groups[0]
    for number in range(8):
        seq = part * 8 + number
        text = b"part %d, number %d. " % (part, number) * 8
        await done(group, Append("b", "text", (text,), "text/plain", producer=Producer("p", 0, seq)))
        message = b'{"part":%d,"number":%d}' % (part, number)
        await done(group, Append("b", "json", (message, message), "application/json"))
    await done(group, SetAttributes("b", "json", b'{"part":%d}' % part))
    if part == 1:
        await done(group, Append("b", "fork", (b"my own",), "text/plain"))
        await done(group, Delete("b", "gone"))
        snapshot = PublishSnapshot("b", "other", 0, "b/x/y", "text/plain", 1, "sha256:x", made_at=0)
        await done(group, snapshot)
    if part == 2:
        await done(group, Create("b", "gone", "text/plain", (b"again",)))


async def done(group: Group, command: AnyCommand) -> None:
    """Have it done, or fail."""
    outcome = await group.propose_and_wait(command)
    assert not isinstance(outcome, Refused), (command, outcome)
    assert not type(outcome).__module__.endswith("failures"), (command, outcome)


async def picture(node: Node, streams: Sequence[str] = STREAMS) -> dict[str, object]:
    """All that can be seen of the bucket: what its streams are, what is in them, and what happened."""
    group = node.groups[0]
    found: dict[str, object] = {"bucket": group.describe_bucket("b")}
    for name in streams:
        found[name] = group.describe("b", name)
        page = await got(group.read("b", name, 0, 1 << 30))
        found[f"{name}: content"] = b"".join(page.chunks) if isinstance(page, Page) else page
    feed = await got(group.read_feed("b", None, None, 1 << 30))
    assert isinstance(feed, FeedPage), feed
    found["feed"] = msgspec.to_builtins(feed.entries)
    return found


async def got(read: "T | Refused | Deferred[T]") -> "T | Refused":
    """What a read came to, wherever its bytes lie."""
    return await read.get() if isinstance(read, Deferred) else read


async def is_repeat(node: Node, seq: int) -> bool:
    """Whether the producer's append of this number is known to have been done."""
    command = Append("b", "text", (b"?",), "text/plain", producer=Producer("p", 0, seq))
    outcome = await node.groups[0].propose_and_wait(command)
    return isinstance(outcome, Appended) and outcome.duplicate
