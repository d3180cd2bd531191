"""The `ursula` command: `ursula serve` and `ursula config`, and the commands of `terminal`.

The flags of settings, their help and their defaults come from `config.KEYS`; this module only decides how
they are shown.
"""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ursula import __version__, logs, terminal
from ursula.config import FILES_SEARCHED, KEYS, Address, LoadedConfig, Secret, StartRefused, load
from ursula.extras import how_to_install

logger = logging.getLogger(__name__)


class Commands(typer.core.TyperGroup):
    """All commands. Their help shows argument names instead of Python types, and no value for a flag."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        _hide_types(self)


def _hide_types(command: typer.core.TyperCommand | typer.core.TyperGroup) -> None:
    for parameter in command.get_params(typer.Context(command)):
        if isinstance(parameter, typer.core.TyperOption | typer.core.TyperArgument):
            parameter.display_type = lambda ctx: ""  # type: ignore[method-assign]
    for inner in getattr(command, "commands", {}).values():
        _hide_types(inner)


app = typer.Typer(
    name="ursula",
    cls=Commands,
    help="Durable streams over plain HTTP.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
config_app = typer.Typer(help="Show the configuration.", no_args_is_help=True)
SERVER = "Server"
OF_SPARK = {"pyspark", "py4j", "pandas"}


def main() -> None:
    """Run the command. A refused start prints one line to standard error and sets an exit code."""
    try:
        app()
    except StartRefused as refused:
        print(f"ursula: {' '.join(str(refused).splitlines())}", file=sys.stderr)
        sys.exit(refused.exit_code)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in OF_SPARK:
            raise
        what = f"this needs Spark, but {missing.name} is not installed"
        print(f"ursula: {what}: {how_to_install('spark')}", file=sys.stderr)
        sys.exit(1)


def _option(name: str) -> Any:
    """The flag of a setting; `config` parses its value, so that it has the same form as in a file."""
    setting = KEYS[name]
    text = f"{setting.doc} [dim]Default: {escape(setting.default)}[/dim]"
    return typer.Option(setting.flag, help=text, metavar=setting.kind.metavar, show_default=False)


SEARCHED = ", then ".join(FILES_SEARCHED)
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help=f"Configuration file (TOML). [dim]Default: {SEARCHED}[/dim]",
        metavar="FILE",
        show_default=False,
    ),
]
NodeId = Annotated[str | None, _option("server.node_id")]
Listen = Annotated[str | None, _option("server.listen")]
Advertise = Annotated[str | None, _option("server.advertise")]
DataDir = Annotated[str | None, _option("server.data_dir")]
Log = Annotated[str | None, _option("server.log")]
LogLevel = Annotated[str | None, _option("logging.level")]
LogFormat = Annotated[str | None, _option("logging.format")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ursula {__version__}")
        raise typer.Exit


@app.callback()
def ursula(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Durable streams over plain HTTP: create, append, read from any offset, tail live."""


@app.command(rich_help_panel=SERVER)
def serve(
    context: typer.Context,
    *,
    node_id: NodeId = None,
    listen: Listen = None,
    advertise: Advertise = None,
    data_dir: DataDir = None,
    config: Config = None,
    log: Log = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Run the server until Ctrl-C or SIGTERM.

    Every write that it acknowledges is on disk, except with --log memory.

    Flags override environment variables (URSULA_SERVER__LISTEN), variables
    override the configuration file, and the file overrides the defaults.
    `ursula config show` shows the values in effect and where they come from.

    [bold]Examples[/bold]

      ursula serve
      ursula serve --listen 0.0.0.0:4437 --data-dir /var/lib/ursula
      ursula serve --config ursula.toml --log-level debug
      URSULA_LIMITS__APPEND_BYTES=8MiB ursula serve
    """
    loaded = _loaded(context)
    logs.configure(loaded.settings.logging.level, loaded.settings.logging.format)
    for warning in loaded.warnings:
        logger.warning(warning)
    sys.meta_path.insert(0, WithoutPandas())
    from ursula.http.server import run  # slow to import, and only this command needs it

    raise typer.Exit(run(loaded.settings))


class WithoutPandas:
    """An import hook that hides pandas: pyarrow would import it if it is installed, but no server needs it.

    `sys.modules["pandas"] = None` is not enough. Compiled by Cython, pyarrow takes that None for the module.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Fails for pandas, and leaves other modules to the next hook."""
        if name == "pandas":
            raise ModuleNotFoundError("a server runs without pandas", name=name)


app.add_typer(config_app, name="config", rich_help_panel=SERVER)
terminal.register(app)


@config_app.callback()
def configuration() -> None:
    """Show the configuration."""


@config_app.command()
def show(
    context: typer.Context,
    *,
    node_id: NodeId = None,
    listen: Listen = None,
    advertise: Advertise = None,
    data_dir: DataDir = None,
    config: Config = None,
    log: Log = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the settings in effect, and where each value came from.

    [bold]Examples[/bold]

      ursula config show
      ursula config show --config ursula.toml --json
    """
    loaded = _loaded(context)
    for warning in loaded.warnings:
        print(f"ursula: warning: {warning}", file=sys.stderr)
    if as_json:
        typer.echo(json.dumps(_as_json(loaded), indent=2))
    else:
        _print_table(loaded)


def _loaded(context: typer.Context) -> LoadedConfig:
    flagged = ((name, setting.flag) for name, setting in KEYS.items() if setting.flag)
    flags = {name: context.params[flag.lstrip("-").replace("-", "_")] for name, flag in flagged}
    return load(context.params["config"], os.environ, flags)


def _as_json(loaded: LoadedConfig) -> dict[str, dict[str, object]]:
    shown = {}
    for name, setting in KEYS.items():
        value = setting.value(loaded.settings)
        plain = str(value) if isinstance(value, Address | Path | Secret) else value
        shown[name] = {"value": plain, "from": loaded.origins[name]}
    return shown


def _print_table(loaded: LoadedConfig) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("key", "value", "from"):
        table.add_column(title, overflow="fold")
    for name, setting in KEYS.items():
        origin = loaded.origins[name]
        shown = setting.kind.show(setting.value(loaded.settings))
        table.add_row(name, Text(shown), Text(origin, style="dim" if origin == "default" else ""))
    # In a pipe, other programs read the lines, so they are not wrapped.
    width = None if sys.stdout.isatty() else 10_000
    Console(highlight=False, width=width).print(table)
