"""A standalone Spark cluster: a master and two workers as processes, on loopback addresses of their own."""

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import httpx
import pyspark

START_SECONDS_MAX = 120.0
HOST = "127.0.0.1"
WORKER_HOSTS = ("127.0.0.2", "127.0.0.3")
EXECUTOR = b"CoarseGrainedExecutorBackend"

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


class Standalone:
    """The cluster. It ends the processes that it has started by their ids."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._logs: list[IO[bytes]] = []
        self._port, self._web_port = _free_port(), _free_port()

    @property
    def master(self) -> str:
        """The master URL for sessions."""
        return f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        ports = ["--port", str(self._port), "--webui-port", str(self._web_port)]
        self._master = self._start("master.Master", "--host", HOST, *ports)
        self._wait(0)
        for host in WORKER_HOSTS:
            room = [
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                "0",
                "--work-dir",
                str(self._folder / host),
            ]
            self._workers.append(self._start("worker.Worker", "--host", host, *room, self.master))
        self._wait(len(WORKER_HOSTS))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in [*self._workers, *([] if self._master is None else [self._master])]:
            for child in _children(process.pid):
                _kill(child)
            process.kill()
            process.wait()
        for log in self._logs:
            log.close()

    def executors(self) -> list[int]:
        """The processes that run tasks."""
        found = [child for worker in self._workers for child in _children(worker.pid)]
        return [child for child in found if EXECUTOR in _command(child)]

    def kill_executor(self) -> None:
        """Kill one of them, as if its machine had failed."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not (found := self.executors()):
            if time.monotonic() > deadline:
                raise TimeoutError("there is no executor")
            time.sleep(0.05)
        _kill(found[0])

    def _start(self, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        log = (self._folder / f"{name}-{len(self._logs)}.log").open("wb")
        self._logs.append(log)
        return subprocess.Popen(
            [str(_SPARK_CLASS), f"org.apache.spark.deploy.{name}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "SPARK_LOCAL_DIRS": str(self._folder / "local")},
        )

    def _wait(self, workers: int) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while self._alive() < workers:
            if time.monotonic() > deadline:
                logs = [Path(log.name).read_text(errors="replace")[-2000:] for log in self._logs]
                raise TimeoutError("\n".join(["the cluster did not start", *logs]))
            time.sleep(0.1)

    def _alive(self) -> int:
        """How many workers the master knows; -1 if it does not answer."""
        try:
            status: dict[str, Any] = httpx.get(f"http://{HOST}:{self._web_port}/json/", timeout=5).json()
        except (httpx.HTTPError, ValueError):
            return -1
        return int(status["aliveworkers"])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _children(pid: int) -> list[int]:
    """All descendants of a process."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError):
            found += map(int, thread.read_text().split())
    return found + [child for one in found for child in _children(one)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
