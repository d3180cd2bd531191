"""ursula inspect."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ursula.printable import printable
from ursula.times import format_time

from ..output import counted, emit_json, emit_json_text, emit_line, fail, say, size_text
from ..progress import ProgressDisplay
from .opened_store import At, ConfigFile, moment_of, settings_of, with_store

if TYPE_CHECKING:
    from ursula.cold.objects.store import Store
    from ursula.cold.segment.report import SegmentReport
    from ursula.engine.offline.inspect import GroupSurvey, StoreSurvey, Verified
    from ursula.model.commands import StoredSegment

DAMAGES_SHOWN = 50


def inspect(
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="A folder, or s3://bucket/prefix.", show_default=False)
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="OBJECT",
            help="One object, such as segments/g0/...; without it, the whole store.",
            show_default=False,
        ),
    ] = None,
    *,
    verify: Annotated[bool, typer.Option("--verify", help="Read everything, and check every byte.")] = False,
    group: Annotated[
        int | None,
        typer.Option(metavar="N", help="Only this group. [dim]Default: all[/dim]", show_default=False),
    ] = None,
    at: At = None,
    config: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the contents of a store, or check that it is complete. No server is needed.

    With --verify, all checksums and digests are checked, and that the segments
    contain every byte of every stream. Each damaged object is named on its own
    line, and the exit code is then 1.

    [bold]Examples[/bold]

      ursula inspect data/cold
      ursula inspect s3://bucket/prefix --verify
      ursula inspect data/cold segments/g0/...parquet
      ursula inspect data/cold --json | jq '.groups[0].segments[].bytes'
    """
    settings = settings_of(config)
    if name is not None:
        with_store(store, settings, lambda opened: _show_object(opened, name, as_json))
        return
    moment = moment_of(at)
    if verify:

        async def check(opened: "Store") -> "Verified":
            from ursula.engine.offline.inspect import verify_store

            with ProgressDisplay() as progress:
                return await verify_store(opened, group, moment, progress)

        _print_verified(with_store(store, settings, check), as_json)
        return

    async def look(opened: "Store") -> "StoreSurvey":
        from ursula.engine.offline.inspect import survey_store

        return await survey_store(opened, group, moment)

    survey = with_store(store, settings, look)
    if as_json:
        emit_json(_as_json(survey))
    else:
        _print_survey(survey)


# One object


async def _show_object(store: "Store", name: str, as_json: bool) -> None:
    from ursula.engine.offline.inspect import show_segment

    if name.endswith(".json"):
        emit_json_text((await store.get(name)).decode(errors="surrogateescape"))
        return
    if not name.startswith("segments/"):
        fail(f"{name} cannot be shown: only segments and JSON objects can")
    report = await show_segment(store, name)
    if as_json:
        emit_json(_segment_as_json(report))
    else:
        _print_segment(report)
    if report.problems:
        for problem in report.problems:
            say(f"{report.key}: {problem}")
        raise typer.Exit(1)


def _segment_as_json(report: "SegmentReport") -> dict[str, object]:
    return {
        **report._asdict(),
        "row_groups": [found._asdict() for found in report.row_groups],
        "ranges": [found._asdict() for found in report.ranges],
    }


def _print_segment(report: "SegmentReport") -> None:
    facts = {
        "positions": f"after {report.first:020d} up to {report.last:020d}",
        "rows": f"{report.rows} in {counted(len(report.row_groups), 'row group')}",
        "kinds": ", ".join(f"{count} {kind}" for kind, count in report.kinds.items()),
        "streams": str(report.stream_count),
        "size": _ratio_text(report.bytes, report.payload_bytes),
    }
    for title, text in facts.items():
        emit_line(f"{title:<16}{text}")
    rows = [
        (f"{one.bucket}/{one.stream}", one.incarnation, str(one.start), str(one.end), str(one.messages))
        for one in report.ranges
    ]
    _print_table(("stream", "incarnation", "from", "up to", "messages"), rows)
    groups = [
        (str(number), str(one.rows), size_text(one.bytes), size_text(one.payload_bytes))
        for number, one in enumerate(report.row_groups)
    ]
    _print_table(("row group", "rows", "size", "messages"), groups)


# The whole store


def _print_survey(survey: "StoreSurvey") -> None:
    newest = survey.generations[-1]
    emit_line(f"{'store':<16}{survey.root}")
    emit_line(f"{'cluster':<16}{newest.cluster}")
    for generation in survey.generations:
        source = f" from {generation.source}" if generation.source else ""
        emit_line(f"{'generation':<16}{generation.generation}, begun {format_time(generation.at)}{source}")
    for server in survey.servers:
        where = f"{server.address} on {server.host}"
        emit_line(f"{'server':<16}node {server.node} at {where}, last seen {format_time(server.at)}")
    for found in survey.groups:
        _print_group(found)


def _print_group(found: "GroupSurvey") -> None:
    extent, manifest = found.extent, found.manifest
    first, last = found.manifests[-1].position, found.manifests[0].position
    facts = {
        f"group {found.group}": f"as of {format_time(manifest.at)}, position {manifest.position:020d}",
        "manifests": f"{len(found.manifests)}, from position {first:020d} to {last:020d}",
        "streams": f"{extent.streams} in {counted(extent.buckets, 'bucket')}",
        "snapshots": f"{extent.blobs} of {size_text(extent.blob_bytes)}",
        "segments": f"{extent.segments} with {counted(extent.rows, 'row')}, "
        + _ratio_text(extent.segment_bytes, extent.payload_bytes),
    }
    if found.unnamed:
        size = sum(size for _, size in found.unnamed)
        facts["others"] = (
            f"{len(found.unnamed)} of {size_text(size)} that are no longer, or not yet, part of it"
        )
    emit_line("")
    for title, text in facts.items():
        emit_line(f"{title:<16}{text}")
    _print_table(("segment", "rows", "size", "messages", "ratio"), [_row(one) for one in found.segments])


def _row(segment: "StoredSegment") -> tuple[str, ...]:
    ratio = f"{segment.payload_bytes / segment.size:.1f}"
    return (
        segment.key,
        str(segment.rows),
        size_text(segment.size),
        size_text(segment.payload_bytes),
        ratio,
    )


def _as_json(survey: "StoreSurvey") -> dict[str, object]:
    import msgspec

    return {
        "root": survey.root,
        "generations": [msgspec.to_builtins(generation) for generation in survey.generations],
        "servers": [msgspec.to_builtins(server) for server in survey.servers],
        "groups": [
            {
                "group": found.group,
                "position": found.manifest.position,
                "at": found.manifest.at,
                "manifests": [one._asdict() for one in found.manifests],
                "total": found.extent._asdict(),
                "segments": [
                    {
                        "path": one.key,
                        "first": one.first,
                        "last": one.last,
                        "rows": one.rows,
                        "bytes": one.size,
                        "payload_bytes": one.payload_bytes,
                    }
                    for one in found.segments
                ],
                "others": [{"path": key, "bytes": size} for key, size in found.unnamed],
            }
            for found in survey.groups
        ],
    }


# The result of --verify


def _print_verified(verified: "Verified", as_json: bool) -> None:
    extent, damages = verified.extent, verified.damages
    if as_json:
        document = {
            "positions": {str(group): position for group, position in verified.positions.items()},
            "total": extent._asdict(),
            "damaged": [damage._asdict() for damage in damages],
        }
        emit_json(document)
    else:
        for damage in damages[:DAMAGES_SHOWN]:
            emit_line(f"{damage.name}: {damage.problem}")
        if len(damages) > DAMAGES_SHOWN:
            emit_line(f"and {len(damages) - DAMAGES_SHOWN} more; --json lists all")
    if damages:
        fail(f"the store is damaged: {counted(len(damages), 'problem')} found")
    if not as_json:
        positions = ", ".join(f"{position:020d}" for position in verified.positions.values())
        emit_line(
            f"everything up to {positions} is intact: {counted(extent.streams, 'stream')} in "
            f"{counted(extent.buckets, 'bucket')}, {counted(extent.segments, 'segment')} with "
            f"{counted(extent.rows, 'row')} and {size_text(extent.payload_bytes)} of messages, "
            f"{counted(extent.blobs, 'snapshot')}"
        )


def _ratio_text(size: int, payload: int) -> str:
    ratio = f" ({payload / size:.1f} to 1)" if size else ""
    return f"{size_text(size)} for {size_text(payload)} of messages{ratio}"


def _print_table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print columns under titles; in a pipe, lines are not wrapped."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, title in enumerate(titles):
        table.add_column(
            title, overflow="fold", justify="right" if number and rows[0][number][:1].isdigit() else "left"
        )
    for row in rows:
        table.add_row(*(Text(printable(field)) for field in row))
    emit_line("")
    Console(highlight=False, width=None if sys.stdout.isatty() else 10_000).print(table)
