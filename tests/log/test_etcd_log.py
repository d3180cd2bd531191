"""The log on etcd while its members fail, and when etcd is not what it was."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest
from aetcd import rpc
from tests.log.etcd_members import EtcdMember, etcd_members
from tests.log.etcd_nodes import BASE, Nodes, leader_of, payloads_of

from ursula.etcd import client as client_module
from ursula.etcd.client import EtcdClient, EtcdEndpoint, connection_closed
from ursula.log.etcd.follower import EtcdFollower
from ursula.log.etcd.log import EtcdLog
from ursula.log.interface import (
    AppendRefused,
    AppendRetryable,
    AppendUnknown,
    EntriesTrimmed,
    LogDamaged,
    LogUnavailable,
)

pytestmark = pytest.mark.anyio

QUOTA_BYTES = 16 << 20


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
async def one_loop() -> None:
    """One loop for all tests: gRPC's thread still reports to a loop that has just been closed."""


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EtcdMember]]:
    """Three members for all tests of this file; each test leaves all of them running."""
    with etcd_members(3, tmp_path_factory.mktemp("etcd")) as members:
        yield members


@pytest.fixture
async def nodes(members: list[EtcdMember]) -> AsyncIterator[Nodes]:
    """Nodes on a log of their own."""
    async with AsyncExitStack() as stack:
        yield Nodes(members, stack)


def member_at(members: list[EtcdMember], address: str) -> EtcdMember:
    return next(member for member in members if member.address == address)


def is_write(request: rpc.TxnRequest) -> bool:
    return any(operation.HasField("request_put") for operation in request.success)


class LosesAnswers:
    """Calls of a member whose transactions arrive, and whose answers do not."""

    def __init__(
        self,
        real: EtcdEndpoint,
        losses: int = 0,
        *,
        forgets: bool = False,
        rejects: bool = False,
        only_writes: bool = False,
    ) -> None:
        """After a lost answer, it `forgets` all data, or `rejects` what it is asked next."""
        self._real = real
        self._losses = losses
        self._forgets, self._rejects, self._only_writes = forgets, rejects, only_writes
        self.lost = 0
        self.kv = self
        self.address, self.watch, self.lease = real.address, real.watch, real.lease
        self.channel, self.status = real.channel, real.status

    def __getattr__(self, name: str) -> object:
        return getattr(self._real.kv, name)

    async def ask(self, method: Any, request: Any, seconds: float) -> Any:
        return await method(request, timeout=seconds)

    async def Txn(self, request: rpc.TxnRequest, timeout: float) -> rpc.TxnResponse:
        if self._rejects and self.lost:
            self._rejects = False
            nothing = grpc.aio.Metadata()
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            raise grpc.aio.AioRpcError(code, nothing, nothing, "etcdserver: too many requests")
        answer = await self._real.kv.Txn(request, timeout=timeout)
        if self.lost < self._losses and (is_write(request) or not self._only_writes):
            self.lost += 1
            if self._forgets:
                await self._real.kv.DeleteRange(rpc.DeleteRangeRequest(key=b"\0", range_end=b"\0"))
            raise connection_closed()
        return answer


class SlowLink(LosesAnswers):
    """A member from which only a few values arrive in time."""

    def __init__(self, real: EtcdEndpoint, values_max: int) -> None:
        super().__init__(real)
        self._values_max = values_max

    async def Txn(self, request: rpc.TxnRequest, timeout: float) -> rpc.TxnResponse:
        if len(request.success) > self._values_max:
            raise connection_closed()
        return await self._real.kv.Txn(request, timeout=timeout)


class ReadsNoValues(LosesAnswers):
    """A member that refuses to read the values of entries."""

    async def Txn(self, request: rpc.TxnRequest, timeout: float) -> rpc.TxnResponse:
        if b"/e/" in request.success[0].request_range.key:
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, nothing, nothing, "too busy")
        return await self._real.kv.Txn(request, timeout=timeout)


class CompactsMeanwhile(LosesAnswers):
    """A member whose history is compacted after keys or values were found, before they are read."""

    def __init__(self, real: EtcdEndpoint, what: str) -> None:
        super().__init__(real)
        self._what = what
        self.has_compacted = False

    async def Range(self, request: rpc.RangeRequest, timeout: float) -> rpc.RangeResponse:
        if request.revision and self._what == "keys":
            await self._compact()
        return await self._real.kv.Range(request, timeout=timeout)

    async def Txn(self, request: rpc.TxnRequest, timeout: float) -> rpc.TxnResponse:
        if request.success[0].request_range.revision and self._what == "values":
            await self._compact()
        return await self._real.kv.Txn(request, timeout=timeout)

    async def _compact(self) -> None:
        if not self.has_compacted:
            self.has_compacted = True
            answer = await self._real.kv.Put(rpc.PutRequest(key=b"later", value=b""))
            await self._real.kv.Compact(rpc.CompactionRequest(revision=answer.header.revision))


class LateAnswers(LosesAnswers):
    """A member that answers a read of the tail some time after it has read."""

    def __init__(self, real: EtcdEndpoint) -> None:
        super().__init__(real)
        self.reads = 0
        self.is_read, self.may_answer = asyncio.Event(), asyncio.Event()

    async def Txn(self, request: rpc.TxnRequest, timeout: float) -> rpc.TxnResponse:
        answer = await self._real.kv.Txn(request, timeout=timeout)
        if is_write(request) or not request.success:
            return answer
        self.reads += 1
        self.is_read.set()
        await self.may_answer.wait()
        return answer


class Refuses(LosesAnswers):
    """A member that refuses transactions, as etcd does before it writes anything."""

    def __init__(self, real: EtcdEndpoint, code: grpc.StatusCode) -> None:
        super().__init__(real)
        self._code = code

    async def Txn(self, request: rpc.TxnRequest, timeout: float) -> rpc.TxnResponse:
        if not is_write(request):
            return await self._real.kv.Txn(request, timeout=timeout)
        raise grpc.aio.AioRpcError(self._code, grpc.aio.Metadata(), grpc.aio.Metadata(), "it is a test")


class SaysItLeads(LosesAnswers):
    """A member that was the leader in an earlier term, and does not know yet that another one is."""

    def __init__(self, real: EtcdEndpoint) -> None:
        super().__init__(real)
        self.status = self._outdated_status

    async def _outdated_status(self) -> Any:
        answer = await self._real.status()
        answer.leader = answer.header.member_id
        answer.raftTerm -= 1
        return answer


class Fails(LosesAnswers):
    """A member whose answers end in an error that nobody expects."""

    async def Txn(self, request: rpc.TxnRequest, timeout: float) -> rpc.TxnResponse:
        answer = await self._real.kv.Txn(request, timeout=timeout)
        if is_write(request):
            raise ValueError("it is a test")
        return answer


async def test_an_entry_whose_answer_is_lost_is_written_once_and_found(nodes: Nodes) -> None:
    log = await nodes.log()
    leader = await leader_of(log)
    log._client.current = LosesAnswers(leader, losses=1)  # type: ignore[assignment]
    position = await log.append(b"one")
    following = await log.append(b"two")
    entries = log.follow(BASE)
    assert await anext(entries) == (position, b"one")
    assert await anext(entries) == (following, b"two")
    assert await log.tail() == following


async def test_a_transaction_that_is_repeated_for_long_is_reported_once(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ursula.log.etcd.proposer.STUCK_SECONDS", 0.0)
    log = await nodes.log()
    lost = LosesAnswers(await leader_of(log), losses=3)
    log._client.endpoints = [lost]  # type: ignore[list-item]
    log._client.current = lost  # type: ignore[assignment]
    await log.append(b"one")
    reports = [line for line in caplog.messages if "does not take a transaction" in line]
    assert reports == ["etcd does not take a transaction, which is repeated: the connection was closed"]


async def test_a_rejection_after_an_unknown_outcome_is_not_taken_for_not_written(nodes: Nodes) -> None:
    log = await nodes.log()
    leader = await leader_of(log)
    busy = LosesAnswers(leader, losses=1, rejects=True)
    log._client.endpoints = [busy]  # type: ignore[list-item]
    log._client.current = busy  # type: ignore[assignment]
    position = await log.append(b"one")
    assert await anext(log.follow(BASE)) == (position, b"one")


async def test_after_a_failure_the_next_member_is_asked(nodes: Nodes) -> None:
    log = await nodes.log()
    lost = LosesAnswers(await leader_of(log), losses=100)
    log._client.current = lost  # type: ignore[assignment]
    await log.append(b"one")
    assert lost.lost == 1


async def test_a_log_says_long_before_etcd_has_no_space_that_it_must_be_trimmed(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await nodes.log()
    await leader_of(log)
    assert log.space_problem is None
    monkeypatch.setattr("ursula.log.etcd.proposer.DATABASE_BYTES_MAX", 1000)
    assert log.space_problem == "etcd holds 0 MiB, and must be trimmed first: see the keeper's log"
    await log.append(b"one")  # what is needed for a flush, after which the log is trimmed
    assert await payloads_of(log, 1) == [b"one"]


async def test_a_trim_whose_answer_is_lost_is_completed(nodes: Nodes) -> None:
    log = await nodes.log(kept_bytes=0)
    positions = [await log.append(b"%d" % number) for number in range(5)]
    leader = await leader_of(log)
    log._client.current = LosesAnswers(leader, losses=1, only_writes=True)  # type: ignore[assignment]
    await log.trim(positions[3])
    keys = log._keys
    request = rpc.RangeRequest(key=keys.entries, range_end=keys.entries_end, count_only=True)
    assert (await leader.kv.Range(request)).count == 1


async def test_a_late_attempt_is_not_written_again(nodes: Nodes) -> None:
    log = await nodes.log()
    leader = await leader_of(log)
    proposer = log._logs.proposer
    await log.append(b"one")
    late = proposer._transaction(1, [])
    assert not (await leader.kv.Txn(late)).succeeded
    await log.append(b"two")
    assert await payloads_of(log, 2) == [b"one", b"two"]


async def test_a_node_of_an_earlier_generation_is_fenced(nodes: Nodes) -> None:
    old = await nodes.log()
    await old.append(b"before")
    key = old._logs.keys.generation
    await (await leader_of(old)).kv.Put(rpc.PutRequest(key=key, value=b"2"))
    with pytest.raises(AppendRetryable, match="in generation 2, and this node in 1"):
        await old.append(b"after")
    with pytest.raises(AppendRetryable, match="was restored"):
        await old.append(b"and again")
    assert await old._logs.find_generation() == 2
    with pytest.raises(LogUnavailable, match="was restored"):
        await old.tail()  # a read that seems certain would not have what the new generation acknowledges


CERTAIN = ("PERMISSION_DENIED", "UNAUTHENTICATED", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNIMPLEMENTED")


@pytest.mark.parametrize("code", CERTAIN)
async def test_a_transaction_that_etcd_never_accepts_is_not_written(nodes: Nodes, code: str) -> None:
    log = await nodes.log()
    leader = await leader_of(log)
    refusing = Refuses(leader, grpc.StatusCode[code])
    log._client.endpoints = [refusing]  # type: ignore[list-item]
    log._client.current = refusing  # type: ignore[assignment]
    async with asyncio.timeout(30):
        with pytest.raises(AppendRetryable, match="etcd accepts nothing: it is a test"):
            await log.append(b"one")
        log._client.current = leader
        position = await log.append(b"two")
    assert await anext(log.follow(BASE)) == (position, b"two")


async def test_many_groups_write_at_once(nodes: Nodes) -> None:
    """etcd limits how many keys a transaction may have."""
    first = await nodes.log()
    logs = [first, *(EtcdLog(first._logs, number) for number in range(1, 64))]
    async with asyncio.timeout(60):
        await asyncio.gather(*(log.append(b"%d" % number) for number, log in enumerate(logs)))
    for number, log in enumerate(logs):
        assert (await anext(log.follow(BASE))).payload == b"%d" % number
        await log.close()


async def test_a_proposer_that_etcd_has_forgotten_stops(nodes: Nodes) -> None:
    log = await nodes.log()
    await log.append(b"one")
    await log.append(b"two")
    proposer = log._logs.proposer
    await (await leader_of(log)).kv.DeleteRange(rpc.DeleteRangeRequest(key=proposer._own_key))
    with pytest.raises(AppendUnknown, match="has 0 transactions of this node, and should have 2 or 3"):
        await log.append(b"three")
    with pytest.raises(AppendRetryable, match="not the etcd that it was"):
        await log.append(b"four")


async def test_an_etcd_without_the_log_leaves_the_outcome_unknown(nodes: Nodes) -> None:
    """An earlier attempt may have been written to the etcd that was there before."""
    log = await nodes.log()
    leader = await leader_of(log)
    log._client.current = LosesAnswers(leader, losses=1, forgets=True)  # type: ignore[assignment]
    first, second = log.append(b"lost"), log.append(b"never sent")
    with pytest.raises(AppendUnknown, match="has no log, and 0 transactions of this node"):
        await first
    with pytest.raises(AppendRetryable, match="not the etcd that it was"):
        await second


async def test_a_proposer_that_fails_gives_its_number_to_no_other_entry(nodes: Nodes) -> None:
    log = await nodes.log()
    log._client.current = Fails(await leader_of(log))  # type: ignore[assignment]
    with pytest.raises(AppendUnknown, match="the log stopped"):
        await log.append(b"one")
    with pytest.raises(AppendRetryable, match="the log stopped"):
        await log.append(b"two")
    assert await log.tail() > BASE


async def test_a_leader_whose_address_has_gone_is_not_used(nodes: Nodes, members: list[EtcdMember]) -> None:
    leader_address = (await leader_of(await nodes.log())).address
    client = EtcdClient([member.address for member in members])
    leader = next(one for one in client.endpoints if one.address == leader_address)
    finding = asyncio.create_task(client.find_leader())
    while not leader.calls.in_flight:
        await asyncio.sleep(0)
    await client.set_addresses([member.address for member in members if member.address != leader_address])
    assert await finding is None
    assert client.current in client.endpoints
    with pytest.raises(grpc.aio.AioRpcError, match="the connection was closed"):
        await leader.ask(leader.kv.Range, rpc.RangeRequest(key=b"\0"), 1.0)
    await client.close()


async def test_a_leader_that_was_replaced_and_does_not_know_it_is_not_used(nodes: Nodes) -> None:
    log = await nodes.log()
    leader, client = await leader_of(log), log._client
    other = next(one for one in client.endpoints if one is not leader)
    outdated = SaysItLeads(other)
    for endpoints in ([outdated, leader], [leader, outdated]):
        client.endpoints = endpoints  # type: ignore[assignment]
        assert await client.find_leader() is leader
        assert client.current is leader


async def test_calls_go_to_the_leader(nodes: Nodes) -> None:
    log = await nodes.log()
    leader, client = await leader_of(log), log._client
    entries = log.follow(BASE)
    await log.append(b"one")
    assert (await anext(entries)).payload == b"one"
    client.turn_from(leader)
    assert client.current is not leader
    following = asyncio.create_task(anext(entries))
    async with asyncio.timeout(30):
        while client.current is not leader or entries.member is not leader:
            await asyncio.sleep(0.02)
    await log.append(b"two")
    assert (await following).payload == b"two"


async def test_an_entry_that_is_too_large_is_refused_for_certain(nodes: Nodes) -> None:
    log = await nodes.log()
    with pytest.raises(AppendRefused, match="too large"):
        await log.append(bytes(17 << 20))
    await log.append(b"small")
    assert await payloads_of(log, 1) == [b"small"]


async def test_without_space_every_answer_is_true_and_after_a_defragmentation_the_log_goes_on(
    tmp_path: Path,
) -> None:
    """etcd writes the transaction that exceeds its quota, and answers that it has no space."""
    flags = ("--quota-backend-bytes", str(QUOTA_BYTES))
    with etcd_members(1, tmp_path, flags) as members:
        async with AsyncExitStack() as stack:
            nodes = Nodes(members, stack)
            logs = [await nodes.log(kept_bytes=0) for _ in range(5)]
            leader = await leader_of(logs[0])
            for number in range(12):
                await leader.kv.Put(rpc.PutRequest(key=b"other/%d" % number, value=bytes(QUOTA_BYTES // 16)))
            written: list[bytes] = []

            async def fill(log: EtcdLog, name: int) -> None:
                for number in count():
                    # Small, since etcd notices late how much there is.
                    payload = b"%d-%d " % (name, number) + bytes(20_000)
                    await log.append(payload)
                    written.append(payload)

            async with asyncio.timeout(60):
                filling = (fill(log, name) for name, log in enumerate(logs))
                failures = await asyncio.gather(*filling, return_exceptions=True)
            assert {type(failure) for failure in failures} == {AppendRetryable}
            assert "database space exceeded" in str(failures[0])
            async with asyncio.timeout(60):
                while not (await leader.status()).errors:  # the alarm is raised a little later
                    await asyncio.sleep(0.02)
            with pytest.raises(LogUnavailable, match="database space exceeded"):
                await logs[0].trim(await logs[0].tail())
            deleting = rpc.DeleteRangeRequest(key=b"other/", range_end=b"other0")
            revision = (await leader.kv.DeleteRange(deleting)).header.revision
            await leader.kv.Compact(rpc.CompactionRequest(revision=revision, physical=True))
            await leader.maintenance.Defragment(rpc.DefragmentRequest())
            disarm = rpc.AlarmRequest(
                action=rpc.AlarmRequest.AlarmAction.DEACTIVATE,
                memberID=(await leader.status()).header.member_id,
                alarm=rpc.NOSPACE,
            )
            await leader.maintenance.Alarm(disarm)
            last = 0
            for name, log in enumerate(logs):
                written.append(b"%d again" % name)
                last = await log.append(written[-1])
            found = await payloads_of(logs[0], len(written))
            assert sorted(found) == sorted(written)
            assert await logs[0].tail() == last
            await logs[0].trim(last)
            assert logs[0].first == last


async def test_one_read_of_the_tail_serves_all_that_waited_when_it_began_and_nobody_later(
    nodes: Nodes,
) -> None:
    log = await nodes.log()
    late = LateAnswers(await leader_of(log))
    log._client.endpoints = [late]  # type: ignore[list-item]
    log._client.current = late  # type: ignore[assignment]
    early = asyncio.create_task(log.tail())
    await late.is_read.wait()
    position = await log.append(b"one")
    later = [asyncio.create_task(log.tail()) for _ in range(10)]
    await asyncio.sleep(0)
    late.may_answer.set()
    assert await early == BASE
    assert await asyncio.gather(*later) == [position] * 10
    assert late.reads == 2


async def test_a_follower_stops_when_an_entry_is_missing(nodes: Nodes) -> None:
    log = await nodes.log()
    positions = [await log.append(b"%d" % number) for number in range(5)]
    proposer = log._logs.proposer.name
    leader = await leader_of(log)
    await leader.kv.DeleteRange(rpc.DeleteRangeRequest(key=log._keys.entry(proposer, 3)))
    await log._logs.compact((await leader.status()).header.revision)
    with pytest.raises(LogDamaged, match="the log has 1 entries up to there, and this node has 0"):
        await anext(log.follow(BASE, 0))
    with pytest.raises(LogDamaged):
        await anext(log.follow(positions[1], 2))
    assert await anext(log.follow(positions[2], 3)) == (positions[3], b"3")


async def test_a_node_that_is_not_as_far_as_it_says_is_stopped(nodes: Nodes) -> None:
    log = await nodes.log()
    position = await log.append(b"one")
    watching = log.follow(position, 7)
    await log.append(b"two")
    with pytest.raises(LogDamaged, match="the log has 1 entries up to there, and this node has 7"):
        await anext(watching)
    await log._logs.compact((await (await leader_of(log)).status()).header.revision)
    with pytest.raises(LogDamaged, match="the log has 0 entries up to there, and this node has 7"):
        await anext(log.follow(BASE, 7))


async def test_trimming_only_moves_forward(nodes: Nodes) -> None:
    log, late = await nodes.log(kept_bytes=0), await nodes.log(kept_bytes=0)
    positions = [await log.append(b"%d" % number) for number in range(10)]
    await log.trim(positions[6])
    await late.trim(positions[2])
    assert late.first == log.first == positions[6]
    with pytest.raises(EntriesTrimmed):
        await anext(late.follow(positions[3]))
    assert await payloads_of(late, 3, positions[6]) == [b"7", b"8", b"9"]


async def test_a_node_that_stays_behind_reads_compacted_entries_by_their_keys(nodes: Nodes) -> None:
    log, other = await nodes.log(), await nodes.log()
    total = 200  # more than are read at a time
    behind = other.follow(BASE, 0)
    first = await log.append(b"0")
    assert await anext(behind) == (first, b"0")
    for number in range(1, total):
        await (log if number % 2 else other).append(b"%d" % number)
    await log._logs.compact((await (await leader_of(log)).status()).header.revision)
    behind._drop_watch()
    async with asyncio.timeout(30):
        found = [(await anext(behind)).payload for _ in range(total - 1)]
    assert found == [b"%d" % number for number in range(1, total)]
    await log.append(b"live")
    assert (await anext(behind)).payload == b"live"


async def test_a_log_with_more_entries_than_are_listed_at_once_is_read_and_trimmed(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ursula.log.etcd.entry_pages.KEYS_AT_ONCE", 4)
    logs = [await nodes.log(kept_bytes=0) for _ in range(3)]
    positions = [await logs[number % 3].append(b"%d" % number) for number in range(30)]
    await logs[0]._logs.compact((await (await leader_of(logs[0])).status()).header.revision)
    assert await payloads_of(logs[1], 30) == [b"%d" % number for number in range(30)]
    await logs[0].trim(positions[19])
    keys = logs[0]._keys
    request = rpc.RangeRequest(key=keys.entries, range_end=keys.entries_end)
    left = (await (await leader_of(logs[0])).kv.Range(request)).kvs
    assert sorted(int(entry.value) for entry in left) == list(range(20, 30))
    assert await payloads_of(logs[2], 10, positions[19]) == [b"%d" % number for number in range(20, 30)]


@pytest.mark.parametrize("what", ["keys", "values"])
async def test_a_compaction_while_entries_are_read_begins_the_read_again(nodes: Nodes, what: str) -> None:
    log, reader = await nodes.log(), await nodes.log()
    for number in range(100):
        await log.append(b"%d" % number)
    leader = await leader_of(log)
    await log._logs.compact((await leader.status()).header.revision)
    member = CompactsMeanwhile(leader, what)
    reader._client.endpoints = [member]  # type: ignore[list-item]
    reader._client.current = member  # type: ignore[assignment]
    assert await payloads_of(reader, 100) == [b"%d" % number for number in range(100)]
    assert member.has_compacted


async def test_values_that_do_not_arrive_in_time_are_read_in_smaller_parts(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ursula.log.etcd.follower.READ_SECONDS", 0.2)
    log, reader = await nodes.log(), await nodes.log()
    for number in range(20):
        await log.append(b"%d" % number)
    await log._logs.compact((await (await leader_of(log)).status()).header.revision)
    slow = [SlowLink(endpoint, values_max=3) for endpoint in reader._client.endpoints]
    reader._client.endpoints = slow  # type: ignore[assignment]
    reader._client.current = slow[0]  # type: ignore[assignment]
    assert await payloads_of(reader, 20) == [b"%d" % number for number in range(20)]


async def test_a_watch_that_catches_up_receives_in_fragments_what_is_too_large_for_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "grpc.max_receive_message_length"
    others = [option for option in client_module._OPTIONS if option[0] != name]
    monkeypatch.setattr(client_module, "_OPTIONS", (*others, (name, 2 << 20)))
    with etcd_members(1, tmp_path, ("--max-request-bytes", str(1 << 20))) as members:
        async with AsyncExitStack() as stack:
            log = await Nodes(members, stack).log()
            payloads = [b"%d" % number + bytes(200_000) for number in range(20)]
            for payload in payloads:
                await log.append(payload)
            assert await payloads_of(log, 20) == payloads


async def test_a_follower_that_is_not_read_is_not_silent(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    writer, reader = await nodes.log(), await nodes.log()
    entries = reader.follow(BASE, 0)
    await writer.append(b"0")
    assert (await anext(entries)).payload == b"0"
    for number in range(1, 6):
        await writer.append(b"%d" % number)
        await asyncio.sleep(0.4)
    assert "is silent" not in caplog.text
    assert [(await anext(entries)).payload for _ in range(5)] == [b"%d" % number for number in range(1, 6)]


async def test_what_a_node_needs_is_declared_again_with_a_new_lease_and_forgotten_without_one(
    nodes: Nodes,
) -> None:
    keeper, reader = await nodes.log(kept_bytes=0), await nodes.log()
    positions = [await keeper.append(bytes(100)) for _ in range(4)]
    lease = reader._logs.lease
    async with asyncio.timeout(30):
        while not lease.is_held:
            await asyncio.sleep(0.01)
    await reader.protect(positions[1])
    await (await leader_of(keeper)).lease.LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease.id))
    await lease._renew()
    await reader.protect(positions[1])
    await keeper.trim(positions[3])
    assert keeper.first == positions[1]
    await lease.close()
    with pytest.raises(LogUnavailable, match="no lease"):
        await reader.protect(positions[1])
    await keeper.trim(positions[3])
    assert keeper.first == positions[3]


async def test_trimming_waits_for_a_node_that_needs_entries_unless_the_log_is_long(nodes: Nodes) -> None:
    keeper, reader = await nodes.log(kept_bytes=0, log_bytes_max=5000), await nodes.log()
    positions = [await keeper.append(bytes(100)) for _ in range(10)]
    async with asyncio.timeout(30):
        while not reader._logs.lease.is_held:
            await asyncio.sleep(0.01)
    await reader.protect(positions[4])
    await keeper.trim(positions[8])
    assert keeper.first == positions[4]
    assert await reader.protect(positions[5]) == positions[4]
    await keeper.trim(positions[8])
    assert keeper.first == positions[5]
    follower = keeper.follow(positions[5])
    long = [await keeper.append(bytes(1000)) for _ in range(6)]
    async with asyncio.timeout(30):
        while (await anext(follower)).position < long[-1]:
            pass
    await keeper.trim(long[2])
    assert keeper.first == long[2]


async def test_the_last_entries_are_kept(nodes: Nodes) -> None:
    log = await nodes.log(kept_bytes=2500)
    positions = [await log.append(bytes(1000)) for _ in range(10)]
    await payloads_of(log, 10)
    await log.trim(positions[9])
    assert log.first == positions[7]


async def test_a_new_keeper_knows_how_long_the_log_was_before_it_started(nodes: Nodes) -> None:
    writer, reader = await nodes.log(), await nodes.log()
    positions = [await writer.append(bytes(1000)) for _ in range(40)]
    async with asyncio.timeout(30):
        while not reader._logs.lease.is_held:
            await asyncio.sleep(0.01)
    await reader.protect(BASE)
    for limits, first in (
        ({"kept_bytes": 0, "log_bytes_max": 50_000}, BASE),
        ({"kept_bytes": 5500, "log_bytes_max": 30_000}, positions[34]),
        ({"kept_bytes": 0, "log_bytes_max": 2_000}, positions[38]),
    ):
        keeper = await nodes.log(**limits)
        following = keeper.follow(positions[37])
        for position in positions[38:]:
            assert (await anext(following)).position == position
        await asyncio.gather(keeper.trim(positions[38]), keeper.trim(positions[38]))
        assert await reader.protect(BASE) == first
        left = sum(position > first for position in positions)
        assert keeper.measures.size_bytes == 1000 * left


async def test_a_log_is_trimmed_although_the_entries_before_the_start_cannot_be_read(nodes: Nodes) -> None:
    writer, keeper = await nodes.log(), await nodes.log(kept_bytes=2500)
    positions = [await writer.append(bytes(1000)) for _ in range(10)]
    following = keeper.follow(positions[4])
    for position in positions[5:]:
        assert (await anext(following)).position == position
    keeper._client.endpoints = [ReadsNoValues(endpoint) for endpoint in keeper._client.endpoints]  # type: ignore[misc]
    await leader_of(keeper)
    await keeper.trim(positions[9])
    assert keeper.first == positions[7]


async def test_groups_share_transactions_and_each_is_followed_and_trimmed_by_itself(nodes: Nodes) -> None:
    first, second = await nodes.logs(2, kept_bytes=0)
    reader, _ = await nodes.logs(2)
    async with asyncio.timeout(30):
        while not reader._logs.lease.is_held:
            await asyncio.sleep(0.01)
    await reader.protect(BASE)
    positions = []
    for number in range(6):
        one, two = await asyncio.gather(first.append(b"a%d" % number), second.append(b"b%d" % number))
        assert one == two
        positions.append(one)
    last = await second.append(b"b6")
    assert (await first.tail(), await second.tail()) == (positions[5], last)
    behind = first.follow(BASE, 0)
    assert await anext(behind) == (positions[0], b"a0")
    await first.trim(positions[4])
    await second.trim(positions[4])
    assert (first.first, second.first) == (BASE, positions[4])
    behind._drop_watch()  # what it has not read is compacted now, since the other group was trimmed
    async with asyncio.timeout(30):
        assert [(await anext(behind)).payload for _ in range(5)] == [
            b"a%d" % number for number in range(1, 6)
        ]
    with pytest.raises(EntriesTrimmed):
        await anext(second.follow(BASE, 0))
    following = second.follow(positions[4], 5)
    async with asyncio.timeout(30):
        assert [await anext(following) for _ in range(2)] == [(positions[5], b"b5"), (last, b"b6")]
    one, two = await asyncio.gather(first.append(b"a6"), second.append(b"b7"))
    async with asyncio.timeout(30):
        assert (await anext(behind), await anext(following)) == ((one, b"a6"), (two, b"b7"))


async def test_a_frozen_leader_holds_nothing_up_for_long(nodes: Nodes, members: list[EtcdMember]) -> None:
    writer, reader = await nodes.log(), await nodes.log()
    entries = reader.follow(BASE, 0)
    await writer.append(b"before")
    assert (await anext(entries)).payload == b"before"
    frozen = member_at(members, (await leader_of(writer)).address)
    frozen.freeze()
    try:
        async with asyncio.timeout(20):
            appending = [writer.append(b"%d" % number) for number in range(5)]
            await asyncio.gather(*appending)
            found = [(await anext(entries)).payload for _ in range(5)]
            await reader.tail()
    finally:
        frozen.thaw()
    assert found == [b"%d" % number for number in range(5)]


async def test_a_follower_leaves_a_silent_member(nodes: Nodes, members: list[EtcdMember]) -> None:
    writer, reader = await nodes.log(), await nodes.log()
    leader = await leader_of(writer)
    silent = next(one for one in reader._client.endpoints if one.address != leader.address)
    reader._client.current = silent
    entries = reader.follow(BASE, 0)
    reading = asyncio.create_task(anext(entries))
    await asyncio.sleep(0.2)
    member_at(members, silent.address).freeze()
    try:
        await writer.append(b"news")
        async with asyncio.timeout(10):
            assert (await reading).payload == b"news"
    finally:
        member_at(members, silent.address).thaw()


async def test_a_follower_leaves_a_member_that_no_leader_reaches(
    nodes: Nodes, members: list[EtcdMember]
) -> None:
    """Even if nothing is written that its watch could miss."""
    log = await nodes.log()
    await log.append(b"before")
    cut_off = await leader_of(log)
    others = [member for member in members if member.address != cut_off.address]
    client = EtcdClient([cut_off.address, *(member.address for member in others)])
    entries = EtcdFollower(client, log._keys, BASE, after=BASE, count=0, on_entry=lambda entry: None)
    assert (await anext(entries)).payload == b"before"
    reading = asyncio.create_task(anext(entries))
    for member in others:
        member.freeze()
    try:
        async with asyncio.timeout(30):
            while entries.member.address == cut_off.address:
                await asyncio.sleep(0.02)
    finally:
        for member in others:
            member.thaw()
    await log.append(b"after")
    async with asyncio.timeout(30):
        assert (await reading).payload == b"after"
    entries.end()
    await client.close()


async def test_the_history_of_etcd_is_forgotten_although_nothing_is_trimmed(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ursula.log.etcd.log.COMPACTION_SECONDS", 0.1)
    log = await nodes.log()
    position = await log.append(b"kept")
    leader = await leader_of(log)
    old = rpc.RangeRequest(key=b"a", revision=position - BASE)
    await log.append(b"later")

    async def read_until_refused() -> None:
        while True:
            await leader.kv.Range(old)
            await asyncio.sleep(0.05)

    with pytest.raises(grpc.aio.AioRpcError, match="has been compacted"):
        await asyncio.wait_for(read_until_refused(), 30)
    assert await payloads_of(log, 2) == [b"kept", b"later"]


async def test_without_a_majority_the_tail_is_unknown_and_later_all_is_there(
    nodes: Nodes, members: list[EtcdMember]
) -> None:
    log = await nodes.log()
    await log.append(b"before")
    for member in members[:2]:
        member.kill()
    appending = log.append(b"meanwhile")
    try:
        with pytest.raises(LogUnavailable):
            await log.tail()
        assert not appending.done()
    finally:
        for member in members[:2]:
            member.restart()
    async with asyncio.timeout(30):
        await appending
    assert await payloads_of(log, 2) == [b"before", b"meanwhile"]


async def test_addresses_that_change_interrupt_nothing(nodes: Nodes, members: list[EtcdMember]) -> None:
    log = await nodes.log()
    entries = log.follow(BASE, 0)
    addresses = [member.address for member in members]

    async def read() -> list[bytes]:
        return [(await anext(entries)).payload for _ in range(60)]

    reading = asyncio.create_task(read())
    client = log._client
    for number in range(60):
        appending, asking = log.append(b"%d" % number), asyncio.create_task(log.tail())
        if number % 10 == 5:
            await asyncio.sleep(0)
            await client.set_addresses([one for one in addresses if one != client.current.address])
            await client.set_addresses(addresses)
        await asyncio.gather(appending, asking)
    async with asyncio.timeout(30):
        assert await reading == [b"%d" % number for number in range(60)]


async def test_killed_members_lose_nothing(nodes: Nodes, members: list[EtcdMember]) -> None:
    logs = [await nodes.log() for _ in range(3)]
    entries = logs[0].follow(BASE, 0)
    written: list[bytes] = []

    async def write(log: EtcdLog, name: int) -> None:
        for number in range(40):
            payload = b"%d-%d" % (name, number)
            await log.append(payload)
            written.append(payload)
            await asyncio.sleep(0.02)

    writing = [asyncio.create_task(write(log, name)) for name, log in enumerate(logs)]
    for member in members:
        await asyncio.sleep(0.3)
        member.kill()
        await asyncio.sleep(0.3)
        member.restart()
        await leader_of(logs[0])
    async with asyncio.timeout(60):
        await asyncio.gather(*writing)
        found = [(await anext(entries)).payload for _ in range(120)]
    assert sorted(found) == sorted(written)
    for name in range(3):
        own = [payload for payload in found if payload.startswith(b"%d-" % name)]
        assert own == [b"%d-%d" % (name, number) for number in range(40)]


async def test_a_log_closes_soon_although_no_member_answers(tmp_path: Path) -> None:
    with etcd_members(1, tmp_path) as (member,):
        async with AsyncExitStack() as stack:
            log = await Nodes([member], stack).log()
            await log.append(b"before")
            following = asyncio.create_task(anext(log.follow(await log.tail(), 1)))
            reading = asyncio.create_task(anext(log.follow(BASE, 0)))
            await reading
            member.freeze()
            sent, waiting = log.append(b"sent"), log.append(b"waiting")
            async with asyncio.timeout(15):
                await log.close()
                await log._logs.close()
                with pytest.raises(StopAsyncIteration):
                    await following
            with pytest.raises(AppendUnknown):
                await sent
            with pytest.raises(AppendRetryable):
                await waiting
            member.thaw()
