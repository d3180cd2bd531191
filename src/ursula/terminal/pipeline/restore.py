"""ursula pipeline restore."""

from pathlib import Path
from typing import Annotated

import typer

from ..output import counted, size_text
from ..progress import ProgressDisplay
from .job import PLACE, JobOptions


def restore(
    source: Annotated[str, typer.Argument(metavar="COPY", help=PLACE, show_default=False)],
    *,
    data_dir: Annotated[
        Path,
        typer.Option("--data-dir", metavar="FOLDER", help="The folder of the new node.", show_default=False),
    ],
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="STORE",
            help="The store of the new node. [dim]Default: in its data folder[/dim]",
            show_default=False,
        ),
    ] = None,
    job: JobOptions,
) -> None:
    """Make a new node from a copy of a store; the copy is not changed.

    If the job is interrupted, run it again. To make a node that continues with the store
    itself, use ursula restore.

    [bold]Examples[/bold]

      ursula pipeline restore /backup/ursula --data-dir /var/lib/ursula
      ursula pipeline restore s3://backup/prefix --data-dir data --store s3://bucket/prefix
    """
    from ursula.pipeline import restore as run

    with job.session() as spark, ProgressDisplay() as progress:
        found = run(spark, source, data_dir, store=store, s3=job.s3, dry_run=job.dry_run, progress=progress)
    extent = found.extent
    lines = {damage.name: damage.problem for damage in found.damages}
    for chosen in found.chosen:
        group = chosen.manifest.group
        lines["manifest" if group == 0 else f"manifest of group {group}"] = chosen.key
    lines |= {
        "up to": ", ".join(f"position {chosen.manifest.position}" for chosen in found.chosen),
        "would be generation" if job.dry_run else "generation": f"{found.generation} of the cluster "
        f"{found.cluster}",
        "streams": f"{extent.streams} in {counted(extent.buckets, 'bucket')}",
        "messages": f"{size_text(extent.payload_bytes)} in {counted(extent.segments, 'segment')} of "
        f"{size_text(extent.segment_bytes)}",
        "snapshots": f"{extent.blobs} of {size_text(extent.blob_bytes)}",
    }
    facts = {
        "dry_run": job.dry_run,
        "cluster": found.cluster,
        "generation": found.generation,
        "manifests": [chosen.key for chosen in found.chosen],
        "positions": {chosen.manifest.group: chosen.manifest.position for chosen in found.chosen},
        "extent": extent._asdict(),
        "damages": [damage._asdict() for damage in found.damages],
    }
    job.print_report(facts, lines)
    if found.damages:
        raise typer.Exit(1)
