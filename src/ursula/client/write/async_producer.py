"""The asynchronous producer: a task that sends the queued messages, in order and exactly once."""

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Self

from ..connection.async_shell import AsyncShell
from ..formats.json_text import encode
from ..results import Appended
from ..target import StreamTarget
from .appends import as_bytes
from .delivery import ProducerIdentity
from .outbox import Batching, PendingMessage
from .producer_core import ProducerCore


class AsyncProducer:
    """Appends to one stream exactly once, even if connections fail; use it with `async with`.

    A message is one append, or one value of a JSON stream. If a batch is refused, everything queued after it
    fails too, so that the order is kept.
    """

    def __init__(
        self, target: StreamTarget, shell: AsyncShell, numbering: ProducerIdentity, batching: Batching
    ) -> None:
        self._shell = shell
        self._core: ProducerCore[asyncio.Future[Appended]] = ProducerCore(target, numbering, batching)
        self._changed = asyncio.Condition()
        self._worker: asyncio.Task[None] | None = None

    @property
    def producer_id(self) -> str:
        """The id that the server knows this producer by."""
        return self._core.identity.producer_id

    @property
    def epoch(self) -> int:
        """The epoch: of two instances with the same id, the one with the greater epoch writes."""
        return self._core.identity.epoch

    async def send(self, data: bytes | str) -> "asyncio.Future[Appended]":
        """Queue a message. The future is done when it is stored. Waits while the queue is full."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Appended] = loop.create_future()
        async with self._changed:
            await self._changed.wait_for(lambda: self._core.may_queue)
            self._core.check()
            if self._worker is None:
                self._worker = loop.create_task(self._work())
            self._core.outbox.add(as_bytes(data), future, loop.time())
            self._changed.notify_all()
        return future

    async def send_json(self, value: Any) -> "asyncio.Future[Appended]":
        """Queue a value for a JSON stream."""
        return await self.send(encode(value))

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
            failure = self._core.take_failure()
        if failure is not None:
            raise failure

    async def close_stream(self, data: bytes | str | None = None) -> Appended:
        """Send everything queued, then close the stream; a last message goes in the same request.

        Nothing can be sent after that. A second call sends nothing and returns the same result.
        """
        payload = None if data is None else as_bytes(data)
        async with self._changed:
            await self._drain()
            if self._core.closed is not None:
                return self._core.closed
            closing = self._core.begin_closing(payload)
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
                self._core.end_closing(appended, failure, payload is not None)
                self._changed.notify_all()
        return appended

    async def close_stream_json(self, value: Any) -> Appended:
        """Close a JSON stream with a last value."""
        return await self.close_stream(encode(value))

    async def close(self) -> None:
        """Send everything queued and stop. Raises the first failure since the last flush."""
        try:
            await self.flush()
        finally:
            async with self._changed:
                self._core.stopping = True
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
            if error is None:  # do not hide the error that is already being raised
                raise

    async def _drain(self) -> None:
        """Wait until nothing is queued or in flight. The caller holds the lock."""
        self._core.outbox.hurry = True
        self._changed.notify_all()
        await self._changed.wait_for(lambda: self._core.is_idle)
        self._core.outbox.hurry = False

    async def _work(self) -> None:
        while batch := await self._next_batch():
            try:
                appended = await self._shell.run(self._core.delivery(batch))
            except Exception as failure:
                async with self._changed:
                    self._core.failed(batch, failure)
                    for pending in batch:
                        pending.future.exception()  # mark it as seen: flush raises it if the caller does not
                    self._changed.notify_all()
            else:
                async with self._changed:
                    self._core.stored(batch, appended)
                    self._changed.notify_all()

    async def _next_batch(self) -> list[PendingMessage["asyncio.Future[Appended]"]]:
        now = asyncio.get_running_loop().time
        async with self._changed:
            while True:
                wait = self._core.outbox.due_in(now())
                if wait == 0:
                    if batch := self._core.take(lambda future: not future.cancelled(), now()):
                        return batch
                    self._changed.notify_all()
                elif wait is None and self._core.stopping:
                    return []
                else:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), wait)
