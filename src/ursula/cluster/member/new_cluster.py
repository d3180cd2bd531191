"""The first member of a cluster, which begins it alone.

Beginning is the one dangerous step: a member that begins where a cluster has been loses what that cluster
had promised. So etcd is told to begin only here, and at first only this machine can reach it, at a port that
is not announced. Once it has written its data, it is stopped, and from then on it is only ever restarted.
If a step is interrupted, nothing has been acknowledged, so it is repeated from scratch.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable

import grpc
from aetcd import rpc

from ..failures import EtcdFailed
from .etcd_folder import MemberNote
from .etcd_process import EtcdProcess
from .member_settings import EtcdCommand

BEGIN_SECONDS_MAX = 60.0
_LOOK_SECONDS = 0.1

MayBegin = Callable[[str], Awaitable[bool]]
"""Whether the cluster may begin here. It is asked in the name of an attempt, and says yes to one attempt
ever, however often that one asks."""

logger = logging.getLogger(__name__)


async def begin_cluster(command: EtcdCommand, may_begin: MayBegin) -> bool:
    """Make this node's folder that of the only member of a new cluster; False if it must not begin."""
    folder, settings = command.folder, command.settings
    attempt = folder.begin()
    if not await may_begin(attempt):
        folder.abandon_beginning()
        return False
    logger.info("%s begins the cluster %s, as its only member", settings.name, settings.cluster_name)
    folder.clear()
    port = _free_port()
    process = await EtcdProcess.start(command.to_begin(attempt, port))
    try:
        note = await _first_answer(process, _channel(command, port))
    finally:
        await process.stop()
    folder.note_member(note)
    folder.end_beginning()
    return True


async def _first_answer(process: EtcdProcess, channel: grpc.aio.Channel) -> MemberNote:
    """Wait until the member has answered a read, for which it must have written its own membership."""
    reads = rpc.KVStub(channel)
    give_up_at = time.monotonic() + BEGIN_SECONDS_MAX
    async with channel:
        while process.is_running:
            try:
                header = (await reads.Range(rpc.RangeRequest(key=b"\0"), timeout=1.0)).header
            except grpc.aio.AioRpcError as error:
                if time.monotonic() > give_up_at:
                    raise EtcdFailed(f"the new etcd does not answer: {error.details()}") from None
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                return MemberNote(header.cluster_id, header.member_id)
    raise await process.wait()


def _channel(command: EtcdCommand, port: int) -> grpc.aio.Channel:
    address = f"127.0.0.1:{port}"
    retry = [("grpc.max_reconnect_backoff_ms", 300), ("grpc.initial_reconnect_backoff_ms", 100)]
    if command.tls is None:
        return grpc.aio.insecure_channel(address, options=retry)
    name = ("grpc.ssl_target_name_override", command.settings.advertise_host)
    return grpc.aio.secure_channel(address, command.tls.credentials(), options=[*retry, name])


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
