"""How members come to be, and that no acknowledged write is lost while they come and go."""

import errno
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cluster.members import BenchNode, bench, keys, put, remove, running, stays_silent, writing
from tests.etcd import free_ports

from ursula.cluster.failures import ClusterRefused, EtcdFailed
from ursula.cluster.member.etcd_folder import EtcdFolder, MemberNote
from ursula.cluster.member.member_list import ChangeRefused, add_learner, list_members
from ursula.cluster.member.raft_status import RaftStatus, raft_status, transfer_leader
from ursula.etcd.client import EtcdClient

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def shorter_questions(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A bootstrap node asks the others for a moment only; the log has everything."""
    monkeypatch.setattr("ursula.cluster.member.member.ASK_SECONDS", 0.5)
    caplog.set_level(logging.INFO)


@pytest.fixture
def unpromoted() -> Iterator[pytest.MonkeyPatch]:
    """No learner is promoted until this is undone."""

    async def refuse(client: EtcdClient, number: int) -> None:
        raise ChangeRefused("not now")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ursula.cluster.member.member.promote_learner", refuse)
        yield patch


async def names(node: BenchNode) -> list[str]:
    """The voters, with * at those who only learn."""
    listed = await list_members(node.member.client, 30)
    return sorted(member.name + "*" * member.is_learner for member in listed.members)


async def test_one_member_becomes_three_under_constant_writes(tmp_path: Path) -> None:
    began = time.monotonic()
    async with bench(tmp_path, 3, secret="a secret that is long enough") as cluster:
        first, *others = cluster.nodes
        await first.start()
        await first.until_voter()
        print(f"the first member votes after {time.monotonic() - began:.1f} s")
        async with writing(first.member.client) as writer:
            for node in others:
                await node.start()
            for node in others:
                await node.until_voter()
            print(f"three members vote after {time.monotonic() - began:.1f} s")
        print(f"{len(writer.acknowledged)} writes, the longest took {writer.longest_seconds:.2f} s")
        assert len(writer.acknowledged) > 10
        assert await names(others[1]) == ["node-1", "node-2", "node-3"]


async def test_a_wiped_bootstrap_node_joins_like_any_other(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        first, second, third = cluster.nodes
        async with writing(second.member.client):
            before = first.member.number
            await first.kill()
            first.wipe()
            await first.start()
            await first.until_voter()
            assert first.member.number != before
        assert await names(third) == ["node-1", "node-2", "node-3"]


async def test_a_wiped_voter_that_reaches_nobody_does_not_begin_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, 2) as cluster:
        first, second = cluster.nodes
        await put(first.member.client, "acknowledged")
        for node in (first, second):
            await node.kill()
        first.wipe()
        await first.start()
        assert await stays_silent(first, 4)
        await second.start()  # without the first, it has no majority: nothing may be answered
        assert await stays_silent(first, 2)
        assert await stays_silent(second, 0.1)
        assert not list(first.folder.glob("data/member/wal/*"))
        assert "node-1 does not begin a cluster: one was begun before" in caplog.text
        assert f"no majority of it answers ({second.settings.address})" in caplog.text


async def test_a_member_that_was_added_but_never_ran_is_replaced(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        first = cluster.nodes[0]
        second = cluster.add_node()
        await add_learner(first.member.client, f"http://127.0.0.1:{second.settings.peer_port}")
        await second.start()
        await second.until_voter()
        assert await names(first) == ["node-1", "node-2"]


async def test_a_learner_that_was_killed_is_promoted_later(
    tmp_path: Path, unpromoted: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 1) as cluster:
        second = cluster.add_node()
        await second.start()
        await second.until(lambda: second.member.number is not None)
        number = second.member.number
        await second.kill()
        assert await names(cluster.nodes[0]) in (["*", "node-1"], ["node-1", "node-2*"])
        unpromoted.undo()
        await second.start()
        await second.until_voter()
        assert second.member.number == number


async def test_a_folder_without_a_log_counts_as_empty(tmp_path: Path, unpromoted: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, 1) as cluster:
        second = cluster.add_node()
        await second.start()
        await second.until(lambda: second.member.number is not None)
        number = second.member.number
        await second.kill()
        for path in second.folder.glob("data/member/wal/*"):
            path.unlink()
        unpromoted.undo()
        await second.start()
        await second.until_voter()
        assert second.member.number != number
        assert await names(cluster.nodes[0]) == ["node-1", "node-2"]


async def test_a_second_learner_waits_for_the_first(
    tmp_path: Path, unpromoted: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, 1) as cluster:
        second, third = cluster.add_node(), cluster.add_node()
        await second.start()
        await second.until(lambda: second.member.number is not None)
        await third.start()
        await third.until(lambda: "node-3 waits to be added to the cluster: " in caplog.text)
        await third.until(lambda: "is joining, and only one can join at a time" in caplog.text)
        unpromoted.undo()
        await second.until_voter()
        await third.until_voter()
        assert await names(third) == ["node-1", "node-2", "node-3"]


async def test_a_learner_that_never_answers_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ursula.cluster.member.new_member.DEAD_LEARNER_SECONDS", 0.5)
    async with running(tmp_path, 1) as cluster:
        (port,) = free_ports(1)
        await add_learner(cluster.nodes[0].member.client, f"http://127.0.0.1:{port}")
        second = cluster.add_node()
        await second.start()
        await second.until_voter()
        assert await names(second) == ["node-1", "node-2"]


async def test_a_running_member_that_is_removed_joins_anew(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as cluster:
        first, second = cluster.nodes
        number = second.member.number
        await remove(first.member.client, number)
        await second.until(lambda: second.member.number not in (number, None))
        await second.until_voter()
        await put(second.member.client, "key")
        assert await names(first) == ["node-1", "node-2"]
        assert len(list(second.folder.glob("removed-*/member/wal"))) == 1


async def test_a_member_that_was_removed_while_it_was_down_joins_anew(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        first, _, third = cluster.nodes
        number = third.member.number
        await third.stop()
        await remove(first.member.client, number)
        async with writing(first.member.client):
            await third.start()
            await third.until_voter()
        assert third.member.number != number
        assert await names(first) == ["node-1", "node-2", "node-3"]


async def test_a_second_node_of_the_same_id_does_not_take_the_place_of_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, 2) as cluster:
        double = cluster.add_node()
        double.settings = replace(double.settings, node_id=2)
        await double.start()
        await double.until(lambda: "is running already; every node needs a server.node_id" in caplog.text)
        assert await names(cluster.nodes[0]) == ["node-1", "node-2"]


async def test_an_etcd_that_is_killed_alone_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        node = cluster.nodes[0]
        async with writing(node.member.client):
            node.kill_etcd()
            await put(node.member.client, "after")
        assert "after" in await keys(node.member.client)
        assert node.member.problem is None


async def test_a_folder_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        node = cluster.nodes[0]
        await node.stop()
        folder = EtcdFolder(node.folder)
        note = folder.member
        folder.note_member(MemberNote(note.cluster + 1, note.member))
        await node.start()
        with pytest.raises(ClusterRefused, match="another etcd cluster"):
            await node.until_voter()
        assert folder.has_member


@pytest.mark.parametrize("name", ["member.json", "beginning.json"])
def test_notes_of_a_newer_version_are_refused(tmp_path: Path, name: str) -> None:
    folder = EtcdFolder(tmp_path)
    folder.begin()
    folder.note_member(MemberNote(1, 2))
    file = tmp_path / name
    file.write_text(file.read_text().replace('"format":1', '"format":2'))
    with pytest.raises(ClusterRefused, match=f"{name} has format 2, .* start a newer version"):
        folder.begin() if name == "beginning.json" else folder.member


async def test_a_full_disk_is_an_error_with_the_folder_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_folder: EtcdFolder) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(EtcdFolder, "begin", fail)
    async with bench(tmp_path, 1) as cluster:
        await cluster.nodes[0].start()
        with pytest.raises(EtcdFailed, match=r"cannot use the folder .*: No space left on device"):
            await cluster.nodes[0].until_voter()


async def test_an_interrupted_beginning_leaves_nothing_behind_if_another_one_began(
    tmp_path: Path,
) -> None:
    """What a first attempt has written must never be taken for a member."""
    async with bench(tmp_path, 1) as cluster:
        node = cluster.nodes[0]
        folder = EtcdFolder(node.folder)
        folder.begin()
        (folder.data / "member" / "wal").mkdir(parents=True)
        (folder.data / "member" / "wal" / "0.wal").touch()
        cluster.claim.attempt = "another"
        await node.start()
        await node.until(lambda: not folder.is_beginning)
        assert not folder.has_member
        assert await stays_silent(node, 1)


async def test_data_of_an_unknown_member_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        node = cluster.nodes[0]
        await node.stop()
        (node.folder / "member.json").unlink()
        await node.start()
        with pytest.raises(ClusterRefused, match=r"member\.json cannot be read"):
            await node.until_voter()


async def shown(client: EtcdClient) -> RaftStatus:
    status = await raft_status(client)
    assert status is not None
    return status


async def test_the_lead_can_be_handed_over_and_the_status_shows_it(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as cluster:
        client = cluster.nodes[0].member.client
        for node in (*cluster.nodes, *cluster.nodes):
            assert node.member.number is not None
            await transfer_leader(client, node.member.number)
            assert (await shown(client)).leader == node.member.number
        status = await shown(client)
        assert status.term > 1
        assert [one.raft_index is not None for one in status.voters] == [True, True]
        assert status.learners == []
        await cluster.nodes[1].kill()
        status = await shown(client)
        assert {one.member.name: one.raft_index is not None for one in status.voters} == {
            **{"node-1": True, "node-2": False}
        }
