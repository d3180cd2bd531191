"""What the documents for users say is what the server does."""

import re
import shlex
import subprocess
from pathlib import Path

from tests.server import Server

from ursula.http.errors import STATUS
from ursula.http.headers import OURS

ROOT = Path(__file__).parent.parent
ADDRESS = "http://127.0.0.1:4437"


def test_every_error_code_is_documented_with_its_status() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| .+ \|$", (ROOT / "docs/http.md").read_text(), re.MULTILINE)
    assert {code: int(status) for code, status in rows} == STATUS


def test_every_request_header_is_documented() -> None:
    text = (ROOT / "docs/http.md").read_text().lower().replace("producer-*", "")
    assert [name for name in OURS if name not in text] == []


def test_the_readme_lines_work_as_written(server: Server) -> None:
    lines = re.findall(r"^curl .+$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(lines) == 5
    assert all(ADDRESS in line for line in lines)
    answers = []
    for line in lines:
        command = shlex.split(line.replace(ADDRESS, server.url))
        answers.append(subprocess.run([*command, "-s"], capture_output=True, text=True, timeout=20).stdout)
    created, appended, closed, read, tailed = answers
    assert created.startswith("HTTP/1.1 201")
    assert appended.startswith("HTTP/1.1 204")
    assert "stream-closed: true" in closed
    assert read.endswith("hello, world")
    assert "data:hello, world" in tailed
    assert '"streamClosed":true' in tailed


def test_the_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make serve" in text
    assert "make test" in text
