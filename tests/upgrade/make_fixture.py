"""Makes the fixtures: data folders that an older revision has written, and what it answers from them.

    python -m tests.upgrade.make_fixture PYTHON REVISION

PYTHON is the interpreter of an environment in which that revision is installed. Run it from the top of the
repository; it replaces `tests/upgrade/REVISION-*`. One folder is of a server that was stopped, the other of
one that was killed while it wrote.
"""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
from tests.upgrade.contents import change, read, write_to_the_log, write_to_the_store

HERE = Path(__file__).parent
SETTINGS = {
    "URSULA_COLD__FLUSH_INTERVAL": "1h",
    "URSULA_COLD__FLUSH_SIZE": "64MiB",
    "URSULA_LIMITS__LOG_SEGMENT_BYTES": "64KiB",
}
MERGE_SECONDS_MAX = 60.0


class OldServer:
    """A server of the older revision."""

    def __init__(self, python: str, folder: Path) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("URSULA_")}
        environ.pop("PYTHONPATH", None)
        command = ["-m", "ursula", "serve", "--listen", "127.0.0.1:0", "--log-format", "json"]
        self.process = subprocess.Popen(
            [python, *command, "--data-dir", str(folder)],
            env=environ | SETTINGS,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder.parent,
        )
        atexit.register(self.process.kill)
        address = ""
        for line in self.process.stderr or ():
            address = json.loads(line).get("address", "")
            if address:
                break
        threading.Thread(target=list, args=(self.process.stderr,), daemon=True).start()
        self.api = httpx.Client(base_url=f"http://{address}", timeout=60)
        while self.api.get("/readyz/local").status_code != 200:
            time.sleep(0.05)

    def end(self, how: signal.Signals) -> None:
        """Send it a signal, and wait until it has ended."""
        self.process.send_signal(how)
        self.process.wait()
        self.api.close()


def make(python: str, revision: str, how: signal.Signals) -> None:
    """One folder, as a tar file, with what it must answer beside it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "data"
        server = OldServer(python, folder)
        write_to_the_store(server.api)
        wait_for_merge(server.api)
        write_to_the_log(server.api)
        if how is signal.SIGKILL:
            writer = threading.Thread(target=keep_writing, args=(str(server.api.base_url),))
            writer.start()
            time.sleep(0.5)
            server.end(how)
            writer.join()
        else:
            server.end(how)
        name = HERE / f"{revision}-{'killed' if how is signal.SIGKILL else 'stopped'}"
        with tarfile.open(f"{name}.tar.xz", "w:xz", preset=9) as tar:
            tar.add(folder, "data")
        copy = Path(shutil.copytree(folder, Path(temporary) / "copy"))
        server = OldServer(python, copy)
        expected = {"written_at": int(time.time()), "read": read(server.api), "changed": change(server.api)}
        server.end(signal.SIGTERM)
        Path(f"{name}.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


def wait_for_merge(api: httpx.Client) -> None:
    """Wait until the small segments have become fewer."""
    give_up_at = time.monotonic() + MERGE_SECONDS_MAX
    while api.get("/cluster/hot-cold-stats").json()["segments"] > 10:
        if time.monotonic() > give_up_at:
            raise TimeoutError("nothing was merged")
        time.sleep(0.1)


def keep_writing(url: str) -> None:
    """Append until the server is gone."""
    with httpx.Client(base_url=url) as api, suppress(httpx.TransportError):
        for number in range(100_000):
            api.post("/shop/new", headers={"content-type": "text/plain"}, content=b"%d " % number)


if __name__ == "__main__":
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        make(sys.argv[1], sys.argv[2], signal_number)
