"""Someone whose server does not start finds what it says, and what to do, in the documents."""

import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.conftest import StartServer
from tests.docs.pages import DOCS, codes, rows
from tests.docs.test_examples import pattern
from tests.server import Server

from ursula.engine.start.data_folder import FORMAT
from ursula.http.errors import STATUS
from ursula.log.record import FORMAT_VERSION
from ursula.model.codec.entry import ENTRY_VERSION

PAGE = DOCS / "troubleshooting.md"
SAID = [code for row in rows(PAGE, "## The server does not start") for code in codes(row[0])]
HEADER_VERSION_AT, FIRST_RECORD_AT = 8, 32


def said(flags: list[str]) -> str:
    """The one line with which a start is refused."""
    command = [sys.executable, "-m", "ursula", "serve", "--listen", "127.0.0.1:0", *flags]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode in (1, 2), ran.stderr
    return ran.stderr.splitlines()[-1].removeprefix("ursula: ")


class Refusals:
    """Folders, each with something wrong, and the flags with which to start on them."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._original = server.data_dir
        self._folder = folder
        self.flags = {
            "a folder in use": ["--data-dir", str(self._original)],
            "an address in use": [
                "--listen",
                f"{server.host}:{server.port}",
                "--data-dir",
                str(folder / "a"),
            ],
            "a wrong setting": ["--log", "paper"],
        }

    def copy(self, name: str) -> Path:
        """A copy of the data folder, to be spoiled."""
        copied = Path(shutil.copytree(self._original, self._folder / name))
        self.flags[name] = ["--data-dir", str(copied)]
        return copied

    def overwrite(self, name: str, byte: int, data: bytes) -> None:
        """Spoil the log of a copy."""
        (segment,) = (self.copy(name) / "log" / "g0").glob("*.log")
        with segment.open("r+b") as file:
            file.seek(byte)
            file.write(data)


def spoil_stores(server: Server, wrong: Refusals, identity: dict[str, object]) -> None:
    """Copies whose log and store are not of one node, or not of one time."""
    older = wrong.copy("an older log")
    httpx.post(f"{server.url}/cluster/flush", timeout=60).raise_for_status()
    shutil.rmtree(older / "cold")
    shutil.copytree(server.data_dir / "cold", older / "cold")
    another = json.dumps(identity | {"cluster": "0" * 16})
    (wrong.copy("another's store") / "ursula.json").write_text(another)
    generations = wrong.copy("a store that was restored") / "cold" / "generations"
    first = json.loads((generations / "1.json").read_text())
    (generations / "2.json").write_text(json.dumps(first | {"generation": 2}))
    (wrong.copy("a damaged generation") / "cold" / "generations" / "1.json").write_text("{")
    (state,) = (wrong.copy("a damaged state") / "cold" / "state" / "g0").iterdir()
    state.write_bytes(state.read_bytes()[:-1] + b"?")


@pytest.fixture(scope="module")
def refusals(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is said to each kind of start that is refused. They are tried side by side: each takes a while."""
    server = start_server()
    httpx.put(f"{server.url}/demo", timeout=60).raise_for_status()
    httpx.put(f"{server.url}/demo/one", content=b"x" * 1000, timeout=60).raise_for_status()
    folder = tmp_path_factory.mktemp("refused")
    wrong = Refusals(server, folder)
    (folder / "file").touch()
    network = folder / "network.toml"
    network.write_text('[cluster]\nname = "one"\nroutes = ["10.1.2.3:4437"]\n[cold]\nshared_fs = true\n')
    wrong.flags["a network without certificates"] = ["--listen", "127.0.0.1:4437", "--config", str(network)]
    wrong.flags["a folder that cannot be"] = ["--data-dir", str(folder / "file" / "data")]
    identity = json.loads((server.data_dir / "ursula.json").read_text())
    newer = json.dumps(identity | {"format": FORMAT + 1})
    (wrong.copy("a newer folder") / "ursula.json").write_text(newer)
    (wrong.copy("a damaged identity") / "ursula.json").write_text("{")
    (wrong.copy("no identity") / "ursula.json").unlink()
    spoil_stores(server, wrong, identity)
    wrong.overwrite("a newer log", HEADER_VERSION_AT, bytes((FORMAT_VERSION + 1,)))
    wrong.overwrite("a damaged log", FIRST_RECORD_AT, b"\0\0\0\0")
    with ThreadPoolExecutor() as threads:
        return dict(zip(wrong.flags, threads.map(said, wrong.flags.values()), strict=True))


def test_every_refusal_of_a_start_is_told(refusals: dict[str, str]) -> None:
    unknown = [line for line in refusals.values() if not any(re.match(pattern(text), line) for text in SAID)]
    assert unknown == []
    assert len(set(refusals.values())) == len(refusals) == 15


def test_what_an_operator_meets_is_there_with_its_status() -> None:
    table = rows(PAGE, "## Clients get errors")
    found = {code: int(row[0][:3]) for row in table for code in codes(row[0]) if code in STATUS}
    assert found == {code: STATUS[code] for code in found}
    assert {code for code, status in STATUS.items() if status >= 500} <= found.keys()


def test_the_page_on_upgrades_has_the_versions_of_this_one() -> None:
    now = [row[2] for row in rows(DOCS / "upgrades.md", "## Which versions there are")]
    assert now == [str(FORMAT), str(FORMAT_VERSION), str(ENTRY_VERSION)]
