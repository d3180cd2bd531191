"""ursula pipeline: jobs on history that Spark runs, one per file."""

import typer

from ..option_groups import with_option_groups
from . import backup, compact, export, materialize, restore, usage, verify

app = typer.Typer(help="Run jobs on history, with Spark.", no_args_is_help=True)

for command in (
    compact.compact,
    usage.usage,
    verify.verify,
    export.export,
    materialize.materialize,
    backup.backup,
    restore.restore,
):
    app.command()(with_option_groups(command))
