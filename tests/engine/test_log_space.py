"""A log that is running out of space: clients wait until it is trimmed, and nothing hinders that."""

from pathlib import Path

import pytest
from tests.engine.driving import append, create
from tests.engine.several_nodes import cluster_of

from ursula.engine.failures import Unavailable
from ursula.model.outcomes import Appended

pytestmark = pytest.mark.anyio


async def test_a_log_without_space_accepts_a_flush_and_nothing_from_clients(tmp_path: Path) -> None:
    async with cluster_of(1, tmp_path) as cluster:
        node = cluster.nodes[0]
        await node.group.propose_and_wait(create())
        await node.group.propose_and_wait(append(b"before"))
        log = node.group.log
        log.space_problem = "it is full"  # type: ignore[misc]
        assert await node.group.propose_and_wait(append(b"meanwhile")) == Unavailable("it is full")
        assert not node.group.append_fast(append(b"meanwhile"), lambda _outcome: None, 9)
        assert node.log_problem == "it is full"
        assert isinstance(await node.flush(), list), "a flush is how the log becomes shorter"
        log.space_problem = None  # type: ignore[misc]
        assert isinstance(await node.group.propose_and_wait(append(b"after")), Appended)
        assert node.log_problem is None
