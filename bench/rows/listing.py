"""A page of a long list of streams against the same page of a short one."""

from dataclasses import dataclass

from ..client import OCTETS, Request, get, send_all
from ..failure import Failed
from ..load import wrk
from ..results import Figure, Row
from ..rounds import WARM_UP_SECONDS, Plan
from ..servers import OURS, Kind, Server, started

PAGE = 1_000
FEW = 1_000
MANY = 100_000
SECONDS_MAX = 2
"""Enough for hundreds of pages; the preparation takes longer."""


@dataclass(frozen=True)
class _Page:
    """A page that is asked for over and over, by one client."""

    name: str
    bucket: str
    streams: int
    first: int
    """The number of its first stream."""

    @property
    def path(self) -> str:
        after = f"&after={_stream(self.first - 1)}" if self.first else ""
        return f"/{self.bucket}/streams?limit={PAGE}{after}"


PAGES = (
    _Page(f"the page of {FEW:,}", "few_", FEW, 0),
    _Page(f"first of {MANY:,}", "many", MANY, 0),
    _Page(f"middle of {MANY:,}", "many", MANY, MANY // 2),
)


def measure(plan: Plan) -> list[Row]:
    """Processor time and latency of a page."""
    row = Row("listing", f"list of streams, a page of {PAGE:,}, one client")
    row.note(f"each page is requested repeatedly for at most {SECONDS_MAX} s")
    cpus = [row.figure(f"server CPU, {page.name}", "ms") for page in PAGES]
    latencies = [row.figure(f"p50, {page.name}", "ms") for page in PAGES]
    failed = row.figure("failed requests", drawn=False)

    def once(kind: Kind) -> None:
        with started(kind) as server:
            for bucket, streams in {page.bucket: page.streams for page in PAGES}.items():
                _create(server, bucket, streams)
            for page, cpu, latency in zip(PAGES, cpus, latencies, strict=True):
                _expect(server, page)
                failed.add(kind.name, _measure(server, page, plan.seconds, cpu, latency))

    plan.interleave(row, (OURS,), once)
    for figures in (cpus, latencies):
        for figure in figures[1:]:
            row.growth_at_most(figure, 3, figures[0], PAGES[0].name)
    row.never(failed)
    return [row]


def _measure(server: Server, page: _Page, seconds: float, cpu: Figure, latency: Figure) -> int:
    wrk(server, "get", [page.path], 1, WARM_UP_SECONDS)
    before = server.process.cpu_seconds()
    result = wrk(server, "get", [page.path], 1, min(seconds, SECONDS_MAX))
    used = server.process.cpu_seconds() - before
    cpu.add(server.kind.name, used * 1e3 / max(1, result.requests))
    latency.add(server.kind.name, result.p50_us / 1e3)
    return result.failed


def _stream(number: int) -> str:
    """Names that are as long and in the same order in both buckets."""
    return f"s{number:06}"


def _create(server: Server, bucket: str, streams: int) -> None:
    paths = (server.path(f"{bucket}/{_stream(number)}") for number in range(streams))
    send_all(server, (Request("PUT", path, b"", OCTETS) for path in paths))


def _expect(server: Server, page: _Page) -> None:
    """The page must be what it is taken for."""
    found = [stream["stream_id"] for stream in get(server, page.path).json()["streams"]]
    if found != [_stream(number) for number in range(page.first, page.first + PAGE)]:
        raise Failed(f"{page.path} is another page: {len(found)} streams")
