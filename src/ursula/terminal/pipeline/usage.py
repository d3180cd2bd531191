"""ursula pipeline usage."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..output import counted, size_text
from ..progress import ProgressDisplay
from ..server.session import ServerOptions
from .job import JobOptions, StoreOnly, StorePath

if TYPE_CHECKING:
    from ursula.pipeline import Usage


def usage(
    *,
    store: StoreOnly = None,
    bucket: Annotated[
        str | None, typer.Option("--bucket", metavar="BUCKET", help="Only this bucket.", show_default=False)
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option(
            "--chart", metavar="FILE", help="Draw the bytes by day to an SVG file.", show_default=False
        ),
    ] = None,
    path: StorePath = None,
    server: ServerOptions,
    job: JobOptions,
) -> None:
    """Count the messages, bytes and streams of each bucket by day.

    [bold]Examples[/bold]

      ursula pipeline usage
      ursula pipeline usage --bucket orders --chart usage.svg
      ursula pipeline usage --store s3://bucket/prefix --json
    """
    from ursula.pipeline import usage as run
    from ursula.pipeline.chart import stacked_bars

    with job.session() as spark, ProgressDisplay() as progress:
        found = run(
            spark,
            None if store else server.url,
            auth=server.auth,
            path=store or path,
            s3=job.s3,
            bucket=bucket,
            dry_run=job.dry_run,
            progress=progress,
        )
    if chart is not None:
        sizes = {(used.bucket, used.day.isoformat()): float(used.bytes) for used in found.used}
        chart.write_text(stacked_bars("bytes by day", "bytes", sizes))
    facts = asdict(found)
    facts["used"] = [used._asdict() | {"day": used.day.isoformat()} for used in found.used]
    job.print_report(facts, _lines(found))


def _lines(found: "Usage") -> dict[str, str]:
    if found.dry_run:
        return {"would read": f"{counted(found.segments, 'segment')} of {size_text(found.bytes_read)}"}
    lines = {}
    for used in found.used:
        streams = counted(used.streams, "stream")
        counts = f"{counted(used.messages, 'message')}, {size_text(used.bytes)}, {streams}"
        lines[f"{used.day} {used.bucket}"] = counts
    return lines
