"""How long writes are held when a node of three fails or is restarted, on the nodes that stay."""

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..client import OCTETS, create_streams, get
from ..failure import Failed
from ..results import OURS as NAME
from ..results import Row
from ..rounds import Plan
from ..servers import Kind, Server
from ..three_nodes import THREE_OURS, Node, three_nodes

WRITERS = 4
BEFORE_SECONDS = 1.0
AFTER_SECONDS = 6.0
ROUNDS_MAX = 5


class Held:
    """The longest that a write has waited, and how many were not acknowledged."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.failed = 0


def measure(plan: Plan) -> list[Row]:
    """The longest wait of a write for each kind of failure of the leader's node, the worst case."""
    row = Row("cluster-failure", "three nodes: the longest wait of a write, when the leader's node ...")
    killed = row.figure("is killed", "s")
    etcd_killed = row.figure("loses its etcd", "s")
    restarted = row.figure("is restarted", "s")
    failed = row.figure("writes not acknowledged", drawn=False)

    def once(kind: Kind) -> None:
        with three_nodes(kind) as (nodes, servers):
            create_streams(servers[0], WRITERS)

            def longest(happens: Callable[[Node], None], *, others: bool) -> float:
                leader = _leader(servers[0])
                used = [
                    server for node, server in zip(nodes, servers, strict=True) if node is not nodes[leader]
                ]
                with _writing(used if others else servers) as held:
                    time.sleep(BEFORE_SECONDS)
                    happens(nodes[leader])
                    time.sleep(AFTER_SECONDS)
                for place, node in enumerate(nodes):
                    servers[place] = node.wait()
                failed.add(NAME, held.failed)
                return held.seconds

            etcd_killed.add(NAME, longest(lambda node: node.kill_etcd(), others=False))
            restarted.add(NAME, longest(_restart, others=True))
            killed.add(NAME, longest(_kill, others=True))

    plan.at_most(ROUNDS_MAX).interleave(row, (THREE_OURS,), once)
    row.value_at_most(killed, 4)
    row.value_at_most(etcd_killed, 4)
    row.value_at_most(restarted, 0.5)
    row.never(failed)
    return [row]


def _restart(node: Node) -> None:
    node.process.stop()
    node.start()


def _kill(node: Node) -> None:
    node.process.kill()
    node.start()


def _leader(server: Server) -> int:
    """The place of the node whose member leads."""
    leader = get(server, "/cluster/status").json()["leader_id"]
    if leader is None:
        raise Failed("no node leads")
    return int(leader) - 1


@contextmanager
def _writing(servers: list[Server]) -> Iterator[Held]:
    """Append by all of these servers until the block ends."""
    held, stopping = Held(), threading.Event()

    def write(number: int) -> None:
        server = servers[number % len(servers)]
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        while not stopping.is_set():
            began_at = time.perf_counter()
            try:
                connection.request("POST", server.path(f"s{number}"), b"x" * 256, OCTETS)
                answer = connection.getresponse()
                answer.read()
                held.failed += answer.status != 204
            except (OSError, http.client.HTTPException):
                held.failed += 1
                connection.close()
            held.seconds = max(held.seconds, time.perf_counter() - began_at)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield held
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
