"""Members of etcd for the tests of the log, on ports that the system gives."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.etcd import etcd_path, free_ports

START_SECONDS = 30.0


class EtcdMember:
    """One member. Its process can be killed, frozen and started again."""

    def __init__(self, number: int, peers: list[int], folder: Path, flags: Sequence[str] = ()) -> None:
        self._flags = flags
        self._client, self._peer = *free_ports(1), peers[number]
        self._folder = folder
        self._name = f"m{number}"
        self._cluster = ",".join(f"m{place}=http://127.0.0.1:{port}" for place, port in enumerate(peers))
        self.process = self._start()

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"127.0.0.1:{self._client}"

    def _start(self) -> "subprocess.Popen[bytes]":
        client, peer = f"http://{self.address}", f"http://127.0.0.1:{self._peer}"
        command = [
            *(etcd_path(), "--name", self._name, "--data-dir", str(self._folder / self._name)),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", self._cluster, "--max-request-bytes", str(16 << 20)),
            *("--log-level", "error", "--pre-vote", *self._flags),
        ]
        with (self._folder / f"{self._name}.log").open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def freeze(self) -> None:
        """Stop the process without closing its connections."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Start it again after `kill`."""
        self.process = self._start()
        await_port(self._client)


@contextmanager
def etcd_members(count: int, folder: Path, flags: Sequence[str] = ()) -> Iterator[list[EtcdMember]]:
    """Running members of one cluster, with further flags for etcd."""
    peers = free_ports(count)
    members: list[EtcdMember] = []
    try:
        for number in range(count):
            members.append(EtcdMember(number, peers, folder, flags))
        for member in members:
            await_port(member._client)
        yield members
    finally:
        for member in members:
            member.kill()


@contextmanager
def one_etcd(folder: Path) -> Iterator[str]:
    """A cluster of one member; its client address."""
    with etcd_members(1, folder) as (member,):
        yield member.address


def await_port(port: int) -> None:
    """Wait until somebody listens."""
    give_up_at = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < give_up_at, "etcd did not start"
            time.sleep(0.02)
        else:
            return
