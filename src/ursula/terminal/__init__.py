"""`ursula` as a client for a person at a terminal: a command per file and subject, on top of `ursula.client`.

Results go to standard output as they are, fit for pipes; everything else goes to standard error.
"""

import typer

from . import (
    appending,
    attributes,
    creating,
    ending,
    feeding,
    inspecting,
    listing,
    operating,
    pipeline,
    reading,
    restoring,
    snapshots,
)

STREAMS = "Streams"
BUCKETS = "Buckets"
SERVER = "Server"


def register(app: typer.Typer) -> None:
    """Add the commands of the client, and those that work on a store."""
    app.command(rich_help_panel=STREAMS)(creating.create)
    app.command(rich_help_panel=STREAMS)(appending.append)
    app.command(rich_help_panel=STREAMS)(reading.read)
    app.command(rich_help_panel=STREAMS)(reading.tail)
    app.command(rich_help_panel=STREAMS)(reading.head)
    app.command(rich_help_panel=STREAMS)(ending.close)
    app.command(rich_help_panel=STREAMS)(ending.delete)
    app.command(rich_help_panel=STREAMS)(operating.undelete)
    app.add_typer(attributes.app, name="attrs", rich_help_panel=STREAMS)
    app.add_typer(snapshots.app, name="snapshot", rich_help_panel=STREAMS)
    app.command("ls", rich_help_panel=BUCKETS)(listing.list_names)
    app.command(rich_help_panel=BUCKETS)(feeding.feed)
    app.command(rich_help_panel=SERVER)(operating.flush)
    app.command(rich_help_panel=SERVER)(restoring.restore)
    app.command(rich_help_panel=SERVER)(inspecting.inspect)
    app.add_typer(pipeline.app, name="pipeline", rich_help_panel=SERVER)
