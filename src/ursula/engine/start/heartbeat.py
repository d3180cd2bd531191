"""Heartbeats: a node that uses a store keeps a small object there that says so.

`ursula restore` looks for it, so that it does not take over the store of a running server. The object is
replaced every few seconds and removed when the node stops cleanly. It is not part of the data: no reader
needs it, garbage collection leaves it alone, and a node carries on if it cannot be written.
"""

import asyncio
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...cold.objects.checksum import has_checksum
from ...cold.objects.store import ObjectMissing, Store, StoreFailed
from ...cold.state.manifest import encode
from ..clock import Clock
from .data_folder import is_abandoned
from .store_identity import check_generation

PREFIX = "alive/"
NEAR_SECONDS, FAR_SECONDS = 10.0, 30.0
"""How often it is replaced: in a local folder, and in a store that charges for each request."""
MISSED_MAX = 3
"""How many heartbeats may be missed before a node counts as dead."""
ENDING_SECONDS_MAX = 1.0

logger = logging.getLogger(__name__)


class Heartbeat(msgspec.Struct, frozen=True):
    """Which node uses a store, and as of when; times in microseconds since 1970."""

    cluster: str
    generation: int
    node: int
    address: str
    host: str
    folder: str | None
    place: str
    """Distinguishes the store from a copy of it."""
    at: int
    interval_seconds: float

    def age_seconds(self, now: int) -> float:
        """How long ago it was written, although clocks may disagree."""
        return (now - self.at) / 1_000_000

    @property
    def patience_seconds(self) -> float:
        """The node counts as dead if the heartbeat is older than this."""
        return MISSED_MAX * self.interval_seconds


class RunningServer(NamedTuple):
    """How a node identifies itself in its heartbeat."""

    node: int
    address: str
    folder: Path | None


class Heart:
    """Keeps the heartbeat of one node."""

    def __init__(
        self, store: Store, clock: Clock, cluster: str, generation: int, server: RunningServer
    ) -> None:
        self._store = store
        self._clock = clock
        self._cluster = cluster
        self._generation = generation
        self._server = server
        self._key = f"{PREFIX}{generation}-n{server.node}.json"
        self._interval_seconds = FAR_SECONDS if store.local_range() is None else NEAR_SECONDS

    async def run(self) -> None:
        """Write heartbeats until cancelled; raises Superseded when the store is in a later generation."""
        while True:
            try:
                await self._beat()
                await self._forget_earlier()
            except StoreFailed as error:
                logger.debug("the heartbeat could not be written: %s", error)
            await asyncio.sleep(self._interval_seconds)

    async def end(self) -> None:
        """Remove the heartbeat; if that fails, it becomes stale by itself."""
        with suppress(StoreFailed, TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS_MAX):
                await self._store.delete([self._key])

    async def _forget_earlier(self) -> None:
        """Remove the heartbeats that nodes of earlier generations left when they were killed."""
        keys = [stored.key for stored in await self._store.list(PREFIX)]
        generations = {key: key.removeprefix(PREFIX).partition("-")[0] for key in keys}
        await self._store.delete(
            [
                key
                for key, number in generations.items()
                if number.isdigit() and int(number) < self._generation
            ]
        )

    async def _beat(self) -> None:
        await check_generation(self._store, self._generation)  # also avoids writing where no store is mounted
        server = self._server
        document = Heartbeat(
            cluster=self._cluster,
            generation=self._generation,
            node=server.node,
            address=server.address,
            host=socket.gethostname(),
            folder=None if server.folder is None else str(server.folder.resolve()),
            place=await place_of(self._store),
            at=self._clock(),
            interval_seconds=self._interval_seconds,
        )
        await self._store.put(self._key, encode(document))


async def find_heartbeats(store: Store) -> dict[str, Heartbeat | None]:
    """All heartbeats of this store, not of the one it was copied from, by key; None if one is unreadable."""
    place = await place_of(store)
    found: dict[str, Heartbeat | None] = {}
    for stored in await store.list(PREFIX):
        try:
            heartbeat = _decode(await store.get(stored.key))
        except ObjectMissing:
            continue  # its node has just stopped
        if heartbeat is None or heartbeat.place == place:
            found[stored.key] = heartbeat
    return found


def is_alive(heartbeat: Heartbeat, now: int) -> bool:
    """Whether the node may still be running, judged by its heartbeat and the lock of its data folder."""
    if heartbeat.age_seconds(now) > heartbeat.patience_seconds:
        return False
    is_here = heartbeat.host == socket.gethostname() and heartbeat.folder is not None
    return not (
        is_here and is_abandoned(Path(heartbeat.folder or ""), heartbeat.cluster, heartbeat.generation)
    )


def _decode(data: bytes) -> Heartbeat | None:
    try:
        return msgspec.json.decode(data, type=Heartbeat) if has_checksum(data) else None
    except ValueError:
        return None


async def place_of(store: Store) -> str:
    """Distinguishes a store from a copy of it: its address, or the inode of its folder."""
    path = store.local_path("generations")
    if path is None:
        return store.root
    try:
        return f"inode {(await asyncio.to_thread(os.stat, path.parent)).st_ino}"
    except OSError:
        return store.root
