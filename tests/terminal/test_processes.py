"""Commands as processes of their own: pipes, Ctrl-C, progress on a terminal."""

import os
import pty
import signal
from pathlib import Path

import pytest
from tests.client.conftest import wait_for_a_follower
from tests.conftest import StartServer
from tests.terminal.screen import lines_left, run_on_terminal
from tests.terminal.shell import Shell

from ursula.client import Client

JSON = "application/json"


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


@pytest.mark.parametrize("arguments", [("tail", "-f", "demo/s"), ("feed", "-f", "demo")], ids=" ".join)
def test_follow_ends_with_130_on_ctrl_c_and_says_nothing(
    start_server: StartServer, arguments: tuple[str, ...]
) -> None:
    server = start_server()
    with Client(server.url) as client:
        client.bucket("demo").create()
        client.stream("demo/s").create("text/plain", body="x")
    with Shell(server.url).spawn(*arguments) as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 1)
        wait_for_a_follower(server)
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
    assert stored == "ursula: stored only the first 48 lines of the input"
    assert "is not JSON" in reason
