"""Starts that must not succeed: one clear line, an exit code, and nothing changed."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import StartServer
from tests.http.raw import ask
from tests.server import Server, ServerExited

pytestmark = pytest.mark.one_node("starts single servers in unusual ways")


def refused(server: Server) -> str:
    """The one line of a server that does not start."""
    with pytest.raises(ServerExited) as exited:
        server.start()
    assert exited.value.exit_code == 1
    lines = exited.value.stderr.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("ursula: ")
    return lines[0]


def test_two_servers_on_one_port(start_server: StartServer, tmp_path: Path, path: str) -> None:
    first = start_server()
    ask(first, "PUT", path, body=b"mine")
    line = refused(Server(tmp_path / "data", listen=f"127.0.0.1:{first.port}"))
    assert f"127.0.0.1:{first.port}" in line
    assert "--listen" in line
    assert ask(first, "GET", path).body == b"mine"


def test_two_servers_on_one_folder(start_server: StartServer, tmp_path: Path, path: str) -> None:
    folder = tmp_path / "data"
    first = start_server(data_dir=folder)
    line = refused(Server(folder))
    assert str(folder) in line
    assert "in use" in line
    assert ask(first, "PUT", path, body=b"mine").status == 201
    first.kill()
    with Server(folder) as second:
        assert ask(second, "GET", path).body == b"mine"


def test_an_address_that_is_not_ours(tmp_path: Path) -> None:
    line = refused(Server(tmp_path / "data", listen="192.0.2.1:0"))
    assert "192.0.2.1:0" in line


def test_a_name_that_is_no_address(tmp_path: Path) -> None:
    line = refused(Server(tmp_path / "data", listen="no.such.host.invalid:0"))
    assert "no.such.host.invalid:0" in line


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    assert str(tmp_path / "data") in refused(Server(tmp_path / "data"))
    assert str(tmp_path / "data" / "deeper") in refused(Server(tmp_path / "data" / "deeper", cwd=tmp_path))
    assert (tmp_path / "data").read_text() == "not a folder"


@pytest.mark.parametrize("existing", [False, True])
def test_a_folder_that_is_not_writable(tmp_path: Path, existing: bool) -> None:
    folder = tmp_path / "data"
    if existing:
        Server(folder).start().stop()
    else:
        folder.mkdir()
    modes = {file: file.stat().st_mode for file in (folder, *folder.rglob("*"))}
    for file, mode in modes.items():
        file.chmod(mode & ~0o222)
    try:
        line = refused(Server(folder, prefix=powerless()))
    finally:
        for file, mode in modes.items():
            file.chmod(mode)
    assert str(folder) in line
    assert "Permission denied" in line
    with Server(folder) as server:
        assert ask(server, "GET", "/healthz").status == 200


def powerless() -> tuple[str, ...]:
    """How to run a command without root's right to write anywhere."""
    if os.geteuid() != 0:
        return ()
    setpriv = shutil.which("setpriv")
    assert setpriv is not None, "as root this test needs setpriv, from util-linux"
    return (setpriv, "--inh-caps=-all", "--bounding-set=-all")


def test_a_folder_of_a_newer_version(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    Server(folder).start().stop()
    identity = json.loads((folder / "ursula.json").read_text())
    newer = json.dumps({**identity, "format": 99, "unheard_of": {}})
    (folder / "ursula.json").write_text(newer)
    line = refused(Server(folder))
    assert str(folder) in line
    assert "99" in line
    assert "newer version" in line
    assert (folder / "ursula.json").read_text() == newer


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format":"x"}', '{"format":1}'])
def test_a_folder_whose_identity_is_damaged(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "ursula.json").write_text(text)
    assert "ursula.json" in refused(Server(folder))


def test_a_log_without_its_identity(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "log").mkdir(parents=True)
    assert "ursula.json" in refused(Server(folder))


@pytest.mark.parametrize("name", ["URSULA_TEST_CLOCK", "URSULA_TEST_KEPT_BYTES"])
@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, "only for tests"),
        ({"URSULA_TESTING": "yes"}, "only for tests"),
        ({"URSULA_TESTING": "1"}, "a number of"),
    ],
)
def test_what_only_tests_may_change_is_refused_to_others(
    tmp_path: Path, name: str, environ: dict[str, str], words: str
) -> None:
    (tmp_path / "soon").write_text("soon")
    command = [sys.executable, "-m", "ursula", "serve", "--listen", "127.0.0.1:0"]
    ran = subprocess.run(
        [*command, "--data-dir", str(tmp_path / "data")],
        env={**os.environ, name: str(tmp_path / "soon"), **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"ursula: {name}")
    assert words in line
    assert not (tmp_path / "data").exists()


def test_a_clock_that_can_be_moved_is_warned_of(timed_server: Server) -> None:
    (warning,) = [entry for entry in timed_server.log if "clock" in entry["message"]]
    assert warning["level"] == "warning"
    assert "URSULA_TEST_CLOCK" in warning["message"]


def test_the_start_line_tells_where_and_how_durable(start_server: StartServer) -> None:
    server = start_server()
    (line,) = [entry for entry in server.log if "address" in entry]
    assert line["message"] == f"listening on {server.url}"
    assert line["data_dir"] == str(server.data_dir)
    assert "synced" in line["durability"]
    volatile = start_server("--log", "memory")
    (line,) = [entry for entry in volatile.log if "address" in entry]
    assert "memory" in line["durability"]
    assert not volatile.data_dir.exists()


def test_ipv6_is_served(tmp_path: Path, path: str) -> None:
    if not socket.has_ipv6:
        return
    with Server(tmp_path / "data", listen="[::1]:0") as server:
        made = ask(server, "PUT", path, body=b"x")
        assert made.status == 201
        assert server.host == "::1"


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_single_node_takes_writes_whatever_write_only_leader_says(
    start_server: StartServer, path: str, value: str
) -> None:
    server = start_server(server__write_only_leader=value)
    assert ask(server, "PUT", path, body=b"mine").status == 201
    assert ask(server, "GET", path).body == b"mine"
    assert server.complaints() == []
