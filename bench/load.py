"""The two load generators: wrk, and `ursula-bench` where it is installed."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from . import rust
from .failure import Failed
from .servers import Server
from .stampede import Content, Stampede

SCRIPTS = Path(__file__).parent / "lua"
WRK_THREADS = 1
"""One keeps ahead of every server here; a second would take processor time from them."""
MESSAGE_BYTES = 256
SPARE_SECONDS = 60
SETUP_CONNECTIONS = 128
SETUP_SECONDS_MAX = 120


class WrkResult(msgspec.Struct, frozen=True):
    """What wrk counted."""

    requests: int
    bytes: int
    microseconds: int
    status_errors: int
    socket_errors: int
    p50_us: int
    p99_us: int

    @property
    def answered(self) -> int:
        """Requests that were answered as they should."""
        return self.requests - self.status_errors

    @property
    def per_second(self) -> float:
        """Requests that were answered as they should, each second."""
        return self.answered / (self.microseconds / 1e6)

    @property
    def failed(self) -> int:
        """Requests that were refused, broken off or not answered in time."""
        return self.status_errors + self.socket_errors


def wrk(server: Server, script: str, arguments: list[str], connections: int, seconds: float) -> WrkResult:
    """Run a script of ours against a server."""
    whole_seconds = max(1, round(seconds))
    command = ["wrk", "-t", str(WRK_THREADS), "-c", str(connections), "-d", f"{whole_seconds}s"]
    command += ["-s", f"{script}.lua", server.url, "--", *arguments]
    output = _run(command, whole_seconds)
    return msgspec.json.decode(_last_object(output), type=WrkResult)


def append_load(
    server: Server, streams: int, connections: int, seconds: float, prefix: str = "s"
) -> WrkResult:
    """Appends of 256 bytes to streams in turn."""
    arguments = [server.path(prefix), str(streams), str(MESSAGE_BYTES)]
    return wrk(server, "append", arguments, connections, seconds)


def paced_append_load(
    server: Server,
    streams: int,
    rate: int,
    connections: int,
    seconds: float,
    prefix: str = "s",
    message_bytes: int = MESSAGE_BYTES,
) -> WrkResult:
    """The same, but no more than so many each second."""
    arguments = [server.path(prefix), str(streams), str(message_bytes), str(rate)]
    return wrk(server, "paced_append", arguments, connections, seconds)


def batch_load(
    server: Server, streams: int, frames: int, connections: int, seconds: float, prefix: str = "s"
) -> WrkResult:
    """Batches of appends of 256 bytes to streams in turn."""
    return wrk(server, "batch", [server.path(prefix), str(streams), str(frames)], connections, seconds)


class Latency(msgspec.Struct, frozen=True):
    """Percentiles of `ursula-bench`."""

    p50_ms: float
    p99_ms: float


class Counts(msgspec.Struct, frozen=True):
    """Appends of `ursula-bench` by their answer."""

    ok: int
    backpressure: int
    other_err: int


class MultiStreamResult(msgspec.Struct, frozen=True):
    """What `ursula-bench multi-stream` says."""

    aggregate_ops_per_sec: float
    counts: Counts
    latency_ms: Latency


class FanOutResult(msgspec.Struct, frozen=True):
    """What `ursula-bench fan-out` says."""

    events_sent: int
    events_received: int
    subscriber_errors: int
    append_counts: Counts
    fan_out_latency_ms: Latency


class BootstrapResult(msgspec.Struct, frozen=True):
    """What `ursula-bench bootstrap` says."""

    counts: Counts
    stampede_elapsed_secs: float
    bytes_received_total: int
    latency_ms: Latency


def multi_stream(
    servers: Sequence[Server], streams: int, seconds: float, bucket: str = "bench"
) -> MultiStreamResult:
    """One writer per stream, each an idempotent producer, as fast as they can, on these servers in turn.

    Its producers always have the same names and numbers, so each run needs a bucket of its own.
    """
    wanted = ("--bucket", bucket, "--streams", str(streams))
    output = _ursula_bench("multi-stream", servers, seconds, *wanted)
    return msgspec.json.decode(_last_object(output), type=MultiStreamResult)


def fan_out(server: Server, stream: str, subscribers: int, rate: int, seconds: float) -> FanOutResult:
    """One writer and many SSE subscribers of one stream."""
    wanted = ("--stream", stream, "--subscribers", str(subscribers), "--writer-rate", str(rate))
    output = _ursula_bench("fan-out", [server], seconds, *wanted)
    return msgspec.json.decode(_last_object(output), type=FanOutResult)


def ursula_bench_stampede(server: Server, clients: int, content: Content) -> Stampede:
    """Make a stream for each client, then have all of them bootstrap at once."""
    command = [str(rust.find_load()), "bootstrap", "--target", server.url, "--per-client-stream"]
    command += ["--clients", str(clients), "--setup-concurrency", str(SETUP_CONNECTIONS)]
    command += ["--pre-events", str(content.messages), "--event-bytes", str(content.bytes_each)]
    command += ["--snapshot-bytes", str(content.snapshot_bytes)]
    result = msgspec.json.decode(_last_object(_run(command, SETUP_SECONDS_MAX)), type=BootstrapResult)
    return Stampede(
        p50_ms=result.latency_ms.p50_ms,
        p99_ms=result.latency_ms.p99_ms,
        bytes=result.bytes_received_total,
        failed=result.counts.backpressure + result.counts.other_err,
        seconds=result.stampede_elapsed_secs,
    )


def ursula_bench_missing() -> str | None:
    """Why `ursula-bench` cannot be used, or None."""
    return None if rust.find_load() else "the program `ursula-bench` is not on the PATH"


def wrk_missing() -> str | None:
    """Why wrk cannot be used, or None."""
    return None if shutil.which("wrk") else "the program `wrk` is not on the PATH"


def _ursula_bench(workload: str, servers: Sequence[Server], seconds: float, *arguments: str) -> str:
    whole_seconds = max(1, round(seconds))
    command = [str(rust.find_load()), workload, "--target", ",".join(server.url for server in servers)]
    command += ["--api-style", servers[0].kind.api_style, "--duration-secs", str(whole_seconds), *arguments]
    return _run(command, whole_seconds)


def _run(command: list[str], seconds: float) -> str:
    program = Path(command[0]).name
    try:
        done = subprocess.run(
            command, cwd=SCRIPTS, capture_output=True, text=True, timeout=seconds + SPARE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{program} did not end") from None
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()
        raise Failed(f"{program}: {lines[0]}")  # a backtrace may follow
    return done.stdout


def _last_object(output: str) -> bytes:
    """The JSON object with which an output ends; what comes before it is for people."""
    for match in re.finditer(r"^\{", output, re.MULTILINE):
        try:
            return json.dumps(json.loads(output[match.start() :])).encode()
        except ValueError:
            continue
    raise Failed("the load generator gave no result")
