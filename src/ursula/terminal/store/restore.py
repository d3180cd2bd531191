"""ursula restore."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ursula.times import format_time

from ..output import counted, emit_json, emit_line, fail, say, size_text
from ..progress import ProgressDisplay
from .fence import fence_of
from .opened_store import At, ConfigFile, moment_of, settings_of, with_store

if TYPE_CHECKING:
    from ursula.cold.objects.store import Store
    from ursula.config import Settings
    from ursula.engine.offline.restore import Restored

DAMAGES_SHOWN = 20


def restore(
    *,
    source: Annotated[
        str,
        typer.Option("--from", metavar="STORE", help="A folder, or s3://bucket/prefix.", show_default=False),
    ],
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="FOLDER",
            help="The folder of the new node: new, or empty except for the store. Not for a cluster.",
            show_default=False,
        ),
    ] = None,
    at: At = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="First read everything, and check every byte.")
    ] = False,
    accept_damage: Annotated[
        bool,
        typer.Option(
            "--accept-damage",
            help="Restore even if objects are missing or damaged: their contents are lost.",
        ),
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Take over the store from a server that is using it; that server stops."
        ),
    ] = False,
    log_is_gone: Annotated[
        bool,
        typer.Option(
            "--log-is-gone",
            help="The cluster's log in etcd is lost for good, or this store is a copy: do not fence it.",
        ),
    ] = False,
    config: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a new node from the store alone, as of the last flush or an earlier one.

    Streams come back with their offsets, producers, attributes, snapshots, closure
    and lifetimes. Anything written after that flush is lost. The node continues
    with this store, in a new generation. A store that a server still uses is
    refused: stop that server first, or take over its store (--take-over).

    The store of a cluster needs no --data-dir: its nodes continue from the store when
    they start again. Restore it while they run, with --take-over and the --config of
    one of them, so that the log in etcd is fenced; if that log is lost, add --log-is-gone.

    If the command is interrupted, run it again.

    [bold]Examples[/bold]

      ursula restore --from /backup/cold --data-dir /var/lib/ursula
      ursula restore --from s3://bucket/prefix --data-dir data --at '2h ago'
      ursula restore --from data/cold --data-dir data --at 2030-01-01T12:00:00Z --verify
      ursula restore --from shared --config node1.toml --take-over
    """
    from ursula.engine.offline.restore import Damaged
    from ursula.engine.offline.restore import restore as restore_node
    from ursula.engine.start.data_folder import NewFolder

    settings = settings_of(config, data_dir)
    moment = moment_of(at)
    if data_dir is not None and settings.cluster.name:
        hint = "the nodes of a cluster continue from the store by themselves: leave --data-dir out"
        raise typer.BadParameter(hint, param_hint="--data-dir")

    async def work(store: "Store") -> "tuple[Restored, str]":
        place = store.local_path("generations")
        root = None if place is None else place.parent
        folder = None if data_dir is None else NewFolder(data_dir, root)
        try:
            with ProgressDisplay() as progress:
                restored = await restore_node(
                    store,
                    folder,
                    moment,
                    progress,
                    read_all=verify,
                    accept_damage=accept_damage,
                    take_over=take_over,
                    fence=fence_of(settings, store),
                    log_is_gone=log_is_gone,
                )
            return restored, store.root
        except Damaged as error:
            for damage in error.damages[:DAMAGES_SHOWN]:
                say(f"{damage.name}: {damage.problem}")
            fail(
                f"{error}: go back further with --at, put them back, or restore the rest with --accept-damage"
            )
        finally:
            if folder is not None:
                folder.close()

    restored, root = with_store(source, settings, work)
    command = "ursula serve"
    if data_dir is not None:
        command = _start_command(root, data_dir, config, settings)
    if as_json:
        emit_json(_as_json(restored, root, command))
    else:
        _print(restored, root, command)
        if restored.etcd and log_is_gone:
            say("Move the data folders of all nodes away before you start them: what is in them is obsolete")


def _print(restored: "Restored", root: str, command: str) -> None:
    extent = restored.extent
    newer = sum(chosen.newer_count for chosen in restored.chosen)
    lost = f"everything written after {format_time(restored.at)}"
    lines = {
        "from": root,
        "as of": f"{format_time(restored.at)}, {_positions(restored)}",
        "generation": f"{restored.generation} of the cluster {restored.cluster}",
        "streams": f"{extent.streams} in {counted(extent.buckets, 'bucket')}",
        "messages": f"{size_text(extent.payload_bytes)} in {counted(extent.segments, 'segment')} of "
        f"{size_text(extent.segment_bytes)}",
        "snapshots": f"{extent.blobs} of {size_text(extent.blob_bytes)}",
        "lost": lost if not newer else f"{lost}, with {newer} later flush{'' if newer == 1 else 'es'}",
    }
    for name, text in lines.items():
        emit_line(f"{name:<16}{text}")
    for damage in restored.damages[:DAMAGES_SHOWN]:
        emit_line(f"{'damaged':<16}{damage.name}: {damage.problem}")
    if len(restored.damages) > DAMAGES_SHOWN:
        emit_line(f"{'damaged':<16}and {len(restored.damages) - DAMAGES_SHOWN} more")
    hint = f" on every node of {restored.etcd}, as before" if restored.etcd else ""
    emit_line(f"{'start it with':<16}{command}{hint}")


def _positions(restored: "Restored") -> str:
    found = [f"{chosen.manifest.position:020d}" for chosen in restored.chosen]
    return f"position {found[0]}" if len(found) == 1 else f"positions {', '.join(found)}"


def _as_json(restored: "Restored", root: str, command: str) -> dict[str, object]:
    groups = [
        {
            "group": chosen.manifest.group,
            "position": f"{chosen.manifest.position:020d}",
            "at": format_time(chosen.manifest.at),
            "manifest": chosen.key,
            "later_manifests": chosen.newer_count,
        }
        for chosen in restored.chosen
    ]
    return {
        "from": root,
        "cluster": restored.cluster,
        "generation": restored.generation,
        "at": format_time(restored.at),
        "groups": groups,
        **restored.extent._asdict(),
        "damaged": [damage._asdict() for damage in restored.damages],
        "start": command,
    }


def _start_command(root: str, data_dir: Path, config: Path | None, settings: "Settings") -> str:
    """The command that starts the node with its store."""
    from ursula.cold.objects.open import open_store

    words = ["ursula", "serve", "--data-dir", str(data_dir)]
    if config is not None:
        words += ["--config", str(config)]
    command = shlex.join(words)
    if open_store(settings.cold, data_dir).root == root:
        return command
    named = {"URSULA_COLD__BACKEND": "fs", "URSULA_COLD__ROOT": root}
    if root.startswith("s3://"):
        bucket, _, prefix = root.removeprefix("s3://").partition("/")
        named = {"URSULA_COLD__BACKEND": "s3", "URSULA_COLD__S3_BUCKET": bucket, "URSULA_COLD__ROOT": prefix}
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in named.items()), command])
