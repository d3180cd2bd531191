"""What the commands say: names that cannot take over the terminal, reasons, and words in the right number."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.server import Server
from tests.terminal.screen import run_on_terminal
from tests.terminal.shell import Shell

from ursula.client import Client
from ursula.terminal.output import counted

HOSTILE = "a\x1b]0;owned\x07\x1b[2Jb\nfake\tcolumn\x7f\x9b31m\u202egnp.exe\u2028c"
SHOWN = "a\\x1b]0;owned\\x07\\x1b[2Jb\\nfake\\tcolumn\\x7f\\x9b31m\\u202egnp.exe\\u2028c"


def test_a_hostile_name_is_escaped_in_a_pipe_and_on_a_terminal(
    shell: Shell, client: Client, bucket: str
) -> None:
    client.stream(f"{bucket}/{HOSTILE}").create("text/plain")
    client.stream(f"{bucket}/plain \u00fc\U0001f600 \\x").create("text/plain")
    assert shell("ls", bucket) == f"{SHOWN}\nplain \u00fc\U0001f600 \\x\n"
    long = shell("ls", bucket, "--long").splitlines()[0]
    assert long.split("\t") == [SHOWN, "open", f"{0:020}", "text/plain"]
    code, written = run_on_terminal("ls", bucket, environment=shell.environment)
    assert (code, written) == (0, f"{SHOWN}\r\nplain \u00fc\U0001f600 \\x\r\n")


def test_json_is_exact_and_harmless(shell: Shell, client: Client, bucket: str) -> None:
    client.stream(f"{bucket}/{HOSTILE}").create("text/plain")
    client.stream(f"{bucket}/s").create("text/plain", attributes={"title": HOSTILE})
    listed = shell("ls", bucket, "--json").splitlines()
    assert json.loads(listed[0])["stream_id"] == HOSTILE
    attributes = shell("attrs", "get", f"{bucket}/s")
    assert json.loads(attributes) == {"title": HOSTILE}
    assert not set(HOSTILE) & set("\x1b\x07\t\x7f\x9b\u202e\u2028") & set("".join(listed) + attributes)


def test_the_feed_is_harmless_on_a_terminal_and_exact_in_a_pipe(
    shell: Shell, client: Client, bucket: str
) -> None:
    client.stream(f"{bucket}/{HOSTILE}").create("text/plain")
    piped = shell("feed", bucket)
    assert "\x9b" in piped
    assert json.loads(piped)["stream"] == HOSTILE
    code, written = run_on_terminal("feed", bucket, environment=shell.environment)
    assert code == 0
    assert json.loads(written)["stream"] == HOSTILE
    assert not set("\x1b\x07\t\x7f\x9b\u202e\u2028") & set(written)


@pytest.mark.parametrize("command", ["read", "append", "tail", "head", "delete", "attrs get"])
def test_an_error_about_a_hostile_name_is_one_harmless_line(shell: Shell, bucket: str, command: str) -> None:
    more = ["x"] if command == "append" else []
    said = shell.complaint(*command.split(), f"{bucket}/{HOSTILE}", *more)
    assert said.count("\n") == 1
    assert not set("\x1b\x07\t\x7f\x9b\u202e\u2028") & set(said)


@pytest.mark.parametrize("command", ["read", "append", "tail", "head", "close", "delete", "attrs get"])
def test_a_missing_stream_is_named_with_the_command_that_makes_it(
    shell: Shell, bucket: str, command: str
) -> None:
    more = ["x"] if command == "append" else []
    said = shell.complaint(*command.split(), f"{bucket}/missing", *more)
    assert "there is no stream 'missing'" in said
    assert said.endswith(f"create it: ursula create {bucket}/missing\n")
    assert "404" not in said


@pytest.mark.parametrize("command", ["read", "append", "tail", "head"])
def test_a_missing_bucket_is_named_with_the_command_that_makes_it(shell: Shell, command: str) -> None:
    more = ["x"] if command == "append" else []
    said = shell.complaint(command, "not-there/stream", *more)
    assert "there is no bucket 'not-there'" in said
    assert said.endswith("create it: ursula create not-there\n")


def test_a_hint_can_be_pasted_as_it_is(server: Server, shell: Shell, bucket: str) -> None:
    assert f"ursula create '{bucket}/a b'" in shell.complaint("read", f"{bucket}/a b")
    elsewhere = Shell("http://127.0.0.1:9")
    said = elsewhere.complaint("read", f"{bucket}/x", "--url", server.url)
    assert said.endswith(f"ursula create {bucket}/x --url {server.url}\n")
    said = elsewhere.complaint("read", f"{server.url}/{bucket}/x")
    assert said.endswith(f"ursula create {server.url}/{bucket}/x\n")
    said = elsewhere.complaint("read", f"{server.url}/not-there/x")
    assert said.endswith(f"ursula create {server.url}/not-there\n")


def test_hints_show_the_real_names(shell: Shell, client: Client, bucket: str) -> None:
    client.stream(f"{bucket}/s").create("text/plain")
    assert f"ursula ls {bucket} " in shell.complaint("delete", bucket)
    assert f"ursula head {bucket}/s " in shell.complaint("create", f"{bucket}/s", "-t", "application/json")
    said = shell.complaint("create", f"{bucket}/fork", "--fork-of", f"{bucket}/missing")
    assert "there is no stream 'missing'" in said
    assert f"ursula create {bucket}/missing" in said
    assert f"publish {bucket}/s" in shell.complaint("snapshot", "read", f"{bucket}/s")
    assert not re.search(r"\b(BUCKET|STREAM)\b", said)


@pytest.mark.parametrize(
    "command", [["flush"], ["ls"], ["ls", "demo"], ["head", "demo/x"], ["read", "demo/x"]]
)
def test_a_server_of_another_kind_is_named(command: list[str]) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{stranger.server_port}"
        said = Shell(url).complaint(*command)
        stranger.shutdown()
    reason, _, hint = said.partition("(")
    if len(command) == 1:
        assert url in reason
        assert "--url" in hint
    else:
        assert command[-1] in reason
        assert f"ursula create {command[-1]}\n" in hint


class Stranger(BaseHTTPRequestHandler):
    """A web server that is not ours."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("content-length", "0")
        self.end_headers()

    do_HEAD = do_POST = do_GET

    def log_message(self, format: str, *arguments: object) -> None:
        """It logs nothing."""


def test_attributes_that_are_not_stored_are_warned_about(shell: Shell, client: Client, bucket: str) -> None:
    client.stream(f"{bucket}/s").create("text/plain")
    result = shell.run("attrs", "set", f"{bucket}/s", json.dumps({"title": "t", "tags": 1, "a,\x1b[1m": 2}))
    assert result.stderr == "ursula: warning: these attributes are not stored: tags, a,\\x1b[1m\n"
    assert result.stdout == ""
    assert shell.run("attrs", "set", f"{bucket}/s", '{"title": "t"}').stderr == ""
    result = shell.run("create", f"{bucket}/new", "--attrs", '{"titel": "t"}')
    assert result.stdout == f"created stream {bucket}/new\n"
    assert result.stderr == "ursula: warning: these attributes are not stored: titel\n"


def test_a_bucket_with_one_stream_has_one_stream(shell: Shell, client: Client, bucket: str) -> None:
    client.stream(f"{bucket}/s").create("text/plain")
    assert "it has 1 stream " in shell.complaint("delete", bucket)
    client.stream(f"{bucket}/t").create("text/plain")
    assert "it has 2 streams " in shell.complaint("delete", bucket)


def test_a_count_of_one_is_followed_by_one_thing() -> None:
    assert [counted(number, "stream") for number in (0, 1, 2)] == ["0 streams", "1 stream", "2 streams"]
