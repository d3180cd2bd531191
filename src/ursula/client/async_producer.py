"""The asynchronous producer: a task that sends what was queued, in order and exactly once."""

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Self

from .appends import as_bytes, encode_json
from .awaiting import AwaitingShell
from .delivery import Numbering
from .outbox import Batching, Pending
from .producing import Producing
from .results import Appended
from .target import StreamTarget


class AsyncProducer:
    """Appends to one stream exactly once, whatever happens to connections; use it with `async with`.

    A message is one append, or one value of a JSON stream. A refused batch fails, and with it all that
    was queued behind it, so that the order holds.
    """

    def __init__(
        self, target: StreamTarget, shell: AwaitingShell, numbering: Numbering, batching: Batching
    ) -> None:
        self._shell = shell
        self._producing: Producing[asyncio.Future[Appended]] = Producing(target, numbering, batching)
        self._changed = asyncio.Condition()
        self._worker: asyncio.Task[None] | None = None

    @property
    def producer_id(self) -> str:
        """Who it is to the server."""
        return self._producing.numbering.producer_id

    @property
    def epoch(self) -> int:
        """Which run of this producer it is."""
        return self._producing.numbering.epoch

    async def send(self, data: bytes | str) -> "asyncio.Future[Appended]":
        """Queue a message; the future tells when it is stored. Waits while too much is queued."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Appended] = loop.create_future()
        async with self._changed:
            await self._changed.wait_for(lambda: self._producing.may_queue)
            self._producing.check()
            if self._worker is None:
                self._worker = loop.create_task(self._work())
            self._producing.outbox.add(as_bytes(data), future, loop.time())
            self._changed.notify_all()
        return future

    async def send_json(self, value: Any) -> "asyncio.Future[Appended]":
        """Queue a value for a JSON stream."""
        return await self.send(encode_json(value))

    async def append(self, data: bytes | str) -> Appended:
        """Queue a message and wait until it is stored."""
        return await (await self.send(data))

    async def append_json(self, value: Any) -> Appended:
        """Queue a value for a JSON stream and wait until it is stored."""
        return await (await self.send_json(value))

    async def flush(self) -> None:
        """Wait until everything queued is stored. Raises the first failure since the last flush."""
        async with self._changed:
            await self._drain()
            failure = self._producing.take_failure()
        if failure is not None:
            raise failure

    async def close_stream(self, data: bytes | str | None = None) -> Appended:
        """Send what is queued, then close the stream, in one request with a last message if there is one.

        Nothing can be sent after that. Called again, it returns the same and sends nothing.
        """
        payload = None if data is None else as_bytes(data)
        async with self._changed:
            await self._drain()
            if self._producing.closed is not None:
                return self._producing.closed
            closing = self._producing.begin_closing(payload)
            self._changed.notify_all()
        appended: Appended | None = None
        failure: Exception | None = None
        try:
            appended = await self._shell.run(closing)
        except Exception as error:
            failure = error
            raise
        finally:
            async with self._changed:
                self._producing.end_closing(appended, failure, payload is not None)
                self._changed.notify_all()
        return appended

    async def close_stream_json(self, value: Any) -> Appended:
        """Close a JSON stream with a last value."""
        return await self.close_stream(encode_json(value))

    async def close(self) -> None:
        """Send what is queued and stop. Raises the first failure since the last flush."""
        try:
            await self.flush()
        finally:
            async with self._changed:
                self._producing.stopping = True
                self._changed.notify_all()
            if self._worker is not None:
                await self._worker

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Exception:
            if error is None:  # the error on its way out tells more
                raise

    async def _drain(self) -> None:
        """Wait until nothing is queued or under way; the lock is held."""
        self._producing.outbox.hurry = True
        self._changed.notify_all()
        await self._changed.wait_for(lambda: self._producing.is_idle)
        self._producing.outbox.hurry = False

    async def _work(self) -> None:
        while batch := await self._next_batch():
            try:
                appended = await self._shell.run(self._producing.delivery(batch))
            except Exception as failure:
                async with self._changed:
                    self._producing.failed(batch, failure)
                    for pending in batch:
                        pending.future.exception()  # flush raises it for those who do not look
                    self._changed.notify_all()
            else:
                async with self._changed:
                    self._producing.stored(batch, appended)
                    self._changed.notify_all()

    async def _next_batch(self) -> list[Pending["asyncio.Future[Appended]"]]:
        now = asyncio.get_running_loop().time
        async with self._changed:
            while True:
                wait = self._producing.outbox.due_in(now())
                if wait == 0:
                    if batch := self._producing.take(lambda future: not future.cancelled(), now()):
                        return batch
                    self._changed.notify_all()
                elif wait is None and self._producing.stopping:
                    return []
                else:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), wait)
