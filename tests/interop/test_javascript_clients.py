"""The official JavaScript packages against a server whose live reads go round quickly."""

import subprocess
from pathlib import Path

import pytest
from tests.conftest import StartServer
from tests.server import Server

FOLDER = Path(__file__).parent
SCRIPT_SECONDS_MAX = 200


@pytest.fixture(scope="module")
def quick_server(start_server: StartServer) -> Server:
    return start_server(http__long_poll="300ms", http__sse_cycle="1.2s")


@pytest.mark.parametrize("package", ["client", "state"])
def test_the_official_package_works_with_the_server(quick_server: Server, package: str) -> None:
    run_script(f"{package}.mjs", quick_server)


def test_the_official_client_follows_a_stream_that_is_written_fast(start_server: StartServer) -> None:
    run_script("throughput.mjs", start_server())


def run_script(script: str, server: Server) -> None:
    """Run a script of node's test runner against a server."""
    if not (FOLDER / "node_modules" / "@durable-streams" / "client").is_dir():
        pytest.fail("the official packages are not installed, type: make node")
    process = subprocess.Popen(
        ["node", "--test-reporter=spec", script, server.url],
        cwd=FOLDER,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=SCRIPT_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    assert process.returncode == 0, output
    assert server.complaints() == []
