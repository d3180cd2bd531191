"""Feeds from the store: whole segments are sorted for them, and those are large."""

import asyncio
import threading
import time
from pathlib import Path

import pytest
from tests.engine.nodes import done, got, node_on

from ursula.cold.feed_spool import Spool
from ursula.cold.objects.store import StoreUnavailable
from ursula.config import ColdSettings
from ursula.model.commands import Append, Create
from ursula.model.outcomes import FeedPage

pytestmark = pytest.mark.anyio


async def test_one_segment_at_a_time_is_sorted_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, at_once, most = Spool.write, threading.Semaphore(2), []

    def watched(*arguments: object) -> Spool:
        most.append(at_once.acquire(blocking=False))
        time.sleep(0.02)
        at_once.release()
        return write(*arguments)  # type: ignore[arg-type]

    async with node_on(tmp_path, cold=ColdSettings(flush_size=1 << 40, cache_bytes=0)) as node:
        group = node.groups[0]
        for bucket in "abcd":
            await done(group, Create(bucket, "s", "text/plain", make_bucket=True))
            await done(group, Append(bucket, "s", (b"message",), "text/plain"))
        await node.flushers[0].flush_and_wait()
        monkeypatch.setattr(Spool, "write", watched)
        at_once.acquire()
        pages = await asyncio.gather(
            *(got(group.read_feed(bucket, None, None, 1 << 20)) for bucket in "abcd")
        )
        for page in pages:
            assert isinstance(page, FeedPage)
            assert [row.payload for entry in page.entries for row in entry.rows] == [None, b"message"]
        assert most == [True] * 4


async def test_a_full_disk_fails_as_the_store_does_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_on(tmp_path, cold=ColdSettings(flush_size=1 << 40, cache_bytes=0)) as node:
        group = node.groups[0]
        await done(group, Create("b", "s", "text/plain", make_bucket=True))
        await node.flushers[0].flush_and_wait()
        full = node.scratch / "spools" / "spool-full"
        full.parent.mkdir(parents=True)
        full.symlink_to("/dev/full")
        with monkeypatch.context() as patch:
            patch.setattr("ursula.cold.feed_spool.new_ulid", lambda: "full")
            with pytest.raises(StoreUnavailable, match="No space left on device"):
                await got(group.read_feed("b", None, None, 1 << 20))
        assert not full.is_symlink()
        assert isinstance(await got(group.read_feed("b", None, None, 1 << 20)), FeedPage)
