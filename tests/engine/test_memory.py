"""What the allocators are told, which they hear only if it is said before they are loaded."""

import os
import subprocess
import sys


def test_arrow_gives_memory_back_soon_in_a_server() -> None:
    told = {name: value for name, value in os.environ.items() if not name.startswith("MIMALLOC_")}
    started = subprocess.run(
        [sys.executable, "-c", "import ursula.http.server"],
        env=told | {"MIMALLOC_VERBOSE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "option 'purge_delay': 10 " in started.stderr
