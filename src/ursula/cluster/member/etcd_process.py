"""A running etcd, which ends with the server whatever happens to it.

It is in a session of its own, so that Ctrl-C reaches only the server, which then stops it in order. The
kernel kills it when the thread that started it ends, so it must be started from the main thread.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence

from ..failures import ClusterRefused, EtcdFailed
from .etcd_output import EtcdOutput

STOP_SECONDS_MAX = 2.5
"""A stopping leader first transfers leadership, and waits in vain if the others stop too. Killing it loses
nothing."""
RESTART_PAUSE_SECONDS, RESTART_PAUSE_SECONDS_MAX = 0.2, 10.0
STEADY_SECONDS = 30.0
"""After this long, an etcd counts as stable, and the next restart is quick again."""
_PIECE_BYTES = 64 << 10
_IF_PARENT_LIVES = 'test "$PPID" = "$0" && exec "$@"'
"""A server that was killed before its etcd asked to be killed with it must not leave it behind."""
_KEPT_VARIABLE = "ETCD_UNSUPPORTED_ARCH"
"""etcd also reads its flags from variables. Some machines need this one; the others are not for this etcd."""

logger = logging.getLogger(__name__)


class EtcdProcess:
    """One run of the program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._output = EtcdOutput()
        self._ended = asyncio.create_task(self._follow())
        self.pid = process.pid

    @classmethod
    async def start(cls, command: Sequence[str]) -> "EtcdProcess":
        """Start a command; must be called from the main thread."""
        if threading.get_native_id() != os.getpid():
            raise RuntimeError("etcd must be started from the main thread: it dies with its starter")
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise ClusterRefused("a cluster needs the program setpriv: install the package util-linux")
        try:
            process = await asyncio.create_subprocess_exec(
                *(setpriv, "--pdeathsig", "KILL", "--", "sh", "-c", _IF_PARENT_LIVES, str(os.getpid())),
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise EtcdFailed(f"etcd could not be started: {error.strerror}") from None
        return cls(process)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return not self._ended.done()

    async def wait(self) -> EtcdFailed:
        """Wait until it ends, and say how."""
        code = await asyncio.shield(self._ended)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        words = self._output.last_lines()
        return EtcdFailed(f"etcd {how}" + (f"; its last output:\n{words}" if words else ""))

    async def stop(self) -> None:
        """End it: politely at first."""
        self._signal(signal.SIGTERM)
        await asyncio.wait([self._ended], timeout=STOP_SECONDS_MAX)
        self._signal(signal.SIGKILL)
        await self._ended

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _follow(self) -> int:
        if self._process.stdout is None:
            raise RuntimeError("the output of etcd is not connected")
        while piece := await self._process.stdout.read(_PIECE_BYTES):
            self._output.feed(piece)
        return await self._process.wait()


class EtcdSupervisor:
    """Keeps an etcd running: one that ends by itself is started again, more slowly each time."""

    def __init__(self, command: Callable[[], Sequence[str]]) -> None:
        """`command` is asked before each start."""
        self._command = command
        self.process: EtcdProcess | None = None
        self.problem: str | None = None
        """Why it is not running, if it is not."""

    async def run(self, process: EtcdProcess | None = None) -> None:
        """Keep it running until cancelled, beginning with one that was started before, if any."""
        pause = RESTART_PAUSE_SECONDS
        try:
            while True:
                began = time.monotonic()
                try:
                    self.process = process or await EtcdProcess.start(self._command())
                    process, self.problem = None, None
                    failure = await self.process.wait()
                except EtcdFailed as error:
                    failure = error
                if time.monotonic() - began >= STEADY_SECONDS:
                    pause = RESTART_PAUSE_SECONDS
                self.problem = str(failure)
                logger.error("starting etcd again in %.1f s: %s", pause, failure)
                await asyncio.sleep(pause)
                pause = min(2 * pause, RESTART_PAUSE_SECONDS_MAX)
        finally:
            if self.process is not None:
                await self.process.stop()


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ETCD_") or name == _KEPT_VARIABLE
    }
