"""`ursula` as a client, as a person at a shell and a pipe see it."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client.screen import lines_left, run_on_terminal
from tests.server import Server
from typer.testing import CliRunner, Result

from ursula.cli import app
from ursula.client import Client

JSON = "application/json"
STREAM_COMMANDS = ["create", "append", "read", "tail", "head", "close", "delete", "undelete"]
STREAM_COMMANDS += ["attrs", "snapshot"]


class Shell:
    """Runs commands against a server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *arguments: str, typed: bytes | str = b"", expect: int = 0) -> str:
        """What a command prints."""
        return self.run(*arguments, typed=typed, expect=expect).stdout

    def complaint(self, *arguments: str, typed: bytes | str = b"", expect: int = 1) -> str:
        """What a command that fails says."""
        result = self.run(*arguments, typed=typed, expect=expect)
        return result.stderr

    def run(self, *arguments: str, typed: bytes | str = b"", expect: int = 0) -> Result:
        runner = CliRunner(env={"STREAM_URL": self.url, "COLUMNS": "200", "TERM": "dumb"})
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
        """Of a command as a process of its own."""
        return {**os.environ, "STREAM_URL": self.url, "TERM": "xterm"}


@pytest.fixture
def shell(server: Server) -> Shell:
    return Shell(server.url)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """What looks at the same streams from the side."""
    with Client(server.url) as running:
        yield running


def test_a_stream_is_made_written_read_and_deleted(shell: Shell, name: str) -> None:
    assert shell("create", name, "-t", "text/plain") == f"created stream {name}\n"
    assert shell("create", name, "-t", "text/plain") == f"stream {name} exists\n"
    offset = shell("append", name, "hello, ").strip()
    shell("append", name, typed="world\n")
    assert shell("read", name) == "hello, world\n"
    assert shell("read", name, "--offset", offset) == "world\n"
    assert shell("close", name) == f"closed stream {name}\n"
    assert "takes nothing more" in shell.complaint("append", name, "x")
    assert shell("delete", name) == f"deleted stream {name}\n"
    assert "ursula create" in shell.complaint("read", name)


def test_a_bucket_is_made_with_its_stream_and_said_to_be(shell: Shell, name: str) -> None:
    bucket = name.replace("/", "-")
    result = shell.run("create", f"{bucket}/one")
    assert result.stderr == f"ursula: created bucket {bucket}\n"
    assert result.stdout == f"created stream {bucket}/one\n"
    assert shell("create", bucket) == f"bucket {bucket} exists\n"
    assert "ursula ls" in shell.complaint("delete", bucket)
    shell("delete", f"{bucket}/one")
    assert shell("delete", bucket) == f"deleted bucket {bucket}\n"
    assert shell("create", bucket) == f"created bucket {bucket}\n"


def test_a_stream_can_be_named_in_several_ways(shell: Shell, server: Server, name: str) -> None:
    shell("create", f"/v1/stream/{name}/deep/er", "-t", "text/plain")
    shell("append", f"{name}/deep/er", "x")
    elsewhere = Shell("http://127.0.0.1:9")
    assert elsewhere("read", f"{server.url}/v1/stream/{name}/deep/er") == "x"
    shell("create", f"{name} ä", "-t", "text/plain")
    shell("append", f"{name} ä", "y")
    assert elsewhere("read", f"{server.url}/{name}%20%C3%A4") == "y"
    assert "write bucket/stream" in shell.complaint("read", "nothing", expect=2)


def test_create_passes_on_what_is_asked_for(shell: Shell, client: Client, name: str) -> None:
    shell("create", name, "-t", JSON, "--ttl", "90", "--attrs", '{"title": "T"}')
    shell("append", name, "[1, 2]")
    assert client.stream(name).head().ttl_seconds == 90
    assert json.loads(shell("attrs", "get", name)) == {"title": "T"}
    shell("create", f"{name}-fork", "--fork-of", name)
    assert shell("read", f"{name}-fork") == "1\n2\n"
    shell("create", f"{name}-closed", "--closed", "--expires-at", "2100-01-01T00:00:00Z")
    info = client.stream(f"{name}-closed").head()
    assert (info.closed, info.expires_at) == (True, "2100-01-01T00:00:00Z")
    assert "ursula head" in shell.complaint("create", name, "-t", "text/plain")
    assert "not JSON" in shell.complaint("create", name, "--attrs", "x", expect=2)


def test_json_values_are_printed_as_they_were_sent_one_on_each_line(shell: Shell, name: str) -> None:
    shell("create", name, "-t", JSON)
    shell("append", name, '[1.0, {"b": 1, "a":\n 12345678901234567890123}, "x, ]"]')
    expected = '1.0\n{"b": 1, "a":  12345678901234567890123}\n"x, ]"\n'
    assert shell("read", name) == expected
    assert shell("tail", name) == expected
    assert shell("tail", name, "--records", "1") == '"x, ]"\n'
    assert shell("tail", name, "--offset", "-1") == expected
    assert "--records" in shell.complaint("tail", name, "--bytes", "3", expect=2)


def test_bytes_are_printed_as_they_are(shell: Shell, name: str) -> None:
    data = bytes(range(256)) * 10
    shell("create", name)
    shell("append", name, typed=data)
    assert shell.run("read", name).stdout_bytes == data
    assert shell.run("tail", name).stdout_bytes == data[-1024:]
    assert shell.run("tail", name, "-c", "3").stdout_bytes == data[-3:]
    assert shell.run("tail", name, "-c", "99999").stdout_bytes == data
    assert "--bytes" in shell.complaint("tail", name, "-n", "3", expect=2)


def test_lines_are_appended_one_by_one(shell: Shell, client: Client, name: str, tmp_path: Path) -> None:
    shell("create", name, "-t", JSON)
    lines = tmp_path / "lines"
    lines.write_text("".join(f"[{number}]\n" for number in range(700)) + "\n  \nnull")
    offset = shell("append", name, "--file", str(lines), "--lines").strip()
    assert client.stream(name).head().next_offset == offset
    assert client.stream(name).head().record_next == 701
    assert shell("tail", name, "-n", "2") == "[699]\nnull\n"
    text = f"{name}-text"
    shell("create", text, "-t", "text/plain")
    shell("append", text, "--lines", typed="one\n\ntwo")
    messages = list(client.stream(text).bootstrap())[1:]
    assert [message.value for message in messages] == [b"one\n", b"\n", b"two"]  # type: ignore[union-attr]


def test_a_line_that_is_not_json_is_named_and_what_came_before_it_is_stored(
    shell: Shell, client: Client, name: str
) -> None:
    shell("create", name, "-t", JSON)
    said = shell.complaint("append", name, "--lines", typed="1\n2\nthree\n4\n")
    assert "only the first 2 lines of the input got stored" in said
    assert "line 3 is not JSON" in said
    assert client.stream(name).read().values() == [1, 2]


def test_a_large_input_goes_in_pieces(shell: Shell, client: Client, name: str, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(1 << 20) * 18)
    shell("create", name)
    shell("append", name, "--file", str(large), "--close")
    info = client.stream(name).head()
    assert (int(info.next_offset), info.closed) == (18 << 20, True)
    assert b"".join(chunk.data for chunk in client.stream(name).read_all()) == large.read_bytes()
    shell("create", f"{name}-json", "-t", JSON)
    assert "--lines" in shell.complaint("append", f"{name}-json", "--file", str(large))


def test_an_empty_input_is_no_append_but_may_close(shell: Shell, client: Client, name: str) -> None:
    shell("create", name)
    assert "empty" in shell.complaint("append", name, typed="")
    assert "empty" in shell.complaint("append", name, "--lines", typed="")
    shell("append", name, "--close", typed="")
    assert client.stream(name).head().closed


def test_head_is_for_people_and_for_programs(shell: Shell, name: str) -> None:
    shell("create", name, "-t", "text/plain")
    shell("append", name, "12345")
    text = shell("head", name)
    assert "content type    text/plain\n" in text
    assert "closed          no\n" in text
    fields = json.loads(shell("head", name, "--json"))
    assert fields["next_offset"] == "00000000000000000005"
    assert fields["closed"] is False


def test_streams_and_buckets_are_listed(shell: Shell, name: str) -> None:
    bucket = name.replace("/", "-")
    for stream in ("a1", "a2", "b"):
        shell("create", f"{bucket}/{stream}", "-t", "text/plain")
    assert shell("ls", bucket) == "a1\na2\nb\n"
    assert shell("ls", bucket, "--prefix", "a") == "a1\na2\n"
    assert shell("ls", bucket, "-l").splitlines()[0] == "a1\topen\t00000000000000000000\ttext/plain"
    rows = [json.loads(line) for line in shell("ls", bucket, "--json").splitlines()]
    assert [row["stream_id"] for row in rows] == ["a1", "a2", "b"]
    assert bucket in shell("ls").splitlines()
    assert f"{bucket}\t3" in shell("ls", "-l").splitlines()
    buckets = [json.loads(line) for line in shell("ls", "--json").splitlines()]
    assert {"bucket_id": bucket, "streams": 3} in buckets
    assert "ursula create missing-bucket" in shell.complaint("ls", "missing-bucket")
    assert "not a bucket" in shell.complaint("ls", name, expect=2)


def test_attributes_are_set_and_cleared(shell: Shell, name: str) -> None:
    shell("create", name)
    shell("attrs", "set", name, '{"title": "Grüße"}')
    assert "Grüße" in shell("attrs", "get", name)
    shell("attrs", "clear", name)
    assert json.loads(shell("attrs", "get", name)) == {}
    assert "not JSON" in shell.complaint("attrs", "set", name, "{", expect=2)


def test_snapshots_are_published_and_read(shell: Shell, name: str, tmp_path: Path) -> None:
    shell("create", name)
    offset = shell("append", name, "one").strip()
    assert "snapshot publish" in shell.complaint("snapshot", "read", name)
    assert shell("snapshot", "publish", name, "-o", offset, "--keep", typed="state").startswith(offset)
    assert shell("snapshot", "read", name) == shell("snapshot", "read", name, "-o", offset) == "state"
    assert shell("read", name) == "one"
    file, saved = tmp_path / "file", tmp_path / "saved"
    file.write_text("newer")
    offset = shell("append", name, "two").strip()
    shell("snapshot", "publish", name, "-o", offset, "--file", str(file))
    assert shell("snapshot", "read", name, "--output", str(saved)) == ""
    assert saved.read_text() == "newer"
    assert shell("read", name) == ""


def test_the_feed_is_printed_line_by_line(shell: Shell, name: str) -> None:
    bucket = name.replace("/", "-")
    shell("create", f"{bucket}/s", "-t", JSON)
    shell("append", f"{bucket}/s", "[1, 2]")
    rows = [json.loads(line) for line in shell("feed", bucket).splitlines()]
    assert [(row["kind"], row.get("value")) for row in rows] == [
        ("create", None),
        ("append", 1),
        ("append", 2),
    ]
    assert len(shell("feed", bucket, "--offset", rows[0]["position"]).splitlines()) == 2
    assert shell("feed", bucket, "-o", "now") == ""


def test_a_server_that_is_not_there_is_told_with_what_to_do(name: str) -> None:
    said = Shell("http://127.0.0.1:9").complaint("read", name)
    assert said.count("\n") == 1
    assert "http://127.0.0.1:9" in said
    assert "ursula serve" in said
    assert "--url" in said
    assert "http://" in Shell("localhost").complaint("read", name, expect=2)


def test_the_authorization_header_is_sent(shell: Shell, proxy: object, name: str) -> None:
    from tests.client.proxy import Proxy

    assert isinstance(proxy, Proxy)
    Shell(proxy.url)("create", name, "--auth", "Bearer abc")
    assert proxy.seen[-1]["authorization"] == "Bearer abc"


@pytest.mark.parametrize("content_type", [JSON, "text/plain"])
def test_follow_prints_what_comes_until_the_stream_is_closed(
    shell: Shell, client: Client, name: str, content_type: str
) -> None:
    stream = client.stream(name)
    stream.create(content_type, body="1")
    with shell.spawn("tail", "-f", name) as follower:
        assert follower.stdout is not None
        assert os.read(follower.stdout.fileno(), 10).strip() == b"1"
        stream.append("2\n")
        assert os.read(follower.stdout.fileno(), 10) == b"2\n"
        stream.close()
        assert follower.communicate(timeout=60) == (b"", b"")
        assert follower.returncode == 0


def test_follow_ends_with_130_on_ctrl_c_and_says_nothing(shell: Shell, client: Client, name: str) -> None:
    client.stream(name).create("text/plain", body="x")
    with (
        shell.spawn("feed", name.split("/", maxsplit=1)[0], "-f") as feed,
        shell.spawn("tail", "-f", name) as tail,
    ):
        for process in (feed, tail):
            assert process.stdout is not None
            assert os.read(process.stdout.fileno(), 1)
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=60)[1] == b""
            assert process.returncode == 130


def test_a_reader_that_has_seen_enough_is_no_error(shell: Shell, client: Client, name: str) -> None:
    client.stream(name).create("text/plain", body="line\n" * 500_000)
    with shell.spawn("read", name) as reading:
        assert reading.stdout is not None
        assert reading.stdout.readline() == b"line\n"
        reading.stdout.close()
        assert reading.stderr is not None
        assert reading.stderr.read() == b""
        assert reading.wait(60) == 0


def test_a_pipe_goes_in_and_another_comes_out(shell: Shell, client: Client, name: str) -> None:
    client.stream(name).create()
    data = os.urandom(1 << 20) * 9
    with shell.spawn("append", name) as appending:
        out, said = appending.communicate(data, timeout=60)
    assert (int(out), said) == (len(data), b"")
    with shell.spawn("read", name) as reading:
        assert reading.communicate(timeout=60) == (data, b"")


def test_progress_is_shown_on_a_terminal_only(shell: Shell, client: Client, name: str) -> None:
    client.stream(name).create()
    ours, theirs = pty.openpty()
    with shell.spawn("append", name, stderr=theirs) as appending:
        os.close(theirs)
        out, _ = appending.communicate(b"x" * (20 << 20), timeout=60)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:
            pass  # a terminal whose other end is closed
    os.close(ours)
    assert int(out) == 20 << 20
    assert b"MiB" in shown


def test_the_progress_bar_is_gone_when_an_append_is_done(
    shell: Shell, client: Client, name: str, tmp_path: Path
) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(20 << 20))
    client.stream(name).create()
    code, written = run_on_terminal("append", name, "--file", str(large), environment=shell.environment)
    assert code == 0
    assert "MiB" in written
    assert lines_left(written) == [f"{20 << 20:020}"]


def test_the_progress_bar_is_gone_when_an_append_fails(
    shell: Shell, client: Client, name: str, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b'"%b"\n' % (b"x" * (1 << 18)) * 48 + b"two\n")
    client.stream(name).create(JSON)
    code, written = run_on_terminal(
        "append", name, "--lines", "--file", str(lines), environment=shell.environment
    )
    assert code == 1
    assert "MiB" in written
    stored, reason = lines_left(written)
    assert stored == "ursula: only the first 48 lines of the input got stored"
    assert "is not JSON" in reason


def test_a_deleted_stream_is_brought_back(shell: Shell, client: Client, name: str) -> None:
    client.stream(name).create("text/plain", body="first")
    first = client.stream(name).head().incarnation
    shell("delete", name)
    assert shell("undelete", name) == f"stream {name} is back, up to {5:020}\n"
    assert shell("read", name) == "first"
    complaint = shell.complaint("undelete", name)
    assert "stream_exists" in complaint
    assert "the stream that has the name now" in complaint
    shell("delete", name)
    client.stream(name).create("text/plain", body="second")
    shell("delete", name)
    found = json.loads(shell("undelete", name, "--incarnation", first, "--json"))
    assert (found["incarnation"], found["closed"]) == (first, False)
    assert shell("read", name) == "first"
    complaint = shell.complaint("undelete", f"{name}-never")
    assert "stream_not_found" in complaint
    assert "cold.keep_replaced" in complaint
    assert "write bucket/stream" in shell.complaint("undelete", "nothing", expect=2)


def test_the_server_is_told_to_flush(shell: Shell, client: Client, name: str) -> None:
    client.stream(name).create("text/plain", body="x")
    position = int(shell("flush").removeprefix("group 0 is stored up to "))
    assert position > 0
    (group,) = json.loads(shell("flush", "--json"))["groups"]
    assert group["group"] == 0
    assert group["position"] >= position
    assert "ursula serve" in Shell("http://127.0.0.1:9").complaint("flush")


def test_the_help_groups_the_commands(shell: Shell) -> None:
    text = shell("--help")
    server, streams, buckets = (text.index(f"─ {panel} ─") for panel in ("Server", "Streams", "Buckets"))
    for command in ("serve", "flush", "config"):
        assert server < text.index(f"│ {command} ") < streams
    for command in STREAM_COMMANDS:
        assert streams < text.index(f"│ {command} ") < buckets
    for command in ("ls", "feed"):
        assert buckets < text.index(f"│ {command} ")


COMMANDS = ["create", "append", "read", "tail", "head", "close", "delete", "undelete", "ls", "feed", "flush"]
COMMANDS += ["attrs get", "attrs set", "attrs clear", "snapshot publish", "snapshot read"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples_and_names_the_server(shell: Shell, command: str) -> None:
    text = shell(*command.split(), "--help")
    assert f" ursula {command}" in text.partition("Examples")[2]
    assert "STREAM_URL" in text
    assert "STREAM_AUTH" in text


def test_whatever_json_the_server_takes_is_printed(shell: Shell, client: Client, name: str) -> None:
    digits, deep = "7" * 5000, "[" * 900 + "]" * 900
    client.stream(name).create(JSON, body=f"[{digits},{deep}]", closed=True)
    assert shell("read", name) == f"{digits}\n{deep}\n"
    assert shell("tail", "-f", name, "--offset", "-1") == f"{digits}\n{deep}\n"
    assert shell("tail", name, "-n", "2") == f"{digits}\n{deep}\n"
    assert f'"value":{digits}' in shell("feed", name.partition("/")[0])
