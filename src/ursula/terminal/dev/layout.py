"""The folder of a cluster on one machine: where each node listens, its configuration, its log lines.

dev.json         the ports, so that the cluster can be started again
node-{n}.toml    the configuration of a node, as for `ursula serve --config`
node-{n}/        its data folder
node-{n}.log     its log lines
store/           the store that all nodes share
"""

import fcntl
import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

HOST = "127.0.0.1"
FIRST_PORT, PORT_STEP, PORT_MAX = 4437, 10, 32_000
PORTS_PER_NODE = 3
"""A node listens on the first one, its etcd on the two after it."""

_NOTE = "dev.json"
_UNFINISHED = {"lock", f"{_NOTE}.new"}


class DevRefused(Exception):
    """The cluster cannot run here; the text says why and what to do."""


@dataclass(frozen=True)
class DevNode:
    """One node of the cluster."""

    number: int
    port: int
    folder: Path

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"http://{self.address}"

    @property
    def config(self) -> Path:
        """Its configuration."""
        return self.folder / f"node-{self.number}.toml"

    @property
    def log(self) -> Path:
        """The file with its log lines."""
        return self.folder / f"node-{self.number}.log"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Use the folder alone. Raises DevRefused if it cannot be used."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_is_ours(folder)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise DevRefused(f"cannot use the folder {folder}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise DevRefused(f"another `ursula dev` uses the folder {folder}: stop it first") from None
    try:
        yield
    finally:
        os.close(lock)


def lay_out(folder: Path, count: int | None, default_count: int, etcd_path: str) -> list[DevNode]:
    """The nodes of the cluster in a folder. If it is new, their configurations are written."""
    ports = _known_ports(folder)
    if ports is None:
        ports = _free_ports(count or default_count)
        nodes = _nodes(folder, ports)
        for node in nodes:
            node.config.write_text(_configuration(node, nodes, etcd_path))
        _write_ports(folder, ports)
    elif count not in (None, len(ports)):
        raise DevRefused(
            f"the cluster in {folder} has {len(ports)} nodes: leave out --nodes, or choose another --data-dir"
        )
    else:
        for port in chain.from_iterable(range(port, port + PORTS_PER_NODE) for port in ports):
            if not _is_free(port):
                raise DevRefused(
                    f"port {port} is in use, and the cluster in {folder} needs it, since its members know "
                    "each other by their ports: stop the program that uses it, or choose another --data-dir"
                )
    return _nodes(folder, ports)


def _check_is_ours(folder: Path) -> None:
    """Raise DevRefused if the folder has anything but a cluster, perhaps one that was not finished."""
    found = sorted(os.listdir(folder))
    unknown = [name for name in found if name not in _UNFINISHED and not re.fullmatch(r"node-\d\.toml", name)]
    if unknown and _NOTE not in found:
        raise DevRefused(
            f"the folder {folder} has other files ({', '.join(unknown[:3])}): choose an empty or new one"
        )


def _nodes(folder: Path, ports: list[int]) -> list[DevNode]:
    return [DevNode(number, port, folder) for number, port in enumerate(ports, 1)]


def _configuration(node: DevNode, nodes: list[DevNode], etcd_path: str) -> str:
    others = ", ".join(json.dumps(other.address) for other in nodes if other is not node)
    folder = node.folder.absolute()
    return f"""\
[server]
node_id = {node.number}
listen = {json.dumps(node.address)}
data_dir = {json.dumps(str(folder / f"node-{node.number}"))}

[cluster]
name = "dev"
bootstrap_node_id = 1
routes = [{others}]
etcd_path = {json.dumps(etcd_path)}

[cold]
shared_fs = true
root = {json.dumps(str(folder / "store"))}
"""


def _known_ports(folder: Path) -> list[int] | None:
    """The ports of the cluster in a folder; None if there is no cluster yet."""
    file = folder / _NOTE
    try:
        return [int(port) for port in json.loads(file.read_bytes())["ports"]]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DevRefused(f"{file} cannot be read ({error}): choose another --data-dir") from None


def _write_ports(folder: Path, ports: list[int]) -> None:
    """Note the ports last: until then, the folder has no cluster that could be started again."""
    temporary = folder / f"{_NOTE}.new"
    temporary.write_text(json.dumps({"ports": ports}) + "\n")
    temporary.rename(folder / _NOTE)


def _free_ports(count: int) -> list[int]:
    """The first port of each node: 4437, 4447, ... if these and the two after each are free."""
    found: list[int] = []
    for port in range(FIRST_PORT, PORT_MAX, PORT_STEP):
        if all(map(_is_free, range(port, port + PORTS_PER_NODE))):
            found.append(port)
            if len(found) == count:
                return found
    raise DevRefused(f"there are not enough free ports from {FIRST_PORT} to {PORT_MAX}")


def _is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True
