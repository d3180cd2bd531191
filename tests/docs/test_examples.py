"""Every example in the documents runs as it is written, in order, against a real server."""

import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import StartServer
from tests.docs.pages import ADDRESS, ROOT, Example, examples, for_users, name_of
from tests.server import Server

PAGES = [page for page in for_users() if examples(page)]
BLOCK_SECONDS_MAX = 120
INTERPRETER = Path(__file__).with_name("interpreter.py")


@pytest.fixture(scope="module")
def documented(start_server: StartServer) -> Iterator[Server]:
    """A server for the documents alone: their names are theirs."""
    server = start_server()
    yield server
    assert server.complaints() == []


class Reader:
    """Someone who types a page from top to bottom: variables and files stay from block to block."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._url = server.url
        self._folder = folder
        self._variables = folder / ".variables"
        self._variables.touch()
        (folder / "data").symlink_to(server.data_dir)  # as if the server had been started here
        self._interpreter: subprocess.Popen[str] | None = None

    def run(self, example: Example) -> str:
        """What a block prints."""
        code = example.code.replace(ADDRESS, self._url)
        output = self._bash(code) if example.language == "bash" else self._python(code)
        return output.replace(self._url, ADDRESS).replace("\r", "")

    def close(self) -> None:
        """Stop typing."""
        if self._interpreter is not None:
            self._interpreter.communicate(timeout=BLOCK_SECONDS_MAX)

    def _bash(self, code: str) -> str:
        script = f"set -euo pipefail -a; . {self._variables}\n{code}\nexport -p > {self._variables}\n"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {"PATH": path, "HOME": str(self._folder), "STREAM_URL": self._url}
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BLOCK_SECONDS_MAX,
        )
        assert ran.returncode == 0, f"exit code {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def _python(self, code: str) -> str:
        if self._interpreter is None:
            self._interpreter = subprocess.Popen(
                [sys.executable, "-W", "error", INTERPRETER],
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        sent, received = self._interpreter.stdin, self._interpreter.stdout
        assert sent is not None
        assert received is not None
        sent.write(json.dumps(code) + "\n")
        sent.flush()
        ran = json.loads(received.readline())
        assert ran["problem"] is None, ran["problem"]
        return str(ran["printed"])


def pattern(output: str) -> str:
    """An output as it is documented, where three dots stand for anything."""
    lines = [line.rstrip() for line in output.strip().splitlines()]
    return ".*?".join(re.escape(part) for part in "\n".join(lines).split("..."))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_examples_of_a_page_work_as_written(page: Path, documented: Server, tmp_path: Path) -> None:
    reader = Reader(documented, tmp_path)
    try:
        for example in examples(page):
            where = f"{name_of(page)}:{example.line}"
            try:
                printed = reader.run(example)
            except Exception:
                pytest.fail(f"{where} failed\n{example.code}\n{traceback.format_exc()}", pytrace=False)
            if example.output is not None:
                shown = "\n".join(line.rstrip() for line in printed.strip().splitlines())
                if re.fullmatch(pattern(example.output), shown, re.DOTALL) is None:
                    pytest.fail(f"{where} printed\n{shown}\ninstead of\n{example.output}", pytrace=False)
    finally:
        reader.close()


def test_the_first_lines_of_the_readme_work_as_written(documented: Server, tmp_path: Path) -> None:
    lines = re.findall(r"^curl .+$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(lines) == 5
    assert all(ADDRESS in line for line in lines)
    reader = Reader(documented, tmp_path)
    created, appended, closed, read, tailed = [reader.run(Example("bash", line, None, 0)) for line in lines]
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
