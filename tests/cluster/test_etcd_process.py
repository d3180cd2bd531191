"""A node's own etcd: it runs while the server runs, and no longer."""

import asyncio
import errno
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.etcd import etcd_path, free_ports
from tests.waiting import wait_for

from ursula.cluster.member.etcd_folder import EtcdFolder
from ursula.cluster.member.etcd_output import EtcdOutput
from ursula.cluster.member.etcd_process import EtcdProcess, EtcdSupervisor
from ursula.cluster.member.etcd_program import find_program
from ursula.cluster.member.member_settings import EtcdCommand, MemberSettings

SECONDS = 30.0

START_AND_SLEEP = """
import asyncio, sys
from ursula.cluster.member.etcd_process import EtcdProcess

async def main():
    process = await EtcdProcess.start(sys.argv[1:])
    print(process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def command_lines(folder: Path) -> EtcdCommand:
    client, peer = free_ports(2)
    settings = MemberSettings(1, "test", "127.0.0.1", "127.0.0.1", client, peer, (), True)
    return EtcdCommand(settings, find_program(etcd_path()), EtcdFolder(folder), None)


def command(folder: Path) -> list[str]:
    lines = command_lines(folder)
    return lines.to_begin("1", lines.settings.client_port)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


def is_etcd(pid: int, path: str = "") -> bool:
    """Whether a process is there and is etcd or another program, not yet or no longer setpriv or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith((path or etcd_path()).encode())
    except OSError:
        return False


async def kill_and_wait(folder: Path) -> None:
    line = command(folder)
    supervisor = EtcdSupervisor(lambda: line)
    running = asyncio.create_task(supervisor.run())
    await until(lambda: supervisor.process is not None and (folder / "data" / "member" / "wal").exists())
    assert supervisor.process is not None
    first = supervisor.process.pid
    os.kill(first, signal.SIGKILL)
    await until(lambda: supervisor.process is not None and supervisor.process.pid != first)
    second = supervisor.process.pid
    await until(lambda: is_etcd(second))
    assert os.getpgid(second) == os.getsid(second) == second != os.getpgid(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not is_etcd(second)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_an_etcd_that_is_killed_is_started_again(
    loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(kill_and_wait(tmp_path / "etcd"))
    assert "starting etcd again in 0.2 s: etcd was killed by signal 9" in caplog.text
    assert stat.S_IMODE((tmp_path / "etcd").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "etcd" / "data").stat().st_mode) == 0o700


def test_etcd_dies_with_its_server() -> None:
    """Here it writes nothing, since writing to a server that is gone would end it too."""
    silent = ["/bin/sleep", "600"]
    line = [sys.executable, "-c", START_AND_SLEEP, *silent]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            pid = int(server.stdout.readline())
            assert wait_for(lambda: is_etcd(pid, silent[0]))
        finally:
            server.kill()
        assert wait_for(lambda: not is_etcd(pid, silent[0]), 20)


@pytest.mark.anyio
async def test_the_last_lines_of_an_etcd_that_cannot_start_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = command(tmp_path / "etcd")
    (port,) = [int(flag.rpartition(":")[2]) for flag in line if flag.startswith("--listen-peer-urls")]
    supervisor = EtcdSupervisor(lambda: line)
    with socket.create_server(("127.0.0.1", port)):
        running = asyncio.create_task(supervisor.run())
        await until(lambda: supervisor.problem is not None)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert supervisor.problem is not None
    assert "address already in use" in supervisor.problem
    assert supervisor.problem in caplog.text


@pytest.mark.anyio
async def test_an_etcd_that_is_started_again_without_its_data_fails_and_begins_nothing(
    tmp_path: Path,
) -> None:
    process = await EtcdProcess.start(command_lines(tmp_path / "etcd").to_restart())
    async with asyncio.timeout(SECONDS):
        failure = await process.wait()
    assert "cannot fetch cluster info" in str(failure)
    assert not EtcdFolder(tmp_path / "etcd").has_member


@pytest.mark.anyio
async def test_a_process_that_ignores_a_polite_request_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ursula.cluster.member.etcd_process.STOP_SECONDS_MAX", 0.2)
    process = await EtcdProcess.start(
        ["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]
    )
    await until(lambda: "ready" in process._output.last_lines())
    await process.stop()
    assert "killed by signal 9" in str(await process.wait())


@pytest.mark.anyio
async def test_an_etcd_whose_server_was_killed_while_it_started_does_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.getpid", lambda: 1)  # the server's, which is no longer the parent
    monkeypatch.setattr("threading.get_native_id", lambda: 1)
    process = await EtcdProcess.start(["/bin/echo", "it runs"])
    await process.wait()
    assert "it runs" not in process._output.last_lines()


@pytest.mark.anyio
async def test_an_etcd_that_could_not_be_started_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, start = command(tmp_path / "etcd"), asyncio.create_subprocess_exec
    problems: list[str | None] = []

    async def start_later(*arguments: Any, **settings: Any) -> asyncio.subprocess.Process:
        problems.append(supervisor.problem)
        if len(problems) == 1:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return await start(*arguments, **settings)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_later)
    supervisor = EtcdSupervisor(lambda: line)
    running = asyncio.create_task(supervisor.run())
    await until((tmp_path / "etcd" / "data" / "member" / "wal").exists)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert problems == [None, "etcd could not be started: Resource temporarily unavailable"]


@pytest.mark.anyio
async def test_etcd_is_only_started_from_the_main_thread() -> None:
    failures: list[BaseException] = []

    def start() -> None:
        try:
            asyncio.run(EtcdProcess.start(["/bin/true"]))
        except RuntimeError as error:
            failures.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert "main thread" in str(failures[0])


@pytest.mark.anyio
async def test_etcd_does_not_read_flags_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCD_NAME", "another")
    monkeypatch.setenv("ETCD_UNSUPPORTED_ARCH", "arm64")
    process = await EtcdProcess.start(["/usr/bin/env"])
    words = str(await process.wait())
    assert "ETCD_NAME" not in words


def test_lines_of_etcd_become_lines_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    output = EtcdOutput()
    warning = b'{"level":"warn","ts":"2026","caller":"a.go:1","msg":"slow","took":"1s"}\n'
    output.feed(warning[:20])
    output.feed(warning[20:] + warning + b'{"level":"fatal","msg":"gone","error":"disk"}\npanic: all is lost')
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.INFO, "etcd: slow took=1s"),
        (logging.ERROR, "etcd: gone error=disk"),
    ]
    assert output.last_lines().splitlines() == [
        *("slow took=1s", "slow took=1s", "gone error=disk", "panic: all is lost")
    ]
