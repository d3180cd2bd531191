"""Runs `ursula` as a person at a shell does."""

import os
import subprocess
import sys

from typer.testing import CliRunner, Result

from ursula.cli import app


class Shell:
    """Runs commands against a server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *arguments: str, typed: bytes | str = b"", expect: int = 0) -> str:
        """The output of a command."""
        return self.run(*arguments, typed=typed, expect=expect).stdout

    def complaint(self, *arguments: str, typed: bytes | str = b"", expect: int = 1) -> str:
        """The error of a command that fails."""
        result = self.run(*arguments, typed=typed, expect=expect)
        return result.stderr

    def run(self, *arguments: str, typed: bytes | str = b"", expect: int = 0) -> Result:
        """The result of a command, which must have the expected exit code."""
        runner = CliRunner(env={"URSULA_URL": self.url, "COLUMNS": "200", "TERM": "dumb"})
        result = runner.invoke(app, arguments, input=typed)
        assert result.exit_code == expect, (result.output, result.exception)
        return result

    def spawn(self, *arguments: str, stderr: int = subprocess.PIPE) -> "subprocess.Popen[bytes]":
        """A command as a process of its own."""
        command = [sys.executable, "-W", "error", "-m", "ursula", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.environment, stdin=pipe, stdout=pipe, stderr=stderr)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command as a process of its own."""
        return {**os.environ, "URSULA_URL": self.url, "TERM": "xterm"}
