"""ursula pipeline verify."""

import typer

from ..output import counted, size_text
from ..progress import ProgressDisplay
from .job import JobOptions, StorePlace


def verify(store: StorePlace, *, job: JobOptions) -> None:
    """Read a whole store and check it: digests, checksums, and every byte of every stream.

    Each damaged object is named on its own line, and the exit code is then 1.

    [bold]Examples[/bold]

      ursula pipeline verify /var/lib/ursula/cold
      ursula pipeline verify s3://bucket/prefix --master spark://cluster:7077 --json
    """
    from ursula.pipeline import verify as run

    with job.session() as spark, ProgressDisplay() as progress:
        found = run(spark, store, s3=job.s3, dry_run=job.dry_run, progress=progress)
    extent = found.extent
    lines = {damage.name: damage.problem for damage in found.damages}
    lines["would read" if job.dry_run else "read"] = (
        f"{counted(extent.segments, 'segment')} of {size_text(extent.segment_bytes)} with "
        f"{counted(extent.rows, 'row')}, {counted(extent.blobs, 'snapshot')}; "
        f"{counted(extent.streams, 'stream')} in {counted(extent.buckets, 'bucket')}"
    )
    facts = {
        "dry_run": job.dry_run,
        "extent": extent._asdict(),
        "positions": found.positions,
        "damages": [damage._asdict() for damage in found.damages],
    }
    job.print_report(facts, lines)
    if found.damages:
        raise typer.Exit(1)
