"""ursula pipeline materialize."""

from dataclasses import asdict
from typing import Annotated

import typer

from ..output import counted
from ..progress import ProgressDisplay
from ..server.session import ServerOptions
from .job import BucketName, Folder, JobOptions, StoreOnly


def materialize(
    bucket: BucketName,
    fold: Annotated[
        str,
        typer.Argument(metavar="MODULE:FUNCTION", help="fold(state, messages) -> state", show_default=False),
    ],
    target: Folder,
    *,
    publish: Annotated[
        bool, typer.Option("--publish", help="Also publish the states as snapshots of their streams.")
    ] = False,
    trim: Annotated[bool, typer.Option("--trim", help="Trim the streams before their snapshots.")] = False,
    store: StoreOnly = None,
    server: ServerOptions,
    job: JobOptions,
) -> None:
    """Fold every stream of a bucket into a state; later runs read only what is new.

    The function is called with a state (None at first) and a list of messages, repeatedly
    until there are no more. Messages of JSON streams are values, others are bytes.

    [bold]Examples[/bold]

      ursula pipeline materialize chats chat:fold /data/states
      ursula pipeline materialize chats chat:fold /data/states --publish
    """
    from ursula.pipeline import materialize as run

    options = job.read_options(bucket, server, store)
    with job.session() as spark, ProgressDisplay() as progress:
        found = run(
            spark, target, options, fold, publish=publish, trim=trim, dry_run=job.dry_run, progress=progress
        )
    lines = {
        "positions": f"after {found.after} up to {found.position}",
        "states": f"{found.states}, {found.changed} of them changed",
        "without a state": f"{counted(found.partial, 'stream')} whose beginning is missing",
        **{word: str(count) for word, count in found.published.items()},
    }
    job.print_report(asdict(found), lines)
