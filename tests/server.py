"""A real server as a process of its own: what the tests over the wire talk to."""

import atexit
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
AS_INSTALLED = Path(__file__).parent / "as_installed"
TINY_FLUSHES = {"cold.flush_size": "4KiB", "cold.flush_interval": "50ms", "cold.cache_bytes": "0"}
"""With these nearly everything is read from the store. `URSULA_TEST_COLD=tiny` gives them to every server but
those whose tests set one of them."""


class ServerExited(Exception):
    """The server ended before it was ready."""

    def __init__(self, exit_code: int, stderr: str) -> None:
        super().__init__(f"exit code {exit_code}: {stderr}")
        self.exit_code = exit_code
        self.stderr = stderr


class Server:
    """A server on a port of its own. `settings` are named as in the configuration file: "http.cache"."""

    def __init__(
        self,
        data_dir: Path,
        *flags: str,
        settings: Mapping[str, str] | None = None,
        listen: str = "127.0.0.1:0",
        prefix: tuple[str, ...] = (),
        cwd: Path | None = None,
        movable_clock: bool = False,
    ) -> None:
        """With `movable_clock`, `pass_time` moves the server's clock."""
        self.data_dir = data_dir
        self._cwd = cwd or data_dir.parent
        self.host, self.port = "", 0
        self.lines: list[str] = []
        self._command = [*prefix, sys.executable, "-W", "error", "-m", "ursula", "serve"]
        self._command += ["--listen", listen, "--data-dir", str(data_dir), "--log-format", "json", *flags]
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("URSULA_")
        }
        paths = [str(AS_INSTALLED), *filter(None, [self._environment.get("PYTHONPATH")])]
        self._environment["PYTHONPATH"] = os.pathsep.join(paths)
        settings = settings or {}
        if os.environ.get("URSULA_TEST_COLD") == "tiny" and not TINY_FLUSHES.keys() & settings.keys():
            settings = {**TINY_FLUSHES, **settings}
        for name, value in settings.items():
            self._environment["URSULA_" + name.upper().replace(".", "__")] = value
        self._clock = data_dir.with_name(f"{data_dir.name}.clock")
        self._passed_seconds = 0.0
        if movable_clock:
            self.pass_time(0)
            self._environment |= {"URSULA_TEST_CLOCK": str(self._clock), "URSULA_TESTING": "1"}
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self, ready: bool = True) -> Self:
        """Start it and wait until it is ready, or only until it listens."""
        self.lines = []
        self._listening = threading.Event()
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._cwd,
        )
        atexit.register(self.kill)
        self._reader = threading.Thread(target=self._read_lines, args=(self._process,), daemon=True)
        self._reader.start()
        self._listening.wait(START_SECONDS_MAX)
        if not self.port:
            raise ServerExited(self.kill(), "\n".join(self.lines))
        if ready:
            self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        """Wait until the log is replayed."""
        give_up_at = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < give_up_at:
            if self.process.poll() is not None:
                raise ServerExited(self.kill(), "\n".join(self.lines))
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection(self.host, self.port, timeout=5)
                with contextlib.closing(connection):
                    connection.request("GET", "/readyz/local")
                    if connection.getresponse().status == 200:
                        return
            time.sleep(0.01)
        self.kill()
        raise TimeoutError("the server did not get ready")

    @property
    def process(self) -> "subprocess.Popen[str]":
        """The running process."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process

    @property
    def url(self) -> str:
        """Where it listens."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def pass_time(self, seconds: float) -> None:
        """Move the clock of the server forward. Requests see that at once, timers a moment later.

        A stream that was read just before ends a moment later too: first that read is logged.
        """
        self._passed_seconds += seconds
        new = self._clock.with_suffix(".new")
        new.write_text(str(self._passed_seconds))
        new.replace(self._clock)

    def now(self) -> float:
        """The time as the server sees it, in seconds since 1970."""
        return time.time() + self._passed_seconds

    @property
    def log(self) -> list[dict[str, Any]]:
        """What it logged since its start."""
        return [json.loads(line) for line in self.lines]

    @property
    def rss_bytes(self) -> int:
        """How much memory it holds now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    def complaints(self) -> list[dict[str, Any]]:
        """What it logged that nobody should have to read, except that its clock can be moved."""
        found = [entry for entry in self.log if entry["level"] not in ("debug", "info")]
        return [entry for entry in found if not entry["message"].startswith("a test controls the clock")]

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self._ended()

    def kill(self) -> int:
        """SIGKILL, if it still runs; its exit code."""
        if self._process is None:
            return 0
        self._process.kill()
        return self._ended()

    def restart(self) -> Self:
        """Stop it and start it again on the same folder, perhaps on another port."""
        self.stop()
        return self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _ended(self) -> int:
        process = self.process
        try:
            code = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if self._reader is not None:
            self._reader.join()
        if process.stderr is not None:
            process.stderr.close()
        self._process, self.port = None, 0
        atexit.unregister(self.kill)
        return code

    def _read_lines(self, process: "subprocess.Popen[str]") -> None:
        for line in process.stderr or ():
            self.lines.append(line.rstrip("\n"))
            if not self.port and '"address"' in line:
                host, _, port = json.loads(line)["address"].rpartition(":")
                self.host, self.port = host.strip("[]"), int(port)
                self._listening.set()
        self._listening.set()
