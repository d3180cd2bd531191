"""The lease of a job: one job at a time works on a target, and one that has lost its lease cannot commit.

The lease is a sequence of numbered entries, and no number is used twice. A job creates one entry to say that
it is running and then, with the next number, one to say what it has done. An entry is created only if there
is none with its number: if two jobs both believe that they are alone, one gets the number, and the other one
finds out before it has changed anything. While a job runs, heartbeats renew its entry. If they stop, the next
job creates its own entry after it, and the first one can no longer commit, should it still be alive. So while
a job holds the lease, files that no entry names belong to jobs that can never commit them.

Old entries are removed, but never the newest: a job that creates an entry checks whether there is a newer
one.
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
from ..spark.executor_store import absolute
from ..spark.options import OptionError, S3Options
from ..times import format_time
from .stores import open_store

FORMAT = 1
FOLDER = "_ursula"
"""Readers of Parquet skip names that begin with an underscore."""

HEARTBEAT_SECONDS = 10.0
SILENT_SECONDS = 60.0
"""A job without a heartbeat for this long was killed, or has lost the store."""

_ENTRY = re.compile(r"(\d{20})\.json")

T = TypeVar("T")
Document = dict[str, Any]


class LeaseTaken(Exception):
    """Another job works on the same target; the message says which, and what to do."""


class LeaseEntry(NamedTuple):
    """A job that runs or has ended, and what it has done if it has committed."""

    number: int
    document: Document

    @property
    def done(self) -> Document | None:
        """The result of the job."""
        found: Document | None = self.document["done"]
        return found


def folder_of(bucket: str) -> str:
    """The name of a bucket as the name of a folder."""
    return quote(bucket, safe="") if bucket != "." else "%2E"


class JobLease:
    """The lease for one kind of job on one bucket, below the folder of its target."""

    def __init__(self, target: str, s3: S3Options, name: str, what: str) -> None:
        """`name` is the folder of the entries; `what` describes the job in messages."""
        self._root = f"{absolute(target).rstrip('/')}/{FOLDER}"
        self._s3 = s3
        self._name = name
        self.what = what

    def done(self) -> Document | None:
        """The result of the last job that committed; None if there was none."""
        return _last_done(self.entries())

    @contextmanager
    def acquire(self) -> "Iterator[RunningJob]":
        """Hold the lease; LeaseTaken if another job does."""
        entries = self.entries()
        if entries:
            self._check_free(entries[-1])
        job = RunningJob(self, entries[-1].number + 1 if entries else 1, _last_done(entries))
        ended = Event()
        heart = Thread(target=job.heartbeat, args=(ended,), name="ursula-job-lease", daemon=True)
        heart.start()
        try:
            yield job
        finally:
            ended.set()
            heart.join()
            job.release()

    def entries(self) -> list[LeaseEntry]:
        """All entries, oldest first."""

        async def read(store: Store) -> list[LeaseEntry]:
            found = []
            for number in await self._numbers(store):
                with suppress(ObjectMissing):  # an old one, which has just been removed
                    found.append(LeaseEntry(number, json.loads(await store.get(self._key(number)))))
            return found

        entries = self._with_store(read)
        if any(entry.document["format"] != FORMAT for entry in entries):
            raise OptionError(f"{self._root} was written by a newer version of ursula")
        return entries

    def create(self, entry: LeaseEntry) -> None:
        """Add the next entry; LeaseTaken if another job was faster."""
        key, data = self._key(entry.number), _encoded(entry.document)

        async def enter(store: Store) -> bool:
            if not await store.create(key, data):
                return False
            if max(await self._numbers(store)) == entry.number:
                return True
            await store.delete([key])
            return False

        if not self._with_store(enter):
            raise LeaseTaken(
                f"another {self.what} was started in the meantime and continues: this one has changed nothing"
            )

    def replace(self, entry: LeaseEntry) -> None:
        """Overwrite an entry of this job."""
        self._with_store(lambda store: store.put(self._key(entry.number), _encoded(entry.document)))

    def forget_before(self, number: int) -> None:
        """Remove the entries before one, except for the last one with a result."""
        entries = self.entries()
        kept = [entry.number for entry in entries if entry.done is not None][-1:]
        old = [entry.number for entry in entries if entry.number < number and entry.number not in kept]
        keys = [self._key(one) for one in old]
        self._with_store(lambda store: store.delete(keys))

    def _check_free(self, entry: LeaseEntry) -> None:
        job = entry.document
        silent_for = time.time() - job["heard"]
        if job["ended"] or silent_for > SILENT_SECONDS or _was_killed(job["host"], job["process"]):
            return
        since = format_time(int(job["since"]) * 1_000_000)
        raise LeaseTaken(
            f"another {self.what} has been running since {since} on {job['host']}, as process "
            f"{job['process']}, with a heartbeat {max(0, round(silent_for))} s ago: wait until it ends. "
            f"If it was killed, run this again in {max(1, round(SILENT_SECONDS - silent_for))} s: "
            "it will take over"
        )

    async def _numbers(self, store: Store) -> list[int]:
        """The numbers of all entries, in order. Other files in the folder are not ours."""
        names = [stored.key.removeprefix(f"{self._name}/") for stored in await store.list(f"{self._name}/")]
        return sorted(int(match[1]) for match in map(_ENTRY.fullmatch, names) if match is not None)

    def _key(self, number: int) -> str:
        return f"{self._name}/{number:020d}.json"

    def _with_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        async def run() -> T:
            store = open_store(self._root, self._s3)
            try:
                return await work(store)
            finally:
                await store.close()

        with ThreadPoolExecutor(1) as threads:  # the caller may run an event loop, as notebooks do
            return threads.submit(lambda: asyncio.run(run())).result()


class RunningJob:
    """A job that holds a lease."""

    def __init__(self, lease: JobLease, number: int, done: Document | None) -> None:
        self._lease = lease
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
        """It is higher than the number of every earlier job."""
        self.done = done
        """The result of the last commit, by this job or an earlier one."""
        self._entry = LeaseEntry(number, document)
        lease.create(self._entry)
        lease.forget_before(number)

    def commit(self, done: Document) -> None:
        """Record the result of this job; LeaseTaken if another job has taken over."""
        document = {**self._entry.document, "heard": time.time(), "done": done}
        entry = LeaseEntry(self._entry.number + 1, document)
        self._lease.create(entry)
        self._entry, self.done = entry, done
        self._lease.forget_before(entry.number)

    def heartbeat(self, ended: Event) -> None:
        """Renew the lease from time to time, until the job has ended."""
        while not ended.wait(HEARTBEAT_SECONDS):
            with suppress(StoreFailed):  # the store may be back in time; if not, the next job takes over
                self._write()

    def release(self) -> None:
        """Let the next job begin at once."""
        with suppress(StoreFailed):  # then the next job waits until heartbeats have been absent for a while
            self._write(ended=True)

    def _write(self, ended: bool = False) -> None:
        document = {**self._entry.document, "heard": time.time(), "ended": ended}
        self._lease.replace(LeaseEntry(self._entry.number, document))


def _was_killed(host: str, process: int) -> bool:
    """Whether a process of this machine no longer exists. For other machines this is unknown."""
    if host != platform.node():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


def _last_done(entries: list[LeaseEntry]) -> Document | None:
    return next((entry.done for entry in reversed(entries) if entry.done is not None), None)


def _encoded(document: Document) -> bytes:
    return json.dumps(document, indent=1).encode() + b"\n"
