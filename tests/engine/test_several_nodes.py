"""Several nodes on one log and one store: what they agree on, whoever proposes and whoever is the keeper."""

import asyncio
import random
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.engine.driving import SECOND, a_while, append, create, until
from tests.engine.several_nodes import Cluster, Member, cluster_of, content_of, rows_of
from tests.http.staged import arrow
from tests.log.shared_log import SharedLog

from ursula.cold.blobs import made_at
from ursula.cold.objects import keys
from ursula.cold.objects.store import StoreUnavailable
from ursula.cold.state import manifest as manifests
from ursula.config import ColdSettings
from ursula.engine.failures import (
    FELL_BEHIND,
    Failure,
    NotCurrent,
    OutcomeUnknown,
    SegmentUnfit,
    Unavailable,
)
from ursula.engine.flush.flusher import FlushFailed, FlushOvertaken
from ursula.engine.start.load_state import StoreRefused
from ursula.model.codec.entry import ENTRY_VERSION, decode, encode
from ursula.model.commands import (
    Append,
    Body,
    Collect,
    Create,
    CreateBucket,
    Delete,
    DeleteBucket,
    FlushBegin,
    IngestBegin,
    IngestRows,
    PlainAppend,
    RequestFlush,
    SetAttributes,
)
from ursula.model.outcomes import AnyOutcome, Appended, BucketDeleted, Created, Done, Ingest, Refused
from ursula.model.stream.blob_slice import BlobSlice

pytestmark = pytest.mark.anyio

OFTEN = ColdSettings(cache_bytes=0, flush_interval=0.02, flush_size=4096, keep_replaced=1.0)
"""Settings with which flushes, merges and collections happen all the time."""

ROWS = 20_000
"""Rows of a bulk write: enough for several parts."""


async def test_any_node_takes_a_write_and_all_apply_it(tmp_path: Path) -> None:
    async with cluster_of(3, tmp_path) as cluster:
        assert isinstance(await cluster.nodes[0].group.propose_and_wait(create()), Created)
        for number, node in cluster.nodes.items():
            outcome = await node.group.propose_and_wait(append(b"%d," % number))
            assert isinstance(outcome, Appended)
        await cluster.in_step()
        assert {await content_of(node, "s") for node in cluster.nodes.values()} == {b"0,1,2,"}


async def test_batches_of_several_nodes_in_one_entry_are_each_answered(tmp_path: Path) -> None:
    async with cluster_of(3, tmp_path) as cluster:
        cluster.memory.joins = True
        nodes = list(cluster.nodes.values())
        await nodes[0].group.propose_and_wait(create())
        await cluster.in_step()
        answers: list[tuple[bytes, int]] = []

        async def write(node: Member, writer: int) -> None:
            for number in range(20):
                body = b"%d:%d," % (writer, number)
                outcome = await node.group.propose_and_wait(append(body))
                assert isinstance(outcome, Appended)
                answers.append((body, outcome.next_offset))

        async with asyncio.timeout(60):
            await asyncio.gather(*(write(nodes[writer % 3], writer) for writer in range(9)))
        await cluster.in_step()
        content = await content_of(nodes[0], "s")
        assert all(content[end - len(body) : end] == body for body, end in answers)
        assert {await content_of(node, "s") for node in nodes} == {content}
        proposers = [
            {batch.proposer for batch in decode(one.payload).batches} for one in cluster.memory._entries
        ]
        assert max(map(len, proposers)) == 3, "one entry has batches of all nodes"
        assert rows_of(nodes[0]) == rows_of(nodes[1]) == rows_of(nodes[2])


async def test_a_batch_that_comes_back_after_all_is_not_taken_for_a_later_one_like_it(tmp_path: Path) -> None:
    async with cluster_of(1, tmp_path) as cluster:
        node = cluster.nodes[0]
        await node.group.propose_and_wait(create())
        node.connection.is_silent = node.connection.loses_answers = True
        cluster.clock.pass_seconds(60)  # from now on it stands still, as the clock of a coarse timer may
        assert isinstance(await node.group.propose_and_wait(append(b"x")), OutcomeUnknown)
        node.connection.loses_answers = False
        tail = cluster.memory.known_tail
        appending = asyncio.create_task(node.group.propose_and_wait(append(b"x")))
        await until(lambda: cluster.memory.known_tail > tail)
        node.connection.is_silent = False
        outcome = await appending
        assert isinstance(outcome, Appended)
        assert outcome.next_offset == 2


async def test_a_refusal_counts_what_other_nodes_wrote(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        first, second = cluster.nodes.values()
        await first.group.propose_and_wait(create())
        assert isinstance(await second.group.propose_and_wait(append(b"a")), Appended)
        await second.group.propose_and_wait(Delete("b", "s"))
        gone = await first.group.propose_and_wait(append(b"b"))
        assert isinstance(gone, Refused)
        assert gone.code == "stream_not_found"


async def test_the_keeper_flushes_and_all_nodes_evict(tmp_path: Path) -> None:
    async with cluster_of(3, tmp_path) as cluster:
        await written(cluster.nodes[1])
        await cluster.nodes[0].flush()
        await cluster.in_step()
        await until(lambda: all(node.group.state.gauge.count == 0 for node in cluster.nodes.values()))
        assert [node.flushers[0].count for node in cluster.nodes.values()] == [1, 0, 0]
        assert {await content_of(node, "s") for node in cluster.nodes.values()} == {b"0123456789"}


async def test_a_flush_that_another_node_is_asked_for_reaches_the_keeper(tmp_path: Path) -> None:
    async with cluster_of(3, tmp_path) as cluster:
        await written(cluster.nodes[1])
        position = await flushed(cluster.nodes[2])
        found = await manifests.find_manifests(cluster.nodes[2].store, 0)
        assert found[0].position >= position
        await until(lambda: cluster.nodes[0].flushers[0].count == 1)


async def test_a_flush_asked_for_without_a_keeper_is_done_by_the_next_one(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        await written(cluster.nodes[1])
        cluster.make_keeper(None)
        flushing = asyncio.create_task(cluster.nodes[0].flush())
        await until(lambda: cluster.nodes[1].group.state.stored.flush_requested_at > 0)
        cluster.make_keeper(1)
        await flushing
        await until(lambda: cluster.nodes[1].flushers[0].count == 1)


async def test_a_flush_that_fails_is_refused_on_the_node_that_was_asked(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        asked = cluster.nodes[1]
        for _ in range(2):
            await written(asked)
            cluster.is_full = True
            with pytest.raises(StoreUnavailable, match="the disk is full"):
                await asked.flush()
            assert asked.cold_statuses()[0].problem == "the disk is full"
            cluster.is_full = False
            await flushed(asked)
            await until(lambda: asked.cold_statuses()[0].problem is None)


async def test_a_node_that_was_the_keeper_reports_no_backlog(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        first = cluster.nodes[0]
        await written(first)
        await until(lambda: first.cold_statuses()[0].backlog_seconds > 0)
        cluster.make_keeper(1)
        await flushed(first)
        await until(lambda: first.cold_statuses()[0].backlog_seconds == 0)


async def test_a_base_may_be_asked_for_on_any_node(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        for _ in range(2):
            await written(cluster.nodes[1])
            await cluster.nodes[1].flush()
        assert len(cluster.nodes[0].group.state.stored.chain) == 2
        assert await cluster.nodes[1].request_base() is None
        await until(lambda: len(cluster.nodes[0].group.state.stored.chain) == 1)


async def test_the_log_may_be_purged_on_any_node(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        await written(cluster.nodes[1])
        position = await flushed(cluster.nodes[0])
        async with asyncio.timeout(60):
            while await cluster.nodes[1].purge_log() != [position]:
                await asyncio.sleep(0.1)  # until every node has said that it has applied everything
        assert cluster.memory.first == position


async def test_a_new_keeper_continues_from_the_manifests_of_the_last(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        positions = []
        for keeper in (0, 0, 1, 1):
            cluster.make_keeper(keeper)
            await written(cluster.nodes[0])
            positions.append(await flushed(cluster.nodes[keeper]))
        flusher = cluster.nodes[1].flushers[0]
        assert (flusher.previous_position, flusher.manifest_position) == tuple(positions[-2:])
        found = await manifests.find_manifests(cluster.nodes[1].store, 0)
        assert [one.position for one in found] == positions[::-1]
        for older, newer in zip(found[1:], found, strict=False):
            assert (await manifests.read_manifest(cluster.nodes[1].store, newer.key)).previous == older.key


async def test_two_keepers_at_once_do_no_harm(tmp_path: Path) -> None:
    async with cluster_of(3, tmp_path, OFTEN) as cluster:
        for node in cluster.nodes.values():
            node.role.is_held = True
        await cluster.nodes[0].group.propose_and_wait(create())
        for number in range(300):
            outcome = await cluster.nodes[number % 3].group.propose_and_wait(append(b"%d," % number * 20))
            assert isinstance(outcome, Appended), outcome
            await asyncio.sleep(0.001)
        await cluster.in_step()
        expected = b"".join(b"%d," % number * 20 for number in range(300))
        assert {await content_of(node, "s") for node in cluster.nodes.values()} == {expected}
        flushers = [node.flushers[0] for node in cluster.nodes.values()]
        assert sum(flusher.count > 0 for flusher in flushers) > 1, "several have flushed"
        assert all(flusher.problem is None for flusher in flushers)


async def test_a_live_list_is_not_replaced_by_an_older_one(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        first, second = cluster.nodes.values()
        await written(first)
        await flushed(first)
        await cluster.in_step()
        second.connection.is_silent = True
        await written(first)
        position = await flushed(first)
        second.role.is_held = True  # it does not know yet what it missed
        await second.flushers[0].write_live_now()
        assert (await manifests.read_live(first.store, 0)).position == position
        second.role.is_held = False
        second.connection.is_silent = False


async def test_a_keeper_that_is_frozen_while_it_writes_a_live_list_replaces_no_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        frozen, next_keeper = cluster.nodes.values()
        await written(frozen)
        await flushed(frozen)
        has_read, may_go_on = asyncio.Event(), asyncio.Event()
        get = frozen.store.get

        async def get_and_freeze(key: str) -> bytes:
            found = await get(key)
            has_read.set()
            await may_go_on.wait()
            return found

        monkeypatch.setattr(frozen.store, "get", get_and_freeze)
        writing = asyncio.create_task(frozen.flushers[0].write_live_now())
        await has_read.wait()
        frozen.connection.is_silent = True
        cluster.make_keeper(1)
        await written(next_keeper)
        position = await flushed(next_keeper)
        may_go_on.set()
        await writing
        frozen.connection.is_silent = False
        assert (await manifests.read_live(next_keeper.store, 0)).position == position


async def test_a_live_list_that_the_last_keeper_wrote_late_is_replaced_although_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ursula.engine.flush.flusher.LIVE_LIST_SECONDS", 1.0)
    async with cluster_of(2, tmp_path) as cluster:
        store, key = cluster.nodes[1].store, keys.live_key(0)
        await written(cluster.nodes[0])
        await flushed(cluster.nodes[0])
        older = await store.get(key)
        await written(cluster.nodes[0])
        position = await flushed(cluster.nodes[0])
        await cluster.in_step()
        is_written = asyncio.Event()
        put = store.put

        async def put_and_tell(name: str, data: bytes | memoryview) -> None:
            await put(name, data)
            if name == key:
                is_written.set()

        monkeypatch.setattr(store, "put", put_and_tell)
        cluster.make_keeper(1)
        await is_written.wait()
        await put(key, older)
        async with asyncio.timeout(30):
            while (await manifests.read_live(store, 0)).position != position:
                await asyncio.sleep(0.02)


async def test_a_flush_that_is_overtaken_while_it_reads_journals_is_given_up(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        cluster.make_keeper(None)
        first, second = cluster.nodes.values()
        await written(first)
        key = first.blobs.new_key("b", "large")
        checksums = await first.blobs.put(key, [b"large"])
        body = Body(key, (5,), made_at(key), checksums)
        large = Append("b", "s", (), "text/plain", body=body)
        assert isinstance(await first.group.propose_and_wait(large), Appended)
        await cluster.in_step()
        flusher = second.flushers[0]
        fetch, is_reading, may_read = flusher._fetch, asyncio.Event(), asyncio.Event()

        async def fetch_slowly(slices: Sequence[BlobSlice]) -> list[bytes]:
            is_reading.set()
            await may_read.wait()
            return await fetch(slices)

        flusher._fetch = fetch_slowly
        flushing = asyncio.create_task(flusher.flush())
        await is_reading.wait()
        await first.flushers[0].flush()
        await cluster.in_step()
        await a_while()
        may_read.set()
        with pytest.raises(FlushOvertaken):
            await flushing
        await until(lambda: second.group.state.gauge.count == 0)
        assert await content_of(second, "s") == b"0123456789large"
        keys = [stored.key for stored in await second.store.list("segments/")]
        assert len(keys) == 1, "nothing of the flush that was given up is left"


async def test_a_request_for_a_flush_is_forgotten_when_it_is_done(tmp_path: Path) -> None:
    async with cluster_of(1, tmp_path) as cluster:
        node = cluster.nodes[0]
        await written(node)
        assert isinstance(await node.group.propose_and_wait(RequestFlush()), Done)
        await until(lambda: node.flushers[0].count == 1)
        await asyncio.sleep(0.2)
        assert node.flushers[0].count == 1


async def test_a_node_that_fell_behind_starts_again_from_the_newest_manifest(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        first, second = cluster.nodes.values()
        await written(first)
        await cluster.in_step()
        restarts: list[None] = []
        second.when_restarted.append(lambda: restarts.append(None))
        old_state = weakref.ref(second.group.state)
        second.connection.is_cut_off = True
        waiting = asyncio.create_task(second.group.current())
        cluster.memory.bytes_max = 0
        for _ in range(3):
            await written(first)
            await flushed(first)
        second.connection.is_cut_off = False
        await until(lambda: bool(restarts) and second.recovered)
        with pytest.raises(NotCurrent):
            await waiting
        await second.group.current()
        assert await content_of(second, "s") == b"0123456789" * 4
        assert rows_of(first) == rows_of(second)
        assert old_state() is None, "its memory is freed"


async def test_what_is_in_flight_on_a_node_that_starts_again_is_unknown(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        first, second = cluster.nodes.values()
        await written(first)
        await cluster.in_step()
        second.connection.is_silent = True
        appending = asyncio.create_task(second.group.propose_and_wait(append(b"!")))
        await until(lambda: first.group.state.position == cluster.memory.known_tail)
        cluster.memory.bytes_max = 0
        for _ in range(3):
            await written(first)
            await flushed(first)
        second.connection.is_silent = False
        assert await appending == OutcomeUnknown(FELL_BEHIND)


async def test_a_start_ends_although_flushes_and_trims_go_on(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path, OFTEN) as cluster:
        await cluster.nodes[0].group.propose_and_wait(create())
        await cluster.kill(1)
        written: dict[str, list[tuple[int, bytes]]] = {}
        is_over = asyncio.Event()
        writing = asyncio.create_task(write_until(is_over, cluster, written, 0))
        await until(lambda: cluster.nodes[0].flushers[0].count > 3)
        first, flusher = cluster.memory.first, cluster.nodes[0].flushers[0]

        async def take_long() -> None:
            flushes = flusher.count
            await until(lambda: flusher.count > flushes + 2)

        cluster.before_state = take_long  # whenever a state is loaded
        async with asyncio.timeout(60):
            started = await cluster.start(1)
        assert started.recovered
        assert cluster.memory.first > first
        is_over.set()
        await writing
        await cluster.in_step()
        assert rows_of(started) == rows_of(cluster.nodes[0])


async def test_a_store_without_the_manifest_of_a_trimmed_log_is_rejected(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, ColdSettings(cache_bytes=0))
    await cluster.start(0)
    cluster.make_keeper(0)
    await written(cluster.nodes[0])
    await flushed(cluster.nodes[0])
    cluster.memory.bytes_max = 0
    await cluster.nodes[0].purge_log()
    await cluster.stop()
    store = cluster.open_store()
    await store.delete([one.key for one in await manifests.find_manifests(store, 0)])
    await cluster.start(0)
    (problem,) = cluster.problems
    assert isinstance(problem, StoreRefused)
    await cluster.stop()


async def test_a_start_removes_only_its_own_unfinished_files(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        await written(cluster.nodes[0])
        await flushed(cluster.nodes[0])
        own, other = (cluster.nodes[number].unfinished.new_path("segment") for number in (1, 0))
        own.write_bytes(b"half")
        other.write_bytes(b"half")
        await cluster.kill(1)
        await cluster.start(1)
        assert not own.exists()
        assert other.exists()
        await cluster.nodes[1].store.forget_unfinished(0.0)
        assert not other.exists(), "the collector removes what is old, whoever left it"


async def test_a_bulk_write_is_left_to_the_node_that_moves_it(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        first, second = cluster.nodes.values()
        command, driving = await begin_bulk_write(cluster, first)
        await second.group.current()
        before = entries_with_rows(cluster)
        outcomes = await asyncio.gather(driving, second.ingest(command, 60))
        assert all(isinstance(outcome, Ingest) and outcome.appended == ROWS for outcome in outcomes)
        parts = entries_with_rows(cluster)
        assert parts > before, "it was not over when the second node was asked"
        assert parts == len(set(firsts(cluster))), "no part was logged twice"


async def test_a_bulk_write_whose_node_died_is_continued_by_another(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        first, second = cluster.nodes.values()
        command, driving = await begin_bulk_write(cluster, first)
        first._ingesters.stop()
        await cluster.kill(0)
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)
        outcome = await second.ingest(command, 60)
        assert isinstance(outcome, Ingest)
        assert outcome.appended == ROWS


async def test_a_replacement_of_segments_waits_until_its_node_knows_them(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        first, behind = cluster.nodes.values()
        behind.connection.is_silent = True
        for _ in range(2):
            await written(first)
            await flushed(first)
        old = [segment.key for segment in first.group.state.segments]
        asked = behind.connection.tail_calls
        replacing = asyncio.create_task(behind.replace_segments(0, old, "segments/other"))
        await until(lambda: behind.connection.tail_calls > asked or replacing.done())
        behind.connection.is_silent = False
        with pytest.raises(SegmentUnfit, match="its name is not"):  # rather than SegmentsReplaced
            await replacing


async def test_an_entry_that_is_too_large_for_the_log_goes_through_the_store(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        first, second = cluster.nodes.values()
        await first.group.propose_and_wait(create())
        large = b"x" * 300_000
        assert isinstance(await first.group.propose_and_wait(append(large)), Appended)
        await cluster.in_step()
        assert all(len(entry.payload) < SharedLog.batch_bytes for entry in cluster.memory._entries)
        assert {await content_of(node, "s") for node in cluster.nodes.values()} == {large}
        (_, blob), *_ = second.group.state.stored.bodies
        assert await second.store.size(f"blobs/{blob}") > len(large)
        started = await cluster.start(2)
        assert await content_of(started, "s") == large, "a new node reads it too"
        await flushed(first)
        await cluster.in_step()
        assert [node.group.state.stored.bodies for node in cluster.nodes.values()] == [[], [], []]
        assert f"blobs/{blob}" in second.group.state.stored.replaced, "it is collected when it is old"
        assert rows_of(first) == rows_of(second) == rows_of(started)


async def test_entries_are_bounded_whatever_their_commands_are(tmp_path: Path) -> None:
    async with cluster_of(1, tmp_path) as cluster:
        group = cluster.nodes[0].group
        await group.propose_and_wait(create())
        attributes = [b'{"number":%d,"rest":"%b"}' % (number, b"x" * 4000) for number in range(200)]
        outcomes = await asyncio.gather(
            *(group.propose_and_wait(SetAttributes("b", "s", one)) for one in attributes)
        )
        assert not any(isinstance(outcome, Refused) for outcome in outcomes)
        assert len(cluster.memory._entries) > 10
        assert all(len(entry.payload) <= SharedLog.batch_bytes for entry in cluster.memory._entries)
        objects = tuple(f"staging/b/{number:0100d}" for number in range(2000))
        await group.propose_and_wait(IngestBegin("b", "job", 1, objects, True, None, False, cluster.clock()))
        assert group.state.ingests["b", "job"].objects == objects
        assert all(len(entry.payload) <= SharedLog.batch_bytes for entry in cluster.memory._entries)


async def test_an_entry_whose_blob_may_have_been_collected_counts_nowhere(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        first, second = cluster.nodes.values()
        await first.group.propose_and_wait(create())
        later = (time.time_ns() // 1000) + 3600 * SECOND
        await first.group.propose_and_wait(Collect(later, 0))
        outcome = await first.group.propose_and_wait(append(b"x" * 300_000))
        assert isinstance(outcome, Refused)
        await cluster.in_step()
        assert {await content_of(node, "s") for node in (first, second)} == {b""}
        assert isinstance(await first.group.propose_and_wait(append(b"small")), Appended)


async def test_a_large_entry_that_cannot_be_stored_is_certainly_not_written(tmp_path: Path) -> None:
    async with cluster_of(1, tmp_path) as cluster:
        node = cluster.nodes[0]
        await node.group.propose_and_wait(create())
        cluster.is_full = True
        outcome = await node.group.propose_and_wait(append(b"x" * 300_000))
        cluster.is_full = False
        assert isinstance(outcome, Unavailable)
        assert "was not stored: the disk is full" in outcome.reason
        await until(lambda: node.log_problem is None)
        assert isinstance(await node.group.propose_and_wait(append(b"small")), Appended)
        assert await content_of(node, "s") == b"small"


async def test_entries_are_written_in_the_version_that_every_node_reads(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        first, second = cluster.nodes.values()
        first.peers.entry_version = 5
        await first.group.propose_and_wait(create())
        plain = PlainAppend("b", "s", (b"plain,",), "text/plain")
        outcomes = await asyncio.gather(
            first.group.propose_and_wait(plain),
            first.group.propose_and_wait(RequestFlush()),
            first.group.propose_and_wait(append(b"x" * 200_000)),
            first.group.propose_and_wait(append(b"small")),
        )
        assert [type(outcome) for outcome in outcomes] == [Appended, Unavailable, Unavailable, Appended]
        for outcome in outcomes[1:3]:
            assert "possible once all nodes are upgraded" in outcome.reason  # type: ignore[union-attr]
        assert first.log_problem is None, "the log itself is well"
        assert {entry.payload[:2] for entry in cluster.memory._entries} == {b"\x94\x05"}
        await cluster.in_step()
        assert {await content_of(node, "s") for node in (first, second)} == {b"plain,small"}
        assert rows_of(first) == rows_of(second)
        first.peers.entry_version = ENTRY_VERSION
        assert isinstance(await first.group.propose_and_wait(RequestFlush()), Done)


async def test_a_node_that_is_too_old_lets_nothing_be_written(tmp_path: Path) -> None:
    async with cluster_of(1, tmp_path) as cluster:
        node = cluster.nodes[0]
        node.peers.entry_version = 4
        tail = cluster.memory.known_tail
        assert isinstance(await node.group.propose_and_wait(create()), Unavailable)
        assert cluster.memory.known_tail == tail
        node.peers.entry_version = 5
        assert isinstance(await node.group.propose_and_wait(create()), Created)


async def test_a_time_that_nothing_was_written_with_is_forgotten_once_the_clock_is_right(
    tmp_path: Path,
) -> None:
    async with cluster_of(1, tmp_path) as cluster:
        node = cluster.nodes[0]
        await node.group.propose_and_wait(create(ttl_seconds=60))
        node.peers.is_clock_wrong = True
        cluster.clock.pass_seconds(3600)
        refused = await node.group.propose_and_wait(append(b"too early"))
        assert refused == Unavailable("the clock is wrong")
        node.peers.is_clock_wrong = False
        cluster.clock.pass_seconds(-3600)
        await node.group.propose_and_wait(create("other"))
        assert node.group.state.at < cluster.clock() + 60 * SECOND
        assert isinstance(await node.group.propose_and_wait(append(b"in time")), Appended)


async def test_a_late_cut_of_a_failed_flush_is_not_taken_for_that_of_the_next(tmp_path: Path) -> None:
    async with cluster_of(1, tmp_path) as cluster:
        node, flusher = cluster.nodes[0], cluster.nodes[0].flushers[0]
        cluster.make_keeper(None)  # it flushes only when this test says so
        for name in ("s", "t"):
            await node.group.propose_and_wait(create(name))
            await node.group.propose_and_wait(append(b"one,", name))
        node.connection.is_silent = node.connection.loses_answers = True
        with pytest.raises(FlushFailed):
            await flusher.flush()
        node.connection.loses_answers = False
        await cluster.memory.append(encode(7, cluster.clock(), [append(b"two,")]))
        flushing = asyncio.create_task(flusher.flush())
        await until(lambda: begun_flushes(cluster) == 2)
        await cluster.memory.append(encode(7, cluster.clock(), [append(b"two,", "t")]))
        node.connection.is_silent = False
        position = await flushing
        started = await cluster.start(1)
        assert started.group.state.stored.flushed == position
        assert rows_of(started) == rows_of(node)
        for name in ("s", "t"):
            assert await content_of(started, name) == b"one,two,"


async def test_an_append_whose_answer_is_lost_after_it_was_applied_disturbs_nothing(tmp_path: Path) -> None:
    async with cluster_of(1, tmp_path) as cluster:
        node = cluster.nodes[0]
        await node.group.propose_and_wait(create())
        node.connection.loses_answers = True
        for _ in range(3):
            outcome = await node.group.propose_and_wait(append(b"x"))
            assert isinstance(outcome, Appended | OutcomeUnknown)
        node.connection.loses_answers = False
        assert isinstance(await node.group.propose_and_wait(append(b"!")), Appended)
        assert await content_of(node, "s") == b"xxx!"


async def test_a_node_starts_although_the_log_cannot_be_reached_at_first(tmp_path: Path) -> None:
    async with cluster_of(1, tmp_path) as cluster:
        await written(cluster.nodes[0])
        cluster.is_unreachable = True
        starting = asyncio.create_task(cluster.start(1))
        await until(lambda: 1 in cluster.nodes and cluster.nodes[1].connection.refused_count > 0)
        cluster.is_unreachable = False
        assert (await starting).recovered


async def test_a_keeper_that_cannot_reach_the_log_flushes_when_it_is_back(tmp_path: Path) -> None:
    async with cluster_of(1, tmp_path, OFTEN) as cluster:
        node = cluster.nodes[0]
        await written(node)
        await flushed(node)
        cluster.is_unreachable = True
        await asyncio.sleep(1.2)  # longer than a node waits before it says again how far it has come
        cluster.is_unreachable = False
        await written(node)
        await flushed(node)
        assert not cluster.problems


async def test_an_entry_whose_blob_was_collected_stops_no_replica(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        first, second = cluster.nodes.values()
        await first.group.propose_and_wait(create())
        await cluster.in_step()
        second.connection.is_silent = True
        later = (time.time_ns() // 1000) + 3600 * SECOND
        await first.group.propose_and_wait(Collect(later, 0))
        assert isinstance(await first.group.propose_and_wait(append(b"x" * 300_000)), Refused)
        await first.store.delete([one.key for one in await first.store.list("blobs/")])
        restarts: list[None] = []
        second.when_restarted.append(lambda: restarts.append(None))
        second.connection.is_silent = False
        await cluster.in_step()
        assert not restarts
        assert isinstance(await second.group.propose_and_wait(append(b"on")), Appended)
        await cluster.in_step()
        assert rows_of(first) == rows_of(second)


async def test_a_caller_of_a_flush_is_answered_when_its_node_becomes_the_keeper(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        first, second = cluster.nodes.values()
        await written(second)
        flushing = asyncio.create_task(second.flush())
        await until(lambda: first.flushers[0].count == 1)
        cluster.make_keeper(1)
        async with asyncio.timeout(30):
            assert isinstance(await flushing, list)


async def test_a_caller_of_a_flush_is_answered_when_its_node_starts_again(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        cluster.make_keeper(None)
        second = cluster.nodes[1]
        await written(second)
        flushing = asyncio.create_task(second.flush())
        await until(lambda: len(second.flushers[0]._waiting) == 1)
        await second._drop_groups("it is a test")
        with pytest.raises(StoreUnavailable):
            await flushing
        await cluster.kill(1)


async def test_a_bucket_whose_streams_have_expired_is_deleted_on_any_node(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        cluster.make_keeper(None)
        second = cluster.nodes[1]
        for number in range(5):
            await second.group.propose_and_wait(create(f"s{number}", ttl_seconds=10))
        cluster.clock.pass_seconds(11)
        assert isinstance(await second.group.propose_and_wait(DeleteBucket("b")), BucketDeleted)


async def test_a_new_keeper_skips_a_damaged_manifest(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        first, second = cluster.nodes.values()
        positions = []
        for _ in range(2):
            await written(first)
            positions.append(await flushed(first))
        found = await manifests.find_manifests(first.store, 0)
        await first.store.put(found[0].key, b"{")
        cluster.make_keeper(1)
        await until(lambda: second.flushers[0].knows_manifests)
        assert second.flushers[0].manifest_position == positions[0]
        await written(second)
        await flushed(second)


async def test_only_the_keeper_ends_streams_by_itself(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        cluster.make_keeper(None)
        await cluster.nodes[1].group.propose_and_wait(create(ttl_seconds=10))
        await cluster.in_step()
        tail = cluster.memory.known_tail
        cluster.clock.pass_seconds(11)
        for node in cluster.nodes.values():
            node.check_deadlines()
        await a_while()
        assert cluster.memory.known_tail == tail, "nobody has proposed anything"
        cluster.make_keeper(1)
        nodes = cluster.nodes.values()
        await until(lambda: all(isinstance(node.group.describe("b", "s"), Refused) for node in nodes))


async def test_a_stream_that_has_ended_ends_for_whoever_asks_without_a_keeper(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        cluster.make_keeper(None)
        await cluster.nodes[1].group.propose_and_wait(create(ttl_seconds=10))
        await cluster.in_step()
        cluster.clock.pass_seconds(11)
        outcome = await cluster.nodes[0].group.propose_and_wait(append(b"too late"))
        assert isinstance(outcome, Refused)
        assert outcome.code == "stream_not_found"


async def test_a_read_on_any_node_renews_a_window(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster:
        await cluster.nodes[0].group.propose_and_wait(create(ttl_seconds=80))
        await cluster.in_step()
        cluster.clock.pass_seconds(5)  # less than an eighth of the window: nothing is logged yet
        cluster.nodes[1].group.note_read("b", "s")
        await cluster.in_step()
        cluster.clock.pass_seconds(70)  # a little less than an eighth before the deadline
        for node in cluster.nodes.values():
            node.check_deadlines()
        await a_while()
        await cluster.in_step()
        cluster.clock.pass_seconds(6)  # past the first deadline, not past the one that the read has moved
        for node in cluster.nodes.values():
            node.check_deadlines()
        await a_while()
        await cluster.in_step()
        assert isinstance(await cluster.nodes[0].group.propose_and_wait(append(b"still there")), Appended)


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_is_lost_while_nodes_come_and_go(tmp_path: Path, seed: int) -> None:
    random_source = random.Random(seed)
    async with cluster_of(3, tmp_path, OFTEN) as cluster:
        cluster.memory.joins = seed % 2 == 1
        await cluster.nodes[0].group.propose_and_wait(create())
        written: dict[str, list[tuple[int, bytes]]] = {}
        is_over = asyncio.Event()
        writers = [asyncio.create_task(write_until(is_over, cluster, written, number)) for number in range(6)]
        for _ in range(8):
            await asyncio.sleep(random_source.uniform(0.05, 0.2))
            number = random_source.choice(list(cluster.nodes))
            was_keeper = cluster.nodes[number].role.is_held
            await cluster.kill(number)
            if was_keeper:
                cluster.make_keeper(random_source.choice(list(cluster.nodes)))
            await cluster.start(number)
        is_over.set()
        await asyncio.gather(*writers)
        await cluster.in_step()
        rows = [rows_of(node) for node in cluster.nodes.values()]
        assert rows[0] == rows[1] == rows[2]
        for node in cluster.nodes.values():
            for name, appended in written.items():
                content = await content_of(node, name)
                for end, body in appended:
                    assert content[end - len(body) : end] == body


async def write_until(
    is_over: asyncio.Event, cluster: Cluster, written: dict[str, list[tuple[int, bytes]]], writer: int
) -> None:
    """Append to streams through nodes that serve, and note what was acknowledged."""
    random_source, number = random.Random(writer), 0
    while not is_over.is_set():
        serving = [node for node in cluster.nodes.values() if node.recovered]
        node = random_source.choice(serving)
        name, number = f"s{random_source.randrange(10)}", number + 1
        body = b"%d-%d " % (writer, number) + b"x" * random_source.randrange(500)
        outcome = await node.group.propose_and_wait(Append("b", name, (body,), "text/plain"))
        if isinstance(outcome, Refused):
            await node.group.propose_and_wait(Create("b", name, "text/plain"))
        elif isinstance(outcome, Appended):
            written.setdefault(name, []).append((outcome.next_offset, body))
        await asyncio.sleep(0.001)


async def written(node: Member) -> None:
    """Ten appends to a stream, which is made if it is not there."""
    await node.group.propose_and_wait(create())
    for number in range(10):
        assert isinstance(await node.group.propose_and_wait(append(b"%d" % number)), Appended)


async def flushed(node: Member) -> int:
    """Have everything flushed through a node; returns the position of the manifest."""
    positions = await node.flush()
    assert isinstance(positions, list), positions
    return positions[0]


async def begin_bulk_write(
    cluster: Cluster, node: Member
) -> tuple[IngestBegin, asyncio.Task[AnyOutcome | Failure]]:
    """A bulk write to the bucket b that a node drives; some of its rows are in the log."""
    await node.group.propose_and_wait(CreateBucket("b"))
    key = await staged(node, arrow([(f"s{number % 100}", b"x") for number in range(ROWS)]))
    command = IngestBegin("b", "job", 1, (key,), True, "text/plain", False, cluster.clock())
    driving = asyncio.create_task(node.ingest(command, 60))
    await until(lambda: entries_with_rows(cluster) > 0)
    return command, driving


async def staged(node: Member, data: bytes) -> str:
    """Store rows for a bulk write to the bucket b; returns their key."""
    writer = await asyncio.to_thread(node.blobs.create)
    writer.write(data)
    key = await node.stage("b", writer)
    writer.discard()
    return key


def firsts(cluster: Cluster) -> list[int]:
    """The first row of each part of a bulk write in the log."""
    commands = (command for entry in cluster.memory._entries for command in decode(entry.payload).commands)
    return [command.first for command in commands if isinstance(command, IngestRows)]


def entries_with_rows(cluster: Cluster) -> int:
    """How many parts of a bulk write are in the log."""
    return len(firsts(cluster))


def begun_flushes(cluster: Cluster) -> int:
    """How many flushes have begun in the log."""
    commands = (command for entry in cluster.memory._entries for command in decode(entry.payload).commands)
    return sum(isinstance(command, FlushBegin) for command in commands)
