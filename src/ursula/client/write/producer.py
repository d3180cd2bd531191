"""The blocking producer: a thread that sends the queued messages, in order and exactly once."""

import threading
import time
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from ..connection.sync_shell import SyncShell
from ..formats.json_text import encode
from ..results import Appended
from ..target import StreamTarget
from .appends import as_bytes
from .delivery import ProducerIdentity
from .outbox import Batching, PendingMessage
from .producer_core import ProducerCore


class Producer:
    """Appends to one stream exactly once, even if connections fail; use it with `with`.

    A message is one append, or one value of a JSON stream. If a batch is refused, everything queued after it
    fails too, so that the order is kept.
    """

    def __init__(
        self, target: StreamTarget, shell: SyncShell, numbering: ProducerIdentity, batching: Batching
    ) -> None:
        self._shell = shell
        self._core: ProducerCore[Future[Appended]] = ProducerCore(target, numbering, batching)
        self._changed = threading.Condition()
        self._worker = threading.Thread(target=self._work, name="ursula-producer", daemon=True)
        self._worker.start()

    @property
    def producer_id(self) -> str:
        """The id that the server knows this producer by."""
        return self._core.identity.producer_id

    @property
    def epoch(self) -> int:
        """The epoch: of two instances with the same id, the one with the greater epoch writes."""
        return self._core.identity.epoch

    def send(self, data: bytes | str) -> "Future[Appended]":
        """Queue a message. The future is done when it is stored. Waits while the queue is full."""
        future: Future[Appended] = Future()
        with self._changed:
            self._changed.wait_for(lambda: self._core.may_queue)
            self._core.check()
            self._core.outbox.add(as_bytes(data), future, time.monotonic())
            self._changed.notify_all()
        return future

    def send_json(self, value: Any) -> "Future[Appended]":
        """Queue a value for a JSON stream."""
        return self.send(encode(value))

    def append(self, data: bytes | str) -> Appended:
        """Queue a message and wait until it is stored."""
        return self.send(data).result()

    def append_json(self, value: Any) -> Appended:
        """Queue a value for a JSON stream and wait until it is stored."""
        return self.send_json(value).result()

    def flush(self) -> None:
        """Wait until everything queued is stored. Raises the first failure since the last flush."""
        with self._changed:
            self._drain()
            failure = self._core.take_failure()
        if failure is not None:
            raise failure

    def close_stream(self, data: bytes | str | None = None) -> Appended:
        """Send everything queued, then close the stream; a last message goes in the same request.

        Nothing can be sent after that. A second call sends nothing and returns the same result.
        """
        payload = None if data is None else as_bytes(data)
        with self._changed:
            self._drain()
            if self._core.closed is not None:
                return self._core.closed
            closing = self._core.begin_closing(payload)
            self._changed.notify_all()
        appended: Appended | None = None
        failure: Exception | None = None
        try:
            appended = self._shell.run(closing)
        except Exception as error:
            failure = error
            raise
        finally:
            with self._changed:
                self._core.end_closing(appended, failure, payload is not None)
                self._changed.notify_all()
        return appended

    def close_stream_json(self, value: Any) -> Appended:
        """Close a JSON stream with a last value."""
        return self.close_stream(encode(value))

    def close(self) -> None:
        """Send everything queued and stop. Raises the first failure since the last flush."""
        try:
            self.flush()
        finally:
            with self._changed:
                self._core.stopping = True
                self._changed.notify_all()
            self._worker.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception:
            if error is None:  # do not hide the error that is already being raised
                raise

    def _drain(self) -> None:
        """Wait until nothing is queued or in flight. The caller holds the lock."""
        self._core.outbox.hurry = True
        self._changed.notify_all()
        self._changed.wait_for(lambda: self._core.is_idle)
        self._core.outbox.hurry = False

    def _work(self) -> None:
        while batch := self._next_batch():
            try:
                appended = self._shell.run(self._core.delivery(batch))
            except Exception as failure:
                with self._changed:
                    self._core.failed(batch, failure)
                    self._changed.notify_all()
            else:
                with self._changed:
                    self._core.stored(batch, appended)
                    self._changed.notify_all()

    def _next_batch(self) -> list[PendingMessage["Future[Appended]"]]:
        starts = Future.set_running_or_notify_cancel
        with self._changed:
            while True:
                wait = self._core.outbox.due_in(time.monotonic())
                if wait == 0:
                    if batch := self._core.take(starts, time.monotonic()):
                        return batch
                    self._changed.notify_all()
                elif wait is None and self._core.stopping:
                    return []
                else:
                    self._changed.wait(wait)
