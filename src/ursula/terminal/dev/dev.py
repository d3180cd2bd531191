"""ursula dev."""

import os
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ursula.extras import how_to_install

from ..output import emit_line, fail, say
from .layout import DevNode, DevRefused, lay_out, locked
from .processes import POLL_SECONDS, NodeEnded, NodeProcess, running

NODES = 3
NODES_MAX = 9
READY_SECONDS_MAX = 120.0
NOTICE_SECONDS = 5.0
LINES_SHOWN = 5
ETCD_VARIABLE = "URSULA_CLUSTER__ETCD_PATH"


def dev(
    *,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            min=1,
            max=NODES_MAX,
            metavar="COUNT",
            help=f"How many nodes. [dim]Default: {NODES}, or those in --data-dir[/dim]",
            show_default=False,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="FOLDER",
            help="Keep the cluster in this folder. [dim]Default: a temporary one, removed at the end[/dim]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run a whole cluster on this machine, to try it. Ctrl-C ends it.

    Each node is an `ursula serve` with an etcd of its own; they share a folder
    as their store. The configuration of each node is a file in the folder, so
    you can stop a node and start it again in another terminal.

    This needs the program etcd, on the PATH or named by URSULA_CLUSTER__ETCD_PATH.

    [bold]Examples[/bold]

      ursula dev
      ursula dev --nodes 5 --data-dir ./try
    """
    etcd_path = _find_etcd()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with _folder(data_dir) as folder, locked(folder):
            found = lay_out(folder, nodes, NODES, etcd_path)
            with running(found) as processes:
                _wait_until_ready(processes)
                _introduce(found, is_kept=data_dir is not None)
                _watch(processes)
    except DevRefused as refused:
        fail(str(refused))
    except KeyboardInterrupt:
        say("all nodes have ended")


def _find_etcd() -> str:
    """The etcd program; fails at once, with what to do, instead of in each node."""
    try:
        from ursula.cluster.failures import ClusterRefused
        from ursula.cluster.member.etcd_program import find_program
    except ModuleNotFoundError as error:
        fail(f"a cluster needs {error.name}, which is not installed: {how_to_install('cluster')}")
    try:
        return find_program(os.environ.get(ETCD_VARIABLE, "")).path
    except ClusterRefused as refused:
        fail(str(refused))


def _interrupt(*_: object) -> NoReturn:
    """SIGTERM ends the cluster as Ctrl-C does."""
    raise KeyboardInterrupt


@contextmanager
def _folder(data_dir: Path | None) -> Iterator[Path]:
    if data_dir is not None:
        yield data_dir
        return
    folder = Path(tempfile.mkdtemp(prefix="ursula-dev-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_ready(processes: Sequence[NodeProcess]) -> None:
    """Wait until all nodes are voters, and show how far they have come."""
    give_up_at = time.monotonic() + READY_SECONDS_MAX
    notice_at = 0.0
    waiting = list(processes)
    while waiting:
        try:
            waiting = [process for process in waiting if not process.is_ready]
        except NodeEnded as ended:
            fail(f"{ended}; its last lines: {_last_lines(ended.node)}")
        now = time.monotonic()
        if waiting and now > give_up_at:
            slow = waiting[0].node
            fail(f"node {slow.number} is not ready after {READY_SECONDS_MAX:.0f} s: {_last_lines(slow)}")
        if waiting and now >= notice_at:
            notice_at = now + NOTICE_SECONDS
            say(f"{len(processes) - len(waiting)} of {len(processes)} nodes are ready ...")
        time.sleep(POLL_SECONDS)


def _introduce(nodes: Sequence[DevNode], *, is_kept: bool) -> None:
    """Print where the nodes are, and requests that work."""
    folder = nodes[0].folder.absolute()
    for node in nodes:
        emit_line(f"node {node.number}: {node.url}")
    emit_line(f"folder: {folder}{'' if is_kept else ' (removed at the end)'}")
    first, second, third = (nodes[place % len(nodes)].url for place in range(3))
    text = "-H 'Content-Type: text/plain'"
    emit_line("try:")
    emit_line(f"  curl -X PUT {first}/demo")
    emit_line(f"  curl -X PUT {text} {second}/demo/greetings")
    emit_line(f"  curl -X POST {text} -d hello {third}/demo/greetings")
    emit_line(f"  curl '{first}/demo/greetings?offset=-1'")
    emit_line(f"  curl {second}/cluster/status")
    emit_line("Ctrl-C ends all nodes.")


def _watch(processes: Sequence[NodeProcess]) -> NoReturn:
    """Report each node that ends, until interrupted. The others go on: that is what a cluster is for."""
    ended: set[int] = set()
    while True:
        for process in processes:
            node, code = process.node, process.exit_code
            if code is not None and node.number not in ended:
                ended.add(node.number)
                command = shlex.join(["ursula", "serve", "--config", str(node.config)])
                say(f"{NodeEnded(node, code)}; its log is {node.log}. To start it again: {command}")
        time.sleep(POLL_SECONDS)


def _last_lines(node: DevNode) -> str:
    return " ".join(node.log.read_text(errors="replace").splitlines()[-LINES_SHOWN:])
