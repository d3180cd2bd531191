"""What a server does without."""

import subprocess
import sys
from pathlib import Path

from tests.http.raw import ask
from tests.server import Server


def test_a_server_has_no_use_for_pandas(server: Server, path: str) -> None:
    ask(server, "PUT", path, body=b"to be stored")
    assert ask(server, "POST", "/cluster/flush").status == 200
    loaded = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "/pyarrow/" in loaded
    assert "/pandas/" not in loaded


def test_a_module_is_not_found_any_more() -> None:
    program = (
        "from ursula.absent import do_without; do_without('colorsys'); import json\n"
        "try:\n    import colorsys\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "this process does without colorsys\n"
