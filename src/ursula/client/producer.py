"""The blocking producer: a thread that sends what was queued, in order and exactly once."""

import threading
import time
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from .appends import as_bytes, encode_json
from .blocking import BlockingShell
from .delivery import Numbering
from .outbox import Batching, Pending
from .producing import Producing
from .results import Appended
from .target import StreamTarget


class Producer:
    """Appends to one stream exactly once, whatever happens to connections; use it with `with`.

    A message is one append, or one value of a JSON stream. A refused batch fails, and with it all that
    was queued behind it, so that the order holds.
    """

    def __init__(
        self, target: StreamTarget, shell: BlockingShell, numbering: Numbering, batching: Batching
    ) -> None:
        self._shell = shell
        self._producing: Producing[Future[Appended]] = Producing(target, numbering, batching)
        self._changed = threading.Condition()
        self._worker = threading.Thread(target=self._work, name="ursula-producer", daemon=True)
        self._worker.start()

    @property
    def producer_id(self) -> str:
        """Who it is to the server."""
        return self._producing.numbering.producer_id

    @property
    def epoch(self) -> int:
        """Which run of this producer it is."""
        return self._producing.numbering.epoch

    def send(self, data: bytes | str) -> "Future[Appended]":
        """Queue a message; the future tells when it is stored. Waits while too much is queued."""
        future: Future[Appended] = Future()
        with self._changed:
            self._changed.wait_for(lambda: self._producing.may_queue)
            self._producing.check()
            self._producing.outbox.add(as_bytes(data), future, time.monotonic())
            self._changed.notify_all()
        return future

    def send_json(self, value: Any) -> "Future[Appended]":
        """Queue a value for a JSON stream."""
        return self.send(encode_json(value))

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
            failure = self._producing.take_failure()
        if failure is not None:
            raise failure

    def close_stream(self, data: bytes | str | None = None) -> Appended:
        """Send what is queued, then close the stream, in one request with a last message if there is one.

        Nothing can be sent after that. Called again, it returns the same and sends nothing.
        """
        payload = None if data is None else as_bytes(data)
        with self._changed:
            self._drain()
            if self._producing.closed is not None:
                return self._producing.closed
            closing = self._producing.begin_closing(payload)
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
                self._producing.end_closing(appended, failure, payload is not None)
                self._changed.notify_all()
        return appended

    def close_stream_json(self, value: Any) -> Appended:
        """Close a JSON stream with a last value."""
        return self.close_stream(encode_json(value))

    def close(self) -> None:
        """Send what is queued and stop. Raises the first failure since the last flush."""
        try:
            self.flush()
        finally:
            with self._changed:
                self._producing.stopping = True
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
            if error is None:  # the error on its way out tells more
                raise

    def _drain(self) -> None:
        """Wait until nothing is queued or under way; the lock is held."""
        self._producing.outbox.hurry = True
        self._changed.notify_all()
        self._changed.wait_for(lambda: self._producing.is_idle)
        self._producing.outbox.hurry = False

    def _work(self) -> None:
        while batch := self._next_batch():
            try:
                appended = self._shell.run(self._producing.delivery(batch))
            except Exception as failure:
                with self._changed:
                    self._producing.failed(batch, failure)
                    self._changed.notify_all()
            else:
                with self._changed:
                    self._producing.stored(batch, appended)
                    self._changed.notify_all()

    def _next_batch(self) -> list[Pending["Future[Appended]"]]:
        starts = Future.set_running_or_notify_cancel
        with self._changed:
            while True:
                wait = self._producing.outbox.due_in(time.monotonic())
                if wait == 0:
                    if batch := self._producing.take(starts, time.monotonic()):
                        return batch
                    self._changed.notify_all()
                elif wait is None and self._producing.stopping:
                    return []
                else:
                    self._changed.wait(wait)
