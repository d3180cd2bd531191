"""The server runs without pandas, which pyarrow would load where it is installed."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.http.raw import ask
from tests.server import Server


def test_a_server_does_not_load_pandas(server: Server, path: str) -> None:
    assert find_spec("pandas") is not None, "the test says nothing where pandas is not installed"
    ask(server, "PUT", path, body=b"to be stored")
    assert ask(server, "POST", "/cluster/flush").status == 200
    loaded = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "/pyarrow/" in loaded
    assert "/pandas/" not in loaded


def test_an_import_of_pandas_fails_in_a_server(tmp_path: Path) -> None:
    program = """
import sys
from types import SimpleNamespace
from ursula.cli import main

def run(settings):
    try:
        import pandas
    except ModuleNotFoundError as error:
        print("not found:", error.name)
    return 0

sys.modules["ursula.http.server"] = SimpleNamespace(run=run)
sys.argv = ["ursula", "serve"]
main()
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "not found: pandas\n"
