"""Agreement: replicas that applied the same log have the same hash, and one that differs is noticed."""

import asyncio
from pathlib import Path

import pytest
from tests.engine.driving import append, create, running, until
from tests.engine.several_nodes import Cluster, Member, cluster_of, content_of

from ursula.config import ColdSettings
from ursula.engine import node as nodes
from ursula.engine.agreement import SAMPLE_ENTRIES, Disagreement, Sample, find_disagreement
from ursula.engine.failures import NotCurrent, OutcomeUnknown, Unavailable
from ursula.log.interface import COUNTER_MASK
from ursula.log.memory import MemoryLog
from ursula.model.commands import FlushBegin, PlainAppend
from ursula.model.outcomes import Appended

pytestmark = pytest.mark.anyio

OFTEN = ColdSettings(cache_bytes=0, flush_interval=0.02, flush_size=4096, keep_replaced=1.0)

A, B, C = (Sample(256, 9, hash) for hash in (b"a", b"b", b"c"))
EARLIER, LATER = Sample(100, 5, b"x"), Sample(512, 20, b"y")


@pytest.fixture(autouse=True)
def is_compared_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "AGREEMENT_SECONDS", 0.01)


@pytest.mark.parametrize(
    ("others", "majority_differs"),
    [
        ([], None),  # alone
        ([[A], [A]], None),
        ([[EARLIER], [LATER]], None),  # nothing to compare
        ([[]], None),  # it has only begun to start
        ([[A], [B]], None),  # the other one is wrong
        ([[B], [B]], True),
        ([[B], [B], [A]], False),  # two against two
        ([[B], [B], [A], [A]], None),
        ([[B], [C]], False),  # all differ
        ([[B]], False),
        ([[B], [LATER]], None),  # the third has no such sample any more; a later one will decide
        ([[B], [EARLIER]], None),  # the third will decide
        ([[B], [B], [EARLIER]], None),  # it may be two against two
        ([[B], [B], [EARLIER], [A]], None),
        ([[B], [B], [B], [EARLIER]], True),  # whatever it says
        ([[B], [C], [C._replace(hash=b"d")], [EARLIER]], False),  # none can have a majority any more
        ([[A._replace(position=8)], [A._replace(position=8)]], True),  # another position
        ([[EARLIER, B, LATER], [B, B]], True),  # one vote a node
        ([[B, B], [A]], None),
    ],
)
def test_a_majority_decides(others: list[list[Sample]], majority_differs: bool | None) -> None:
    samples = {f"n{number}": one for number, one in enumerate(others)}
    expected = None if majority_differs is None else Disagreement(A, majority_differs)
    assert find_disagreement([A], samples) == expected


def test_an_older_sample_counts_if_the_newest_cannot_be_compared() -> None:
    others = {"n1": [B, LATER._replace(entry_count=511)], "n2": [B, LATER._replace(entry_count=513)]}
    assert find_disagreement([EARLIER, A, LATER], others) == Disagreement(A, majority_differs=True)


async def test_replicas_have_the_same_hash_however_they_came_to_their_state(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path, OFTEN) as cluster:
        await cluster.nodes[0].group.propose_and_wait(create())
        for round_number in range(4):
            cluster.memory.joins = round_number % 2 == 1
            await write(cluster, 90)
            large = await cluster.nodes[1].group.propose_and_wait(append(b"x" * 200_000))
            assert isinstance(large, Appended)
            await cluster.nodes[0].flush()
            if 2 in cluster.nodes:
                await cluster.kill(2)
            await cluster.start(2)
        await write(cluster, 10)
        await cluster.in_step()
        samples = [node.group.samples() for node in cluster.nodes.values()]
        assert samples[0][-1] == samples[1][-1] == samples[2][-1]
        assert samples[0][-1].entry_count == cluster.memory.known_tail & COUNTER_MASK
        assert any(one.entry_count % SAMPLE_ENTRIES == 0 for one in samples[0]), (
            "samples were taken on the way"
        )
        assert samples[0] == samples[1]
        assert cluster.disagreements == {}


async def test_a_single_node_counts_its_entries_and_hashes_nothing() -> None:
    async with running(MemoryLog()) as group:
        await group.propose_and_wait(create())
        assert (group.state.entry_count, group.state.entries_hash, group.samples()) == (1, b"", [])


async def test_a_node_that_contradicts_the_others_serves_nothing(tmp_path: Path) -> None:
    async with cluster_of(3, tmp_path) as cluster:
        await cluster.nodes[0].group.propose_and_wait(create())
        await cluster.in_step()
        wrong = cluster.nodes[2]
        ended: list[None] = []
        wrong.when_restarted.append(lambda: ended.append(None))
        corrupt(cluster, wrong)
        await write(cluster, 5)
        await until(lambda: bool(cluster.disagreements))
        assert list(cluster.disagreements) == [2]
        assert "is not that of most other nodes" in cluster.disagreements[2]
        assert "start it again" in cluster.disagreements[2]
        assert wrong.statuses()[0].disagreement == cluster.disagreements[2]
        assert ended, "live reads have ended"
        assert [node.role.is_given_up for node in cluster.nodes.values()] == [False, False, True]
        tail = cluster.memory.known_tail
        for command in (append(b"no"), FlushBegin(1)):
            assert isinstance(await wrong.group.propose_and_wait(command), Unavailable)
        assert not wrong.group.append_fast(PlainAppend("b", "s", (b"no",), "text/plain"), print, 2)
        with pytest.raises(NotCurrent):
            await wrong.current()
        assert cluster.memory.known_tail == tail, "it has proposed nothing"
        del cluster.nodes[2]
        await write(cluster, SAMPLE_ENTRIES)
        assert cluster.disagreements == {}, "the others go on"
        cluster.nodes[2] = wrong
        await cluster.in_step()  # it still applies the log, which could not be trimmed otherwise
        await cluster.kill(2)
        started = await cluster.start(2)
        await write(cluster, 5)
        await cluster.in_step()
        assert len({await content_of(node, "s") for node in cluster.nodes.values()}) == 1
        assert started.group.samples()[-1] == cluster.nodes[0].group.samples()[-1]
        assert cluster.disagreements == {}


async def test_two_nodes_that_disagree_both_stop(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        await cluster.nodes[0].group.propose_and_wait(create())
        await cluster.in_step()
        corrupt(cluster, cluster.nodes[1])
        await cluster.nodes[0].group.propose_and_wait(append(b"x"))
        await until(lambda: len(cluster.disagreements) == 2)
        assert all("no majority agrees" in reason for reason in cluster.disagreements.values())
        for node in cluster.nodes.values():
            assert isinstance(await node.group.propose_and_wait(append(b"no")), Unavailable)
        await cluster.kill(1)
        await asyncio.sleep(0.1)
        assert list(cluster.disagreements) == [0], "that it is alone now does not make it right"


async def test_what_waits_on_a_node_that_is_contradicted_is_answered(tmp_path: Path) -> None:
    async with cluster_of(1, tmp_path) as cluster:
        node = cluster.nodes[0]
        await node.group.propose_and_wait(create())
        node.connection.is_silent = True
        tail = cluster.memory.known_tail
        appending = asyncio.create_task(node.group.propose_and_wait(append(b"x")))
        await until(lambda: cluster.memory.known_tail > tail)
        reading = asyncio.create_task(node.group.current())
        await until(lambda: bool(node.group._watermarks.waiting))
        node.group.contradict("it is a test")
        assert await appending == OutcomeUnknown("it is a test")
        with pytest.raises(NotCurrent):
            await reading
        node.connection.is_silent = False
        await cluster.in_step()


def corrupt(cluster: Cluster, node: Member) -> None:
    """Let a node believe that the stream has another tail."""
    cluster.is_corrupted = True
    stream = node.group.state.find("b", "s")
    assert stream is not None
    stream.messages.add((b"never written",))


async def write(cluster: Cluster, count: int) -> None:
    """Append through those nodes that serve, each as an entry of its own if the log does not join them."""
    serving = [node for node in cluster.nodes.values() if node.recovered and node.disagreement is None]
    for number in range(0, count, len(serving)):
        appends = (node.group.propose_and_wait(append(b"%d," % number)) for node in serving)
        outcomes = await asyncio.gather(*appends)
        assert all(isinstance(outcome, Appended | OutcomeUnknown | Unavailable) for outcome in outcomes)
