"""The reference server of the protocol, another implementation for the client to talk to."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
STOP_SECONDS_MAX = 30


@contextmanager
def reference_server() -> Iterator[str]:
    """A running reference server; its URL."""
    if not (FOLDER / "node_modules" / "@durable-streams" / "server").is_dir():
        pytest.fail("the reference server is not installed, type: make node")
    with subprocess.Popen(
        ["node", "reference.mjs"], cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the reference server has no pipes")
        try:
            url = process.stdout.readline().strip()
            if not url.startswith("http://"):
                pytest.fail(f"the reference server did not start: {url!r}")
            yield url
            process.stdin.close()
            process.wait(STOP_SECONDS_MAX)
        finally:
            process.kill()
