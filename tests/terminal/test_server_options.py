"""Which server a command talks to, and as whom: flags, variables, and the older names of both."""

import pytest
from tests.client.proxy import Proxy
from tests.server import Server
from tests.terminal.shell import Shell
from typer.testing import CliRunner

from ursula.cli import app

NOBODY = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server in the environment."""
    for name in ("URSULA_URL", "STREAM_URL", "URSULA_AUTH", "STREAM_AUTH"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str, **variables: str) -> str:
    result = CliRunner(env={"TERM": "dumb", **variables}).invoke(app, arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


@pytest.mark.parametrize("flag", ["--url", "--endpoint"])
def test_a_flag_names_the_server(server: Server, bucket: str, flag: str) -> None:
    assert bucket in run("ls", flag, server.url, URSULA_URL=NOBODY, STREAM_URL=NOBODY).splitlines()


@pytest.mark.parametrize("variable", ["URSULA_URL", "STREAM_URL"])
def test_a_variable_names_the_server(server: Server, bucket: str, variable: str) -> None:
    assert bucket in run("ls", **{variable: server.url}).splitlines()


def test_the_variable_of_ursula_comes_before_the_general_one(server: Server, bucket: str) -> None:
    assert bucket in run("ls", URSULA_URL=server.url, STREAM_URL=NOBODY).splitlines()
    assert bucket in run("ls", URSULA_URL="", STREAM_URL=server.url).splitlines()


@pytest.mark.parametrize("variable", ["URSULA_URL", "STREAM_URL"])
def test_a_hint_names_the_server_only_if_no_variable_does(server: Server, bucket: str, variable: str) -> None:
    result = CliRunner(env={"TERM": "dumb", variable: server.url}).invoke(app, ["read", f"{bucket}/x"])
    assert result.stderr.endswith(f"ursula create {bucket}/x\n")
    result = CliRunner(env={"TERM": "dumb"}).invoke(app, ["read", f"{bucket}/x", "--endpoint", server.url])
    assert result.stderr.endswith(f"ursula create {bucket}/x --url {server.url}\n")


def test_the_authorization_header_is_sent(proxy: Proxy, name: str) -> None:
    Shell(proxy.url)("create", name, "--auth", "Bearer abc")
    assert proxy.seen[-1]["authorization"] == "Bearer abc"


@pytest.mark.parametrize("variable", ["URSULA_AUTH", "STREAM_AUTH"])
def test_a_variable_holds_the_authorization_header(proxy: Proxy, variable: str) -> None:
    run("flush", "--url", proxy.url, **{variable: "Bearer abc"})
    assert proxy.seen[-1]["authorization"] == "Bearer abc"
