"""The etcd program: where it is, which version it has, and which flags that version takes."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ...etcd.client import REQUEST_BYTES_MAX
from ..failures import ClusterRefused

Version = tuple[int, int, int]

OLDEST: Version = (3, 4, 0)
RECOMMENDED: Version = (3, 5, 16)
_CORRUPTING: tuple[Version, Version] = ((3, 5, 0), (3, 5, 2))
"""Versions that may lose committed writes when they are killed (etcd-io/etcd#13766)."""

_CATCH_UP_FLAG: Version = (3, 5, 14)
"""The first version that can be told how many entries to keep in memory; `etcd --help` does not show it."""

_ADVICE = (
    "install Debian's package etcd-server, version 3.5.16 or newer, or name a program in cluster.etcd_path"
)
_ANSWER_SECONDS_MAX = 30.0

QUOTA_BYTES = 8 << 30
SNAPSHOT_ENTRIES = 1000
CATCH_UP_ENTRIES = 500


@dataclass(frozen=True)
class EtcdProgram:
    """A program that can be started."""

    path: str
    version: Version

    @property
    def warning(self) -> str | None:
        """Why another version would be better; None if this one is good."""
        if self.version >= RECOMMENDED:
            return None
        return f"{self.path} is etcd {_dotted(self.version)}; {_dotted(RECOMMENDED)} or newer is recommended"

    def flags(self) -> list[str]:
        """The flags that do not depend on the node.

        etcd keeps its last entries in memory for members that lag, 5,000 unless it is told otherwise, and
        entries are large here. It is never told to compact, since the log does that.
        """
        flags = [
            "--pre-vote=true",
            f"--snapshot-count={SNAPSHOT_ENTRIES}",
            f"--max-request-bytes={REQUEST_BYTES_MAX}",
            f"--quota-backend-bytes={QUOTA_BYTES}",
            "--logger=zap",
            "--log-level=warn",
            "--log-outputs=stderr",
        ]
        experimental = "experimental-" if self.version < (3, 6, 0) else ""
        # A node may reach others from an address that is not in its certificate; the authority is private.
        flags.append(f"--{experimental}peer-skip-client-san-verification=true")
        if self.version >= _CATCH_UP_FLAG:
            flags.append(f"--{experimental}snapshot-catchup-entries={CATCH_UP_ENTRIES}")
        return flags


def find_program(configured: str = "") -> EtcdProgram:
    """The program at `cluster.etcd_path`, or else the one on the PATH; raises ClusterRefused."""
    path = shutil.which(configured or "etcd")
    if path is None:
        raise ClusterRefused(
            f"cluster.etcd_path names no program: {configured}"
            if configured
            else f"a cluster needs etcd, and there is none on the PATH: {_ADVICE}"
        )
    path = str(Path(path).absolute())
    version = read_version(_version_text(path))
    if version is None:
        raise ClusterRefused(f"{path} does not say which version of etcd it is: {_ADVICE}")
    if version < OLDEST:
        raise ClusterRefused(f"{path} is etcd {_dotted(version)}, which is too old: {_ADVICE}")
    if _CORRUPTING[0] <= version <= _CORRUPTING[1]:
        raise ClusterRefused(f"{path} is etcd {_dotted(version)}, which can lose data: {_ADVICE}")
    return EtcdProgram(path, version)


def read_version(text: str) -> Version | None:
    """The version in the output of `etcd --version`."""
    found = re.search(r"^etcd Version: (\d+)\.(\d+)\.(\d+)", text, re.MULTILINE)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def _version_text(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_ANSWER_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterRefused(f"{path} cannot be run ({error}): {_ADVICE}") from None
    return done.stdout.decode(errors="replace")


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
