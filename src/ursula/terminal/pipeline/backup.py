"""ursula pipeline backup."""

from dataclasses import asdict
from typing import Annotated

import typer

from ..output import counted, fail, size_text
from ..progress import ProgressDisplay
from .job import JobOptions, StorePlace


def backup(
    source: StorePlace,
    target: Annotated[
        str, typer.Argument(metavar="COPY", help="The new copy, or an existing one.", show_default=False)
    ],
    *,
    job: JobOptions,
) -> None:
    """Copy a store as of its last flush, or update a copy: only new objects are copied.

    The job can be killed at any time, and run again; until it is done, the copy stays as it was.

    [bold]Examples[/bold]

      ursula pipeline backup /var/lib/ursula/cold /backup/ursula
      ursula pipeline backup s3://bucket/prefix s3://backup/prefix --master spark://cluster:7077
    """
    from ursula.pipeline import backup as run

    with job.session() as spark, ProgressDisplay() as progress:
        found = run(spark, source, target, s3=job.s3, dry_run=job.dry_run, progress=progress)
    lines = {failed.name: failed.problem for failed in found.damages}
    lines |= {
        "would copy" if job.dry_run else "copied": f"{counted(found.copied_objects, 'object')} of "
        f"{size_text(found.copied_bytes)}",
        "total": f"{counted(found.objects, 'object')} of {size_text(found.bytes)}",
    }
    job.print_report(asdict(found), lines)
    if found.damages:
        damaged = counted(len(found.damages), "damaged object")
        fail(f"the copy was left as it was: the store has {damaged}")
