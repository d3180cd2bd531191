"""ursula pipeline export."""

from dataclasses import asdict
from typing import Annotated

import typer

from ..output import counted, size_text
from ..progress import ProgressDisplay
from ..server.session import ServerOptions
from .job import BucketName, Folder, JobOptions, StoreOnly


def export(
    bucket: BucketName,
    target: Folder,
    *,
    expand_json: Annotated[
        bool, typer.Option("--expand-json", help="Add a column for each field of the JSON messages.")
    ] = False,
    store: StoreOnly = None,
    server: ServerOptions,
    job: JobOptions,
) -> None:
    """Write a bucket to Parquet files by date; later runs write only what is new.

    The job can be killed at any time, and run again: no row is lost or written twice.

    [bold]Examples[/bold]

      ursula pipeline export orders /data/lake --expand-json
      ursula pipeline export orders s3://lake/ursula --url http://db:4437
    """
    from ursula.pipeline import export as run

    options = job.read_options(bucket, server, store)
    with job.session() as spark, ProgressDisplay() as progress:
        found = run(spark, target, options, expand_json=expand_json, dry_run=job.dry_run, progress=progress)
    rows = f"{counted(found.rows, 'row')} in {counted(found.files, 'file')} of {size_text(found.bytes)}"
    lines = {
        "positions": f"after {found.after} up to {found.position}",
        "would write" if job.dry_run else "wrote": "everything new" if job.dry_run else rows,
    }
    if found.columns is not None:
        lines["JSON columns"] = ", ".join(found.columns)
    job.print_report(asdict(found), lines)
