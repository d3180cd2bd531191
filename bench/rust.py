"""Ursula in Rust: where its programs are, and its configuration as one durable node or several."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

GROUPS_PER_CORE = 16

_PROBE_SECONDS = 10


@cache
def find_server() -> str | None:
    """The first `ursula` on the PATH that is the Rust one: ours has the same name."""
    ours = Path(sys.executable).parent.resolve()
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = shutil.which("ursula", path=folder) if folder else None
        if found and Path(folder).resolve() != ours and "gateway" in _output(found, "--help"):
            return found
    return None


@cache
def find_load() -> str | None:
    """`ursula-bench`, or None."""
    return shutil.which("ursula-bench")


def version_of(program: str) -> str:
    """What a program says of its version."""
    return _output(program, "--version").strip() or "unknown version"


def command(ports: Sequence[int], node: int, folder: Path) -> Sequence[str]:
    """How a node is started that keeps its data in a new folder."""
    folder.mkdir()
    file = folder / "ursula.toml"
    file.write_text(_configuration(ports, node, folder))
    return (str(find_server()), "server", "--config", str(file))


def _configuration(ports: Sequence[int], node: int, folder: Path) -> str:
    """A node, by its number from 1, that syncs every write and never refuses one because too much is hot.

    Several nodes have as many groups as a single one has by default.
    """
    peers = "".join(
        f'[[raft.peers]]\nnode_id = {number}\nurl = "http://127.0.0.1:{port}"\n\n'
        for number, port in enumerate(ports, 1)
    )
    groups = f"group_count = {GROUPS_PER_CORE * (os.cpu_count() or 1)}" if len(ports) > 1 else ""
    return f"""
[server]
listen = "127.0.0.1:{ports[node - 1]}"
admin_listen = "127.0.0.1:0"
cluster_id = "bench"

[raft]
node_id = {node}
{groups}

{peers}
[raft.wal]
path = {json.dumps(str(folder / "wal"))}
fsync = "always"

[storage.cold]
max_hot_size_per_group = 0
"""


def _output(program: str, argument: str) -> str:
    try:
        done = subprocess.run(
            [program, argument], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
