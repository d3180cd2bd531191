"""The commands of `ursula` except `serve` and `config`, each in a file of its own name.

- `dev`: a cluster on this machine;
- `server`: commands that talk to a server, on top of `ursula.client`;
- `store`: commands that work on a store, without a server;
- `pipeline`: jobs that Spark runs.

Results go to standard output, ready for pipes; everything else goes to standard error.
"""

from collections.abc import Callable

import typer

from . import pipeline
from .dev import dev
from .option_groups import with_option_groups
from .server import append, attributes, close, create, delete, feed, flush, ls, read, snapshot, undelete
from .store import inspect, restore

STREAMS = "Streams"
BUCKETS = "Buckets"
SERVER = "Server"


def register(app: typer.Typer) -> None:
    """Add all commands."""

    def add(panel: str, command: Callable[..., None], name: str | None = None) -> None:
        app.command(name, rich_help_panel=panel)(with_option_groups(command))

    add(STREAMS, create.create)
    add(STREAMS, append.append)
    add(STREAMS, read.read)
    add(STREAMS, read.tail)
    add(STREAMS, read.head)
    add(STREAMS, close.close)
    add(STREAMS, delete.delete)
    add(STREAMS, undelete.undelete)
    app.add_typer(attributes.app, name="attrs", rich_help_panel=STREAMS)
    app.add_typer(snapshot.app, name="snapshot", rich_help_panel=STREAMS)
    add(BUCKETS, ls.list_names, "ls")
    add(BUCKETS, feed.feed)
    add(SERVER, dev.dev)
    add(SERVER, flush.flush)
    add(SERVER, restore.restore)
    add(SERVER, inspect.inspect)
    app.add_typer(pipeline.app, name="pipeline", rich_help_panel=SERVER)
