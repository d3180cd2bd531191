"""`kill -9` of a node while its member comes to be: the next start completes it, and nothing is lost."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest
from tests.cluster.members import keys, put
from tests.etcd import etcd_path, free_ports

from ursula.cluster.member.member_list import list_members
from ursula.cluster.member.member_settings import MemberSettings
from ursula.etcd.client import EtcdClient

pytestmark = pytest.mark.anyio

KILLS = 6
ROOT = Path(__file__).parents[2]


@contextmanager
def node_process(settings: MemberSettings, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A node that has just begun to have a member; it is killed at the end."""
    arguments = (msgspec.json.encode(settings).decode(), etcd_path(), str(folder / settings.name))
    command = [sys.executable, "-m", "tests.cluster.node_process", *arguments, str(folder / "claim")]
    with (folder / f"{settings.name}.log").open("a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT)
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "runs\n"
            yield process
        finally:
            process.kill()


def until_voter(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "votes\n"


def settings_of(node_id: int, others: tuple[str, ...] = ()) -> MemberSettings:
    client, peer = free_ports(2)
    return MemberSettings(node_id, "test", "127.0.0.1", "127.0.0.1", client, peer, others, node_id == 1)


def kill_at_random_moments(settings: MemberSettings, folder: Path, seconds_max: float) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(KILLS):
        with node_process(settings, folder):
            time.sleep(chance.uniform(0, seconds_max))


async def test_a_beginning_that_is_killed_again_and_again_is_completed(tmp_path: Path) -> None:
    settings = settings_of(1)
    kill_at_random_moments(settings, tmp_path, 0.8)
    with node_process(settings, tmp_path) as process:
        until_voter(process)
        client = EtcdClient([settings.address])
        await put(client, "acknowledged")
    kill_at_random_moments(settings, tmp_path, 0.8)
    with node_process(settings, tmp_path):
        assert await keys(client) == {"acknowledged"}
        await client.close()


async def test_a_join_that_is_killed_again_and_again_is_completed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = settings_of(1)
        until_voter(stack.enter_context(node_process(first, tmp_path)))
        client = EtcdClient([first.address])
        await put(client, "acknowledged")
        second = settings_of(2, (first.address,))
        kill_at_random_moments(second, tmp_path, 0.8)
        until_voter(stack.enter_context(node_process(second, tmp_path)))
        assert await keys(client) == {"acknowledged"}
        listed = await list_members(client, 10)
        assert {member.name: member.is_learner for member in listed.members} == {
            **{"node-1": False, "node-2": False}
        }
        await client.close()
