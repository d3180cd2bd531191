"""Ursula in Rust: where its programs are, and its configuration as one durable node."""

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

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


def configuration(port: int, folder: Path) -> str:
    """One node that syncs every write and never refuses one because too much of it is hot."""
    address = f"127.0.0.1:{port}"
    return f"""
[server]
listen = "{address}"
admin_listen = "127.0.0.1:0"
cluster_id = "bench"

[raft]
node_id = 1

[[raft.peers]]
node_id = 1
url = "http://{address}"

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
