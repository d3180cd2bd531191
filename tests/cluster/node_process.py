"""A node's member as a process of its own, to be killed at any moment; a file stands for the store."""

import asyncio
import contextlib
import logging
import sys
from pathlib import Path

import msgspec
import uvloop

from ursula.cluster.member.etcd_folder import EtcdFolder
from ursula.cluster.member.etcd_program import find_program
from ursula.cluster.member.member import Member
from ursula.cluster.member.member_settings import MemberSettings


def is_first(claim: Path, attempt: str) -> bool:
    """Whether this attempt was the first to write the file, which appears with its content or not at all."""
    written = claim.with_name(attempt)
    written.write_text(attempt)
    with contextlib.suppress(FileExistsError):
        claim.hardlink_to(written)
    return claim.read_text() == attempt


async def run(settings: MemberSettings, program: str, folder: Path, claim: Path) -> None:
    async def may_begin(attempt: str) -> bool:
        return is_first(claim, attempt)

    member = Member(settings, find_program(program), EtcdFolder(folder), None, may_begin)
    running = asyncio.create_task(member.run())
    print("runs", flush=True)
    while not member.is_voter and not running.done():
        await asyncio.sleep(0.02)
    print("votes", flush=True)
    await running


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(
            run(
                msgspec.json.decode(sys.argv[1], type=MemberSettings),
                *(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])),
            )
        )
