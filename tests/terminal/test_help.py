"""The help of every command: its panel, its examples, the server it talks to, and no Python types."""

import re

import pytest
import typer.core
import typer.main
from tests.docs.test_lists import commands
from tests.terminal.shell import Shell

from ursula.cli import app

STREAM_COMMANDS = ["create", "append", "read", "tail", "head", "close", "delete", "undelete"]
STREAM_COMMANDS += ["attrs", "snapshot"]
WITHOUT_A_SERVER = ["serve", "config show", "dev", "restore", "inspect"]
WITHOUT_A_SERVER += ["pipeline verify", "pipeline backup", "pipeline restore"]


def all_commands() -> list[str]:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return [command.removeprefix("ursula ") for command in commands(group)]


def test_the_help_groups_the_commands(shell: Shell) -> None:
    text = shell("--help")
    server, streams, buckets = (text.index(f"─ {panel} ─") for panel in ("Server", "Streams", "Buckets"))
    for command in ("serve", "flush", "config"):
        assert server < text.index(f"│ {command} ") < streams
    for command in STREAM_COMMANDS:
        assert streams < text.index(f"│ {command} ") < buckets
    for command in ("ls", "feed"):
        assert buckets < text.index(f"│ {command} ")


@pytest.mark.parametrize("command", all_commands())
def test_every_command_has_examples(shell: Shell, command: str) -> None:
    text = shell(*command.split(), "--help")
    assert f" ursula {command}" in text.partition("Examples")[2]


@pytest.mark.parametrize("command", all_commands())
def test_every_command_that_talks_to_a_server_names_it_in_one_way(shell: Shell, command: str) -> None:
    text = shell(*command.split(), "--help")
    names = ("--url", "--endpoint", "URSULA_URL", "STREAM_URL", "--auth", "URSULA_AUTH", "STREAM_AUTH")
    is_named = [re.search(rf"(?<![\w-]){name}\b", text) is not None for name in names]
    assert is_named == [command not in WITHOUT_A_SERVER] * len(names)


@pytest.mark.parametrize("command", ["", "config", "attrs", "snapshot", "pipeline", *all_commands()])
def test_the_help_shows_no_types_of_python(shell: Shell, command: str) -> None:
    text = shell(*command.split(), "--help")
    assert "--help" in text
    assert re.findall(r"<\w+>", text) == []
