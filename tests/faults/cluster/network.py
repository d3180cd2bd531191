"""A network of our own, which needs no root: each node of a cluster has a link to the other nodes, and one to
the clients and the store. Links are cut for one node, or in one direction between two.

A test runs again in a process of its own, whose network, mounts and processes nobody else sees. All of them
end with it.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.faults.notes import note
from tests.faults.rounds import SEED

STORE_HOST = "10.78.0.253"

_OWN = ("unshare", "--map-root-user", "--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child")
_CLIENT_HOST = "10.78.0.254"
_SLOW_LINK = ("root", "tbf", "rate", "4mbit", "burst", "16kb", "latency", "300ms")
_INSIDE = "URSULA_TEST_INSIDE"


def is_inside() -> bool:
    """Whether this process has a network of its own."""
    return _INSIDE in os.environ


def run_inside(test: str, folder: Path, seconds: float) -> None:
    """Run a test by its name in a network of its own. Skips where that is forbidden."""
    tried = subprocess.run([*_OWN, "ip", "link", "add", "tried", "type", "bridge"], capture_output=True)
    if tried.returncode:
        problem = tried.stderr.decode().strip()
        note(f"no network of our own ({problem}): cutting nodes of a cluster off was not tried")
        pytest.skip(f"this machine lets nobody make a network: {problem}")
    command = [*_OWN, sys.executable, "-m", "pytest", "-s", "-n", "0", "-p", "no:cacheprovider"]
    command += [f"--timeout={seconds}", f"--basetemp={folder / 'inside'}", test]
    environment = os.environ | {_INSIDE: "1", "URSULA_FAULT_SEED": str(SEED)}
    finished = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, timeout=seconds + 60)
    assert finished.returncode == 0, "it failed in a network of its own: see its report above"


class Network:
    """What lies between nodes 1 to `count`, their clients and the store."""

    def __init__(self, count: int) -> None:
        self._numbers = range(1, count + 1)
        self._mends: list[Callable[[], None]] = []
        _run("mount", "-t", "tmpfs", "tmpfs", "/run")  # where ip keeps the names of networks
        _ip("link", "set", "lo", "up")
        for bridge in ("nodes", "clients"):
            _ip("link", "add", bridge, "type", "bridge")
            _ip("link", "set", bridge, "up")
        for host in (_CLIENT_HOST, STORE_HOST):
            _ip("addr", "add", f"{host}/24", "dev", "clients")
        for number in self._numbers:
            self._add(number)

    @staticmethod
    def host(number: int) -> str:
        """The address of a node, by either link."""
        return f"10.77.0.{number}"

    @staticmethod
    def prefix(number: int) -> tuple[str, ...]:
        """What to put before a command so that it runs on a node."""
        return ("nsenter", f"--net=/run/netns/n{number}")

    def cut_off(self, number: int) -> None:
        """Cut a node off from the other nodes. Clients and the store still reach it."""
        _ip("link", "set", f"nodes{number}", "down")
        self._mends.append(partial(_ip, "link", "set", f"nodes{number}", "up"))

    def mute(self, number: int) -> None:
        """Let nothing through from a node to the others, which it still hears."""
        for other in self._others(number):
            self._block(number, other)

    def deafen(self, number: int) -> None:
        """Let nothing through to a node from the others, which still hear it."""
        for other in self._others(number):
            self._block(other, number)

    def block_store(self, number: int) -> None:
        """Let nothing through from a node to the store."""
        _ip("-n", f"n{number}", "route", "add", "blackhole", f"{STORE_HOST}/32")
        self._mends.append(partial(_ip, "-n", f"n{number}", "route", "del", "blackhole", f"{STORE_HOST}/32"))

    def slow_down(self, number: int) -> None:
        """Make the link from a node to the others slow."""
        _run("tc", "-n", f"n{number}", "qdisc", "add", "dev", "nodes", *_SLOW_LINK)
        self._mends.append(partial(_run, "tc", "-n", f"n{number}", "qdisc", "del", "dev", "nodes", "root"))

    def mend(self) -> None:
        """Undo everything."""
        while self._mends:
            self._mends.pop()()

    def _block(self, sender: int, receiver: int) -> None:
        _ip("-n", f"n{sender}", "route", "replace", "blackhole", f"{self.host(receiver)}/32")
        self._mends.append(partial(self._open, sender, receiver))

    def _open(self, sender: int, receiver: int) -> None:
        route = (f"{self.host(receiver)}/32", "dev", "nodes", "src", self.host(sender))
        _ip("-n", f"n{sender}", "route", "replace", *route)

    def _add(self, number: int) -> None:
        node, host = f"n{number}", self.host(number)
        _ip("netns", "add", node)
        for link in ("nodes", "clients"):
            _ip("link", "add", f"{link}{number}", "type", "veth", "peer", "name", link, "netns", node)
            _ip("link", "set", f"{link}{number}", "master", link, "up")
            _ip("-n", node, "link", "set", link, "up")
        _ip("-n", node, "link", "set", "lo", "up")
        _ip("-n", node, "addr", "add", f"{host}/32", "dev", "lo")
        _ip("-n", node, "route", "add", "10.78.0.0/24", "dev", "clients", "src", host)
        _ip("route", "add", f"{host}/32", "dev", "clients")
        for other in self._others(number):
            self._open(number, other)

    def _others(self, number: int) -> Iterator[int]:
        return (other for other in self._numbers if other != number)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, (command, finished.stderr)
