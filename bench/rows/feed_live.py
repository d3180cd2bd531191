"""What it costs appends that a bucket's feed is followed while they are made."""

from ..client import create_streams, get
from ..followers import EventFollower, Follower, PollFollower, following
from ..load import append_load
from ..results import Figure, Row
from ..rounds import WARM_UP_SECONDS, Plan
from ..servers import OURS_BUCKETED, Kind, Server, started

STREAMS = 100
CONNECTIONS = 64
MESSAGE_BYTES = 256


def measure(plan: Plan) -> list[Row]:
    """Appends per second with and without followers, each on a server of its own, in every round."""
    row = Row(
        "feed-live",
        f"durable append, {MESSAGE_BYTES} B, {STREAMS} streams of a bucket whose feed is followed, "
        f"{CONNECTIONS} connections",
    )
    row.note("one follower uses SSE, the second long-poll; both run in the benchmark's own process")
    row.note("the rows of each follower are compared byte for byte with a catch-up read after the load")
    alone = row.figure("appends/s, no follower")
    by_one = row.figure("appends/s, one follower")
    by_two = row.figure("appends/s, two followers")
    cpu_alone = row.figure("server CPU per append, no follower", "µs")
    cpu_by_one = row.figure("server CPU per append, one follower", "µs")
    cpu_by_two = row.figure("server CPU per append, two followers", "µs")
    behind = row.figure("time after the load until all followers are up to date", "ms")
    wrong = row.figure("rows missed, duplicated or out of order", drawn=False)
    failed = row.figure("failed requests", drawn=False)

    def load(server: Server, speed: Figure, cpu: Figure) -> None:
        append_load(server, STREAMS, CONNECTIONS, WARM_UP_SECONDS)
        before = server.process.cpu_seconds()
        result = append_load(server, STREAMS, CONNECTIONS, plan.seconds)
        used = server.process.cpu_seconds() - before
        speed.add(server.kind.name, result.per_second)
        cpu.add(server.kind.name, used * 1e6 / max(1, result.requests))
        failed.add(server.kind.name, result.failed)

    def once(kind: Kind) -> None:
        with started(kind) as server:
            create_streams(server, STREAMS)
            load(server, alone, cpu_alone)
        follow(kind, by_one, cpu_by_one, EventFollower)
        follow(kind, by_two, cpu_by_two, EventFollower, PollFollower)

    def follow(kind: Kind, speed: Figure, cpu: Figure, *kinds: type[Follower]) -> None:
        with started(kind) as server:
            create_streams(server, STREAMS)
            with following(server, f"/{kind.bucket}", *kinds) as readers:
                load(server, speed, cpu)
                behind.add(kind.name, readers.await_all() * 1e3)
                readers.await_rest()
            wrong.add(kind.name, readers.wrong_rows(_stored(server)))

    plan.interleave(row, (OURS_BUCKETED,), once)
    row.growth_at_least(by_one, 0.8, alone, "no follower")
    row.growth_at_least(by_two, 0.8, alone, "no follower")
    row.report_growth(cpu_by_one, cpu_alone, "against no follower")
    row.report_growth(cpu_by_two, cpu_alone, "against no follower")
    row.never(wrong)
    row.never(failed)
    return [row]


def _stored(server: Server) -> int:
    """How many appends the streams hold, whether they were acknowledged or not."""
    listed = get(server, f"/{server.kind.bucket}/streams").json()["streams"]
    return sum(int(stream["tail_offset"]) for stream in listed) // MESSAGE_BYTES
