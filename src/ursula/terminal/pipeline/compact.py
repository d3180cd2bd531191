"""ursula pipeline compact."""

from dataclasses import asdict
from typing import Annotated

import typer

from ..output import counted, size_text
from ..progress import ProgressDisplay
from ..server.session import ServerOptions
from .job import JobOptions, StorePath


def compact(
    *,
    path: StorePath = None,
    segment_mib: Annotated[
        int, typer.Option("--segment-size", min=1, metavar="MIB", help="The largest size of a segment.")
    ] = 256,
    server: ServerOptions,
    job: JobOptions,
) -> None:
    """Merge many small segments into few large ones, while the server keeps running.

    Readers do not notice. The job can be killed at any time, and run again.

    [bold]Examples[/bold]

      ursula pipeline compact
      ursula pipeline compact --dry-run --json
      ursula pipeline compact --url http://db:4437 --master spark://cluster:7077
    """
    from ursula.pipeline import compact as run

    with job.session() as spark, ProgressDisplay() as progress:
        found = run(
            spark,
            server.url,
            auth=server.auth,
            path=path,
            s3=job.s3,
            segment_bytes=segment_mib << 20,
            dry_run=job.dry_run,
            progress=lambda done, total: progress("merging segments", done, total),
        )
    lines = {
        "would merge" if job.dry_run else "merged": f"{counted(found.runs, 'run')} of neighbouring segments",
        "segments": f"{found.segments_before} before, {found.segments_after} after",
        "bytes": size_text(found.bytes_before)
        + ("" if job.dry_run else f" before, {size_text(found.bytes_after)} after"),
        "rows": f"{found.rows}",
        "skipped": f"{counted(len(found.overtaken), 'run')} that the server merged in the meantime",
    }
    job.print_report(asdict(found), lines)
