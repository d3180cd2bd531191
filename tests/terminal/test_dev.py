"""`ursula dev`: a whole cluster with one command, which ends with it."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.etcd import etcd_path, is_free
from tests.waiting import wait_for

SECONDS_MAX = 120.0
COMMAND = (sys.executable, "-W", "error", "-m", "ursula", "dev")


def environment(etcd: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("URSULA_")}
    return kept | {"URSULA_CLUSTER__ETCD_PATH": etcd}


class Dev:
    """A running `ursula dev`, and what it printed."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("Ctrl-C"):
                break
        assert self.lines, "it ended before the nodes were ready"
        self.urls = [found[1] for line in self.lines if (found := re.fullmatch(r"node \d: (\S+)", line))]
        (self.folder,) = [Path(line.split()[1]) for line in self.lines if line.startswith("folder: ")]

    @property
    def requests(self) -> list[list[str]]:
        return [shlex.split(line) for line in self.lines if line.startswith("  curl ")]

    @property
    def nodes(self) -> list[int]:
        """The processes of the nodes, in the order of their numbers."""
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True)
        return sorted(map(int, found.stdout.split()))

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def dev(*arguments: str, etcd: str | None = None) -> Iterator[Dev]:
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env=environment(etcd_path() if etcd is None else etcd),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Dev(process)
    finally:
        process.kill()
        process.communicate()


def refusal(*arguments: str, etcd: str | None = None) -> str:
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=environment(etcd_path() if etcd is None else etcd),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 1, done.stdout
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr


def has_ended(url: str) -> bool:
    """Whether nothing listens at the port of a node, nor at those of its etcd."""
    port = int(url.rpartition(":")[2])
    return all(map(is_free, range(port, port + 3)))


def test_three_nodes_take_the_requests_that_are_printed_and_end_with_one_interrupt() -> None:
    with dev() as running:
        assert len(running.urls) == 3
        assert len(running.requests) == 5
        answers = [
            subprocess.run([*request, "-sS"], capture_output=True, text=True, timeout=60)
            for request in running.requests
        ]
        assert [answer.stderr for answer in answers] == [""] * 5
        assert answers[3].stdout == "hello"
        assert len(json.loads(answers[4].stdout)["membership"]["voters"]) == 3
        assert running.folder.exists()
        assert running.end() == 0
        assert all(map(has_ended, running.urls))
        assert not running.folder.exists()


def test_a_kept_cluster_is_started_again_with_its_data(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    with dev("--data-dir", str(folder), "--nodes", "2") as running:
        assert httpx.put(f"{running.urls[0]}/kept").status_code == 201
        assert running.end(signal.SIGTERM) == 0
    assert "the cluster in" in refusal("--data-dir", str(folder), "--nodes", "3")
    with socket.create_server(("127.0.0.1", int(running.urls[1].rpartition(":")[2]) + 2)):
        assert "is in use, and the cluster in" in refusal("--data-dir", str(folder))
    with dev("--data-dir", str(folder)) as again:
        assert again.urls == running.urls
        assert httpx.get(f"{again.urls[1]}/kept/streams", timeout=20).status_code == 200
        assert "another `ursula dev` uses the folder" in refusal("--data-dir", str(folder))


def test_a_node_that_is_killed_is_reported_with_the_command_that_starts_it_again(tmp_path: Path) -> None:
    with dev("--data-dir", str(tmp_path / "kept")) as running:
        os.kill(running.nodes[1], signal.SIGKILL)
        assert running.process.stderr is not None
        said = next(line for line in running.process.stderr if "killed" in line)
        assert said.startswith("ursula: node 2 was killed by signal 9")
        assert httpx.put(f"{running.urls[0]}/meanwhile", timeout=30).status_code == 201
        command = shlex.split(said.partition("To start it again: ")[2])
        assert command[:3] == ["ursula", "serve", "--config"]
        node = subprocess.Popen(
            [sys.executable, "-m", *command],
            env=environment(etcd_path()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert wait_for(lambda: is_ready(running.urls[1]), SECONDS_MAX)
            assert httpx.get(f"{running.urls[1]}/meanwhile/streams", timeout=20).status_code == 200
        finally:
            node.terminate()
            node.wait(30)


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz/cluster", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_the_nodes_die_with_a_command_that_is_killed(tmp_path: Path) -> None:
    with dev("--nodes", "1", "--data-dir", str(tmp_path / "kept")) as running:
        running.process.kill()
        assert wait_for(lambda: has_ended(running.urls[0]), SECONDS_MAX)


@pytest.mark.parametrize("etcd", ["/no/such/program", "/bin/true"])
def test_without_etcd_it_says_what_to_install(etcd: str) -> None:
    assert "cluster.etcd_path" in refusal(etcd=etcd)


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    assert "has other files (letter): choose an empty or new one" in refusal("--data-dir", str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letter"]
