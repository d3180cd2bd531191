"""ursula pipeline: jobs on history, run by Spark."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import counted, emit_json, emit_line, fail, size_text
from .session import DEFAULT_URL
from .stores import Shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ursula.pipeline import Usage
    from ursula.spark.options import S3Options

app = typer.Typer(help="Jobs on history, run by Spark.", no_args_is_help=True)

Endpoint = Annotated[
    str,
    typer.Option(
        "--endpoint",
        envvar="URSULA_URL",
        metavar="URL",
        help="The server.",
        show_default=DEFAULT_URL,
    ),
]
StorePath = Annotated[
    str | None,
    typer.Option(
        "--path",
        metavar="STORE",
        help="The root of its store, where tasks reach it in another way than the server does.",
        show_default=False,
    ),
]
StoreOnly = Annotated[
    str | None,
    typer.Option("--store", metavar="STORE", help="Read this store, without a server.", show_default=False),
]
_PLACE = "A folder, or s3://bucket/prefix."
StorePlace = Annotated[str, typer.Argument(metavar="STORE", help=_PLACE, show_default=False)]
Folder = Annotated[str, typer.Argument(metavar="FOLDER", help=_PLACE, show_default=False)]
BucketName = Annotated[str, typer.Argument(metavar="BUCKET", help="Which one.", show_default=False)]
Master = Annotated[str, typer.Option("--master", metavar="MASTER", help="Where Spark runs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Write the report here too, as JSON.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Also print what Spark logs below errors.")]
S3Endpoint = Annotated[
    str | None,
    typer.Option(
        "--s3-endpoint",
        metavar="URL",
        help="Where S3 is; keys are found as AWS's own tools find them.",
        show_default=False,
    ),
]
S3Region = Annotated[str | None, typer.Option("--s3-region", metavar="NAME", show_default=False)]


@app.command()
def compact(
    endpoint: Endpoint = DEFAULT_URL,
    path: StorePath = None,
    segment_mib: Annotated[
        int, typer.Option("--segment-size", min=1, metavar="MIB", help="How large a segment may get.")
    ] = 256,
    master: Master = "local[*]",
    dry_run: DryRun = False,
    report: Report = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    s3_endpoint: S3Endpoint = None,
    s3_region: S3Region = None,
) -> None:
    """Make few large segments of many small ones, while the server goes on.

    Readers do not notice. It may be killed at any time, and run again.

    [bold]Examples[/bold]

      ursula pipeline compact
      ursula pipeline compact --dry-run --json
      ursula pipeline compact --endpoint http://db:4437 --master spark://cluster:7077
    """
    from ursula.pipeline import compact as run

    with _session(master, verbose) as spark, Shown() as progress:
        found = run(
            spark,
            endpoint,
            path=path,
            s3=_s3(s3_endpoint, s3_region),
            segment_bytes=segment_mib << 20,
            dry_run=dry_run,
            progress=lambda done, total: progress("putting segments together", done, total),
        )
    lines = {
        "would be" if dry_run else "put together": f"{counted(found.runs, 'run')} of neighbours",
        "segments": f"{found.segments_before}, then {found.segments_after}",
        "bytes": size_text(found.bytes_before)
        + ("" if dry_run else f", then {size_text(found.bytes_after)}"),
        "rows": f"{found.rows}",
        "left as they are": f"{len(found.overtaken)}, since the server merged them meanwhile",
    }
    _tell(asdict(found), lines, report, as_json)


@app.command()
def usage(
    endpoint: Endpoint = DEFAULT_URL,
    store: StoreOnly = None,
    bucket: Annotated[
        str | None, typer.Option("--bucket", metavar="BUCKET", help="Only this one.", show_default=False)
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option("--chart", metavar="FILE", help="Draw bytes by day here, as SVG.", show_default=False),
    ] = None,
    path: StorePath = None,
    master: Master = "local[*]",
    dry_run: DryRun = False,
    report: Report = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    s3_endpoint: S3Endpoint = None,
    s3_region: S3Region = None,
) -> None:
    """Count messages, bytes and streams of each bucket, day by day.

    [bold]Examples[/bold]

      ursula pipeline usage
      ursula pipeline usage --bucket orders --chart usage.svg
      ursula pipeline usage --store s3://bucket/prefix --json
    """
    from ursula.pipeline import usage as run
    from ursula.pipeline.chart import stacked_bars

    with _session(master, verbose) as spark, Shown() as progress:
        found = run(
            spark,
            None if store else endpoint,
            path=store or path,
            s3=_s3(s3_endpoint, s3_region),
            bucket=bucket,
            dry_run=dry_run,
            progress=progress,
        )
    if chart is not None:
        sizes = {(used.bucket, used.day.isoformat()): float(used.bytes) for used in found.used}
        chart.write_text(stacked_bars("bytes by day", "bytes", sizes))
    facts = asdict(found)
    facts["used"] = [used._asdict() | {"day": used.day.isoformat()} for used in found.used]
    _tell(facts, _used_lines(found), report, as_json)


def _used_lines(found: "Usage") -> dict[str, str]:
    if found.dry_run:
        return {"would be read": f"{counted(found.segments, 'segment')} of {size_text(found.bytes_read)}"}
    lines = {}
    for used in found.used:
        streams = counted(used.streams, "stream")
        counts = f"{counted(used.messages, 'message')}, {size_text(used.bytes)}, {streams}"
        lines[f"{used.day} {used.bucket}"] = counts
    return lines


@app.command()
def verify(
    store: StorePlace,
    master: Master = "local[*]",
    dry_run: DryRun = False,
    report: Report = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    s3_endpoint: S3Endpoint = None,
    s3_region: S3Region = None,
) -> None:
    """Read a whole store and check it: digests, checksums, and every byte of every stream.

    Each object that is damaged is on a line of its own, and the exit code is 1.

    [bold]Examples[/bold]

      ursula pipeline verify /var/lib/ursula/cold
      ursula pipeline verify s3://bucket/prefix --master spark://cluster:7077 --json
    """
    from ursula.pipeline import verify as run

    with _session(master, verbose) as spark, Shown() as progress:
        found = run(spark, store, s3=_s3(s3_endpoint, s3_region), dry_run=dry_run, progress=progress)
    extent = found.extent
    lines = {damage.name: damage.problem for damage in found.damages}
    lines["would be read" if dry_run else "read"] = (
        f"{counted(extent.segments, 'segment')} of {size_text(extent.segment_bytes)} with "
        f"{counted(extent.rows, 'row')}, {counted(extent.blobs, 'snapshot')}; "
        f"{counted(extent.streams, 'stream')} in {counted(extent.buckets, 'bucket')}"
    )
    facts = {
        "dry_run": dry_run,
        "extent": extent._asdict(),
        "positions": found.positions,
        "damages": [damage._asdict() for damage in found.damages],
    }
    _tell(facts, lines, report, as_json)
    if found.damages:
        raise typer.Exit(1)


@app.command()
def export(
    bucket: BucketName,
    target: Folder,
    expand_json: Annotated[
        bool, typer.Option("--expand-json", help="Also have the fields of JSON messages as columns.")
    ] = False,
    endpoint: Endpoint = DEFAULT_URL,
    store: StoreOnly = None,
    master: Master = "local[*]",
    dry_run: DryRun = False,
    report: Report = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    s3_endpoint: S3Endpoint = None,
    s3_region: S3Region = None,
) -> None:
    """Write a bucket to Parquet files by date; again, only what is new.

    It may be killed at any time, and run again: no row is lost or there twice.

    [bold]Examples[/bold]

      ursula pipeline export orders /data/lake --expand-json
      ursula pipeline export orders s3://lake/ursula --endpoint http://db:4437
    """
    from ursula.pipeline import export as run

    options = _read_options(bucket, endpoint, store, s3_endpoint, s3_region)
    with _session(master, verbose) as spark, Shown() as progress:
        found = run(spark, target, options, expand_json=expand_json, dry_run=dry_run, progress=progress)
    lines = {
        "positions": f"after {found.after} up to {found.position}",
        "would be written" if dry_run else "written": "what is new"
        if dry_run
        else f"{counted(found.rows, 'row')} in {counted(found.files, 'file')} of {size_text(found.bytes)}",
    }
    if found.columns is not None:
        lines["columns of JSON"] = ", ".join(found.columns)
    _tell(asdict(found), lines, report, as_json)


@app.command()
def materialize(
    bucket: BucketName,
    fold: Annotated[
        str,
        typer.Argument(metavar="MODULE:FUNCTION", help="fold(state, messages) -> state", show_default=False),
    ],
    target: Folder,
    publish: Annotated[
        bool, typer.Option("--publish", help="Make the states snapshots of their streams too.")
    ] = False,
    trim: Annotated[
        bool, typer.Option("--trim", help="Drop from the streams what the snapshots stand for.")
    ] = False,
    endpoint: Endpoint = DEFAULT_URL,
    store: StoreOnly = None,
    master: Master = "local[*]",
    dry_run: DryRun = False,
    report: Report = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    s3_endpoint: S3Endpoint = None,
    s3_region: S3Region = None,
) -> None:
    """Fold every stream of a bucket into a state; again, only what is new is read.

    The function is called with a state (None at first) and a list of messages, as often
    as there are more. Messages of JSON streams are values, others are bytes.

    [bold]Examples[/bold]

      ursula pipeline materialize chats chat:fold /data/states
      ursula pipeline materialize chats chat:fold /data/states --publish
    """
    from ursula.pipeline import materialize as run

    options = _read_options(bucket, endpoint, store, s3_endpoint, s3_region)
    with _session(master, verbose) as spark, Shown() as progress:
        found = run(
            spark, target, options, fold, publish=publish, trim=trim, dry_run=dry_run, progress=progress
        )
    lines = {
        "positions": f"after {found.after} up to {found.position}",
        "states": f"{found.states}, of which {found.changed} have changed",
        "without a state": f"{counted(found.partial, 'stream')} whose beginning is not there",
        **{word: str(count) for word, count in found.published.items()},
    }
    _tell(asdict(found), lines, report, as_json)


@app.command()
def backup(
    source: StorePlace,
    target: Annotated[
        str, typer.Argument(metavar="COPY", help="Where the copy is to be, or is.", show_default=False)
    ],
    master: Master = "local[*]",
    dry_run: DryRun = False,
    report: Report = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    s3_endpoint: S3Endpoint = None,
    s3_region: S3Region = None,
) -> None:
    """Copy a store as of its last flush, or go on with a copy: only what is new is copied.

    It may be killed at any time, and run again; until it is done, the copy is what it was before.

    [bold]Examples[/bold]

      ursula pipeline backup /var/lib/ursula/cold /backup/ursula
      ursula pipeline backup s3://bucket/prefix s3://backup/prefix --master spark://cluster:7077
    """
    from ursula.pipeline import backup as run

    with _session(master, verbose) as spark, Shown() as progress:
        s3 = _s3(s3_endpoint, s3_region)
        found = run(spark, source, target, s3=s3, dry_run=dry_run, progress=progress)
    lines = {failed.name: failed.problem for failed in found.damages}
    lines |= {
        "would copy" if dry_run else "copied": f"{counted(found.copied_objects, 'object')} of "
        f"{size_text(found.copied_bytes)}",
        "there then": f"{counted(found.objects, 'object')} of {size_text(found.bytes)}",
    }
    _tell(asdict(found), lines, report, as_json)
    if found.damages:
        damaged = counted(len(found.damages), "damaged object")
        fail(f"the copy was left as it was before: the store has {damaged}")


@app.command()
def restore(
    source: Annotated[str, typer.Argument(metavar="COPY", help=_PLACE, show_default=False)],
    data_dir: Annotated[
        Path,
        typer.Option("--data-dir", metavar="FOLDER", help="Where the new node is to be.", show_default=False),
    ],
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="STORE", help="Its store; by default in the data folder.", show_default=False
        ),
    ] = None,
    master: Master = "local[*]",
    dry_run: DryRun = False,
    report: Report = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    s3_endpoint: S3Endpoint = None,
    s3_region: S3Region = None,
) -> None:
    """Make a new node from a copy, which stays as it is.

    If it is interrupted, run it again. To restore with the store that is there, use ursula restore.

    [bold]Examples[/bold]

      ursula pipeline restore /backup/ursula --data-dir /var/lib/ursula
      ursula pipeline restore s3://backup/prefix --data-dir data --store s3://bucket/prefix
    """
    from ursula.pipeline import restore as run

    with _session(master, verbose) as spark, Shown() as progress:
        s3 = _s3(s3_endpoint, s3_region)
        found = run(spark, source, data_dir, store=store, s3=s3, dry_run=dry_run, progress=progress)
    extent = found.extent
    lines = {damage.name: damage.problem for damage in found.damages}
    for chosen in found.chosen:
        lines["manifest" if chosen.manifest.group == 0 else f"of group {chosen.manifest.group}"] = chosen.key
    lines |= {
        "up to": ", ".join(f"position {chosen.manifest.position}" for chosen in found.chosen),
        "would be generation" if dry_run else "generation": f"{found.generation} of the cluster "
        f"{found.cluster}",
        "streams": f"{extent.streams} in {counted(extent.buckets, 'bucket')}",
        "messages": f"{size_text(extent.payload_bytes)} in {counted(extent.segments, 'segment')} of "
        f"{size_text(extent.segment_bytes)}",
        "snapshots": f"{extent.blobs} of {size_text(extent.blob_bytes)}",
    }
    facts = {
        "dry_run": dry_run,
        "cluster": found.cluster,
        "generation": found.generation,
        "manifests": [chosen.key for chosen in found.chosen],
        "positions": {chosen.manifest.group: chosen.manifest.position for chosen in found.chosen},
        "extent": extent._asdict(),
        "damages": [damage._asdict() for damage in found.damages],
    }
    _tell(facts, lines, report, as_json)
    if found.damages:
        raise typer.Exit(1)


@contextmanager
def _session(master: str, verbose: bool) -> "Iterator[SparkSession]":
    """A session for the time of a job; one that was there before stays. Errors are told in one line."""
    from ursula.cold.objects.store import StoreFailed
    from ursula.engine.data_folder import FolderRefused
    from ursula.engine.load_state import StoreRefused
    from ursula.engine.offline.restore import RestoreRefused
    from ursula.pipeline.job_lease import LeaseTaken
    from ursula.spark import session
    from ursula.spark.http_client import RequestRefused, ServerUnreachable
    from ursula.spark.launch.java import JavaMissing
    from ursula.spark.options import OptionError
    from ursula.spark.spark_errors import root_cause

    try:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        before = SparkSession.getActiveSession()
        if before is not None and before.sparkContext.master != master:
            fail(f"this process has a session at {before.sparkContext.master} already: stop it first")
        spark = session(master, {"spark.ui.showConsoleProgress": "false"}, quiet=not verbose)
    except JavaMissing as error:
        fail(str(error))
    try:
        yield spark
    except (
        OptionError,
        RequestRefused,
        ServerUnreachable,
        StoreFailed,
        RestoreRefused,
        StoreRefused,
        FolderRefused,
        LeaseTaken,
        OSError,
    ) as error:
        fail(str(error))
    except (PySparkException, Py4JJavaError) as error:
        fail(f"a task failed: {root_cause(error)}")
    finally:
        if before is None:
            spark.stop()


def _read_options(
    bucket: str, endpoint: str, store: str | None, s3_endpoint: str | None, s3_region: str | None
) -> dict[str, str]:
    """The options of a read from a server, or from a store without one."""
    where = {"path": store} if store else {"endpoint": endpoint}
    given = {"bucket": bucket, **where, "s3Endpoint": s3_endpoint, "s3Region": s3_region}
    return {name: text for name, text in given.items() if text is not None}


def _s3(endpoint: str | None, region: str | None) -> "S3Options":
    from ursula.spark.options import S3Options

    return S3Options(endpoint, region)


def _tell(facts: dict[str, Any], lines: dict[str, str], report: Path | None, as_json: bool) -> None:
    if report is not None:
        report.write_text(json.dumps(facts, indent=2) + "\n")
    if as_json:
        emit_json(facts)
        return
    width = max(map(len, lines), default=0) + 2
    for name, line in lines.items():
        emit_line(f"{name:<{width}}{line}")
