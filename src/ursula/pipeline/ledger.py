"""Who works on a place and what was done there: numbered entries, and no number is given twice.

A job enters that it runs, then, under the next number, what it has done. An entry is created only where there
is none: of two jobs that believe to be alone one gets the number, and the other one is told and has changed
nothing. A job says from time to time that it is there. If it is not heard of any more, the next one enters
itself after it, and then the first cannot enter that it is done, should it still live. So while a job runs,
what no entry names is of nobody that could come back to it.

Old entries are removed, the newest one never: who creates one looks whether there is a newer one.
"""

import asyncio
import json
import os
import platform
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from ..cold.objects.store import ObjectMissing, Store, StoreFailed
from ..engine.offline.restore import format_time
from ..spark.options import OptionError, S3Options
from ..spark.store import absolute
from .stores import opened

FORMAT = 1
FOLDER = "_ursula"
"""Readers of Parquet pass over what begins so."""

BEAT_SECONDS = 10.0
SILENT_SECONDS = 60.0
"""A job that was not heard of for so long was killed, or has lost the store."""

_ENTRY = re.compile(r"(\d{20})\.json")

T = TypeVar("T")
Document = dict[str, Any]


class PlaceTaken(Exception):
    """Another job works on the same place; the text says which, and what to do."""


class Entry(NamedTuple):
    """A job that runs or has ended, and what it has done if it is done."""

    number: int
    document: Document

    @property
    def done(self) -> Document | None:
        """What was done."""
        found: Document | None = self.document["done"]
        return found


def folder_of(bucket: str) -> str:
    """The name of a bucket as the name of a folder."""
    return quote(bucket, safe="") if bucket != "." else "%2E"


class Ledger:
    """The entries of one kind of work on one bucket, below the folder of its target."""

    def __init__(self, target: str, s3: S3Options, name: str, what: str) -> None:
        """`name` is that of the folder of the entries; `what` tells people of the work."""
        self._root = f"{absolute(target).rstrip('/')}/{FOLDER}"
        self._s3 = s3
        self._name = name
        self.what = what

    def done(self) -> Document | None:
        """What was done last; None if nothing was."""
        return _last_done(self.entries())

    @contextmanager
    def run(self) -> "Iterator[Run]":
        """Work here, alone: PlaceTaken if someone else does."""
        entries = self.entries()
        if entries:
            self._check_free(entries[-1])
        run = Run(self, entries[-1].number + 1 if entries else 1, _last_done(entries))
        ended = Event()
        beating = Thread(target=run.beat, args=(ended,), name="ursula-ledger", daemon=True)
        beating.start()
        try:
            yield run
        finally:
            ended.set()
            beating.join()
            run.end()

    def entries(self) -> list[Entry]:
        """All that are there, oldest first."""

        async def read(store: Store) -> list[Entry]:
            found = []
            for number in await self._numbers(store):
                with suppress(ObjectMissing):  # an old one, removed meanwhile
                    found.append(Entry(number, json.loads(await store.get(self._key(number)))))
            return found

        entries = self._with_store(read)
        if any(entry.document["format"] != FORMAT for entry in entries):
            raise OptionError(f"{self._root} was written by a newer version of ursula")
        return entries

    def create(self, entry: Entry) -> None:
        """Add the next entry: PlaceTaken if someone else was quicker."""
        key, data = self._key(entry.number), _encoded(entry.document)

        async def enter(store: Store) -> bool:
            if not await store.create(key, data):
                return False
            if max(await self._numbers(store)) == entry.number:
                return True
            await store.delete([key])
            return False

        if not self._with_store(enter):
            raise PlaceTaken(
                f"another {self.what} was begun meanwhile, and goes on alone: this one has changed nothing"
            )

    def replace(self, entry: Entry) -> None:
        """Write an entry of ours anew."""
        self._with_store(lambda store: store.put(self._key(entry.number), _encoded(entry.document)))

    def forget_before(self, number: int) -> None:
        """Remove entries before one, but for the last that tells what was done."""
        entries = self.entries()
        kept = [entry.number for entry in entries if entry.done is not None][-1:]
        old = [entry.number for entry in entries if entry.number < number and entry.number not in kept]
        keys = [self._key(one) for one in old]
        self._with_store(lambda store: store.delete(keys))

    def _check_free(self, entry: Entry) -> None:
        told = entry.document
        silent_for = time.time() - told["heard"]
        if told["ended"] or silent_for > SILENT_SECONDS or _was_killed(told["host"], told["process"]):
            return
        since = format_time(int(told["since"]) * 1_000_000)
        raise PlaceTaken(
            f"another {self.what} runs since {since} on {told['host']}, as process {told['process']}, and "
            f"was heard of {max(0, round(silent_for))} s ago: wait for its end. If it was killed, run this "
            f"again in {max(1, round(SILENT_SECONDS - silent_for))} s: it takes over then"
        )

    async def _numbers(self, store: Store) -> list[int]:
        """Those of all entries, in order; whatever else lies there is not ours."""
        names = [stored.key.removeprefix(f"{self._name}/") for stored in await store.list(f"{self._name}/")]
        return sorted(int(match[1]) for match in map(_ENTRY.fullmatch, names) if match is not None)

    def _key(self, number: int) -> str:
        return f"{self._name}/{number:020d}.json"

    def _with_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        async def run() -> T:
            store = opened(self._root, self._s3)
            try:
                return await work(store)
            finally:
                await store.close()

        with ThreadPoolExecutor(1) as threads:  # the caller may have a loop of its own, as notebooks do
            return threads.submit(lambda: asyncio.run(run())).result()


class Run:
    """A job that works on a place."""

    def __init__(self, ledger: Ledger, number: int, done: Document | None) -> None:
        self._ledger = ledger
        now = time.time()
        document = {
            "format": FORMAT,
            "host": platform.node(),
            "process": os.getpid(),
            "since": now,
            "heard": now,
            "ended": False,
            "done": None,
        }
        self.number = number
        """It is higher than that of all jobs before it."""
        self.done = done
        """What was done last, by this job or before it."""
        self._entry = Entry(number, document)
        ledger.create(self._entry)
        ledger.forget_before(number)

    def commit(self, done: Document) -> None:
        """From here on, this was done: PlaceTaken if someone else has taken over."""
        entry = Entry(self._entry.number + 1, {**self._entry.document, "heard": time.time(), "done": done})
        self._ledger.create(entry)
        self._entry, self.done = entry, done
        self._ledger.forget_before(entry.number)

    def beat(self, ended: Event) -> None:
        """Be heard of, until it has ended."""
        while not ended.wait(BEAT_SECONDS):
            with suppress(StoreFailed):  # it may be back in time; if not, the next job takes over
                self._write()

    def end(self) -> None:
        """Let others work here."""
        with suppress(StoreFailed):  # then they wait until this was not heard of for a while
            self._write(ended=True)

    def _write(self, ended: bool = False) -> None:
        document = {**self._entry.document, "heard": time.time(), "ended": ended}
        self._ledger.replace(Entry(self._entry.number, document))


def _was_killed(host: str, process: int) -> bool:
    """Whether a process of this machine is gone; of others it is not known."""
    if host != platform.node():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


def _last_done(entries: list[Entry]) -> Document | None:
    return next((entry.done for entry in reversed(entries) if entry.done is not None), None)


def _encoded(document: Document) -> bytes:
    return json.dumps(document, indent=1).encode() + b"\n"
