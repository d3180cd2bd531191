"""Dependencies point one way: http -> engine -> {model, log, cold}. The table below is the rule."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from tests.conftest import LONG_FILES

from ursula.model.commands import AnyCommand
from ursula.model.state import CHANGE, DECIDE

SOURCE = Path(__file__).parent.parent / "src" / "ursula"

MODEL_VALUES = {
    "ursula.model.text.attributes",
    "ursula.model.commands",
    "ursula.model.offsets",
    "ursula.model.codec.entry",
    "ursula.model.text.json_messages",
    "ursula.model.limits",
    "ursula.model.text.media_type",
    "ursula.model.outcomes",
}
"""What http may know of the model: values that could cross to another process, and constants."""

ENGINE_VALUES = {
    "ursula.engine.cold_status",
    "ursula.engine.failures",
    "ursula.engine.interface",
    "ursula.engine.reads.deferred",
    "ursula.engine.reads.bucket_plan",
    "ursula.engine.status",
    "ursula.engine.hot_bytes",
    "ursula.engine.group.watchers",
}
"""What http may know of the engine: an interface that a group on another node could have, and its values."""

ALLOWED = {
    "model": {"ursula.model", "ursula.ranges"},
    "log": {"ursula.log", "ursula.crc", "ursula.histogram", "ursula.positions"},
    "cold": {"ursula.cold", "ursula.crc", "ursula.positions", "ursula.ranges"},
    "engine": {
        "ursula.engine",
        "ursula.model",
        "ursula.log.interface",
        "ursula.cold",
        "ursula.crc",
        "ursula.malloc",
        "ursula.histogram",
        "ursula.times",
    },
    "http": {
        "ursula.http",
        *ENGINE_VALUES,
        "ursula.cold.blobs",
        "ursula.cold.segment.schema",
        "ursula.cold.staging",
        "ursula.cold.objects.store",
        "ursula.config",
        "ursula.log.interface",
        "ursula.logs",
        "ursula.malloc",
        "ursula.histogram",
        "ursula.times",
        *MODEL_VALUES,
    },
    "client": {"ursula.client"},
    "spark": {
        "ursula.spark",
        "ursula.cold.objects.checksum",
        "ursula.cold.objects.fsync",
        "ursula.cold.state.generation_history",
        "ursula.cold.state.placement",
        "ursula.cold.segment.schema",
        "ursula.cold.segment",
        "ursula.cold.objects.keys",
        "ursula.cold.objects.ulid",
    },
    "pipeline": {
        "ursula.pipeline",
        "ursula.spark",
        "ursula.cold",
        "ursula.config",
        "ursula.engine",
        "ursula.model.commands",
        "ursula.times",
    },
    "terminal": {"ursula.terminal", "ursula.client", "ursula.printable", "ursula.times"},
    "config": {"ursula.config"},
    "crc.py": set(),
    "logs.py": {"ursula.printable", "ursula.times"},
    "malloc.py": set(),
    "positions.py": set(),
    "printable.py": set(),
    "ranges.py": set(),
    "histogram.py": set(),
    "times.py": set(),
}
"""Which of our modules a room may import; a folder stands for all that is in it."""

EXCEPTIONS = {
    # The one place that chooses a log, and hands the settings of the store to who needs them:
    "engine/node.py": {"ursula.log.file", "ursula.log.memory", "ursula.config"},
    "cold/objects/open.py": {"ursula.config"},  # the one place that chooses a store
    "http/server.py": {"ursula.cold.objects.open", "ursula.engine"},  # puts a server together
    # On the driver alone, which has msgspec: the row of a bucket in a checkpoint.
    "spark/reads/bucket_start.py": {
        "ursula.model.store_view.bucket_row",
        "ursula.model.stream.row",
    },
    # Commands that work on a store, without a server:
    "terminal/store/opened_store.py": {"ursula.cold", "ursula.config", "ursula.engine"},
    "terminal/store/restore.py": {"ursula.cold", "ursula.config", "ursula.engine"},
    "terminal/store/inspect.py": {"ursula.cold", "ursula.engine", "ursula.model.commands"},
    # Commands that Spark runs:
    "terminal/pipeline/job.py": {
        "ursula.pipeline",
        "ursula.spark",
        "ursula.cold.objects.store",
        "ursula.engine",
    },
    **{
        f"terminal/pipeline/{job}.py": {"ursula.pipeline"}
        for job in ("backup", "compact", "export", "materialize", "restore", "usage", "verify")
    },
}


class Import:
    """One imported module or name, with where it is written."""

    def __init__(self, path: Path, line: int, module: str, name: str | None) -> None:
        self.where = f"{path.relative_to(SOURCE)}:{line}"
        self.module = module
        self.name = name
        inside = SOURCE.parent / Path(*module.split("."), name or "")
        if name is not None and (inside.is_dir() or inside.with_suffix(".py").exists()):
            self.module, self.name = f"{module}.{name}", None

    def is_in(self, allowed: set[str]) -> bool:
        return any(self.module == place or self.module.startswith(place + ".") for place in allowed)


def imports_of(path: Path) -> Iterator[Import]:
    package = ["ursula", *path.relative_to(SOURCE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(path, node.lineno, module, alias.name)


def files_of(room: str) -> list[Path]:
    place = SOURCE / room
    return [place] if place.is_file() else sorted(place.rglob("*.py"))


MODEL_FILES = [*files_of("model"), *files_of("ranges.py")]


def is_ours(found: Import) -> bool:
    return found.module.split(".")[0] == "ursula"


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_imports_only_what_its_row_in_the_table_allows(room: str) -> None:
    files = files_of(room)
    assert files
    wrong = [
        f"{found.where} imports {found.module}"
        for path in files
        for found in imports_of(path)
        if is_ours(found)
        and not found.is_in(ALLOWED[room] | EXCEPTIONS.get(path.relative_to(SOURCE).as_posix(), set()))
    ]
    assert wrong == []


def test_the_wire_knows_no_streams() -> None:
    allowed = {"ursula.http.wire", "ursula.http.errors", "ursula.malloc"}
    found = [one for path in files_of("http/wire") for one in imports_of(path) if is_ours(one)]
    assert [f"{one.where} imports {one.module}" for one in found if not one.is_in(allowed)] == []


@pytest.mark.parametrize(
    ("shelf", "allowed"),
    [
        ("terminal/option_groups.py", set[str]()),
        ("terminal/output.py", {"ursula.printable"}),
        ("terminal/progress.py", {"ursula.terminal.output"}),
        ("terminal/server", {"ursula.terminal.output", "ursula.terminal.option_groups", "ursula.client"}),
        ("config/kinds.py", set[str]()),
        ("config/settings.py", {"ursula.config.kinds"}),
        ("config/loading.py", {"ursula.config.kinds", "ursula.config.settings"}),
    ],
)
def test_the_shelves_of_commands_and_settings_point_one_way(shelf: str, allowed: set[str]) -> None:
    inside = {f"ursula.{shelf.replace('/', '.')}"}
    found = [one for path in files_of(shelf) for one in imports_of(path) if is_ours(one)]
    assert [f"{one.where} imports {one.module}" for one in found if not one.is_in(allowed | inside)] == []


def test_the_tasks_of_jobs_are_apart_from_reads_and_writes() -> None:
    shared = {"ursula.spark.executor_store", "ursula.spark.http_client", "ursula.spark.options"}
    allowed = {"ursula.cold", "ursula.spark.tasks", *shared}
    found = [one for path in files_of("spark/tasks") for one in imports_of(path) if is_ours(one)]
    assert [f"{one.where} imports {one.module}" for one in found if not one.is_in(allowed)] == []


def test_every_room_has_a_row_in_the_table() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert rooms <= ALLOWED.keys()


def test_the_model_needs_only_the_standard_library_and_two_libraries() -> None:
    known = sys.stdlib_module_names | {"ursula", "msgspec", "sortedcontainers"}
    foreign = [
        f"{found.where} imports {found.module}"
        for path in MODEL_FILES
        for found in imports_of(path)
        if found.module.split(".")[0] not in known
    ]
    assert foreign == []


def test_the_model_reads_no_clock_no_chance_and_no_files() -> None:
    forbidden = {"asyncio", "datetime", "os", "pathlib", "random", "secrets", "socket", "threading", "time"}
    forbidden |= {"uuid", "io", "logging"}
    wrong = [
        f"{found.where} imports {found.module}"
        for path in MODEL_FILES
        for found in imports_of(path)
        if found.module.split(".")[0] in forbidden
    ]
    assert wrong == []


CLIENT_MIRRORS = {
    *("Appended", "Bucket", "Created", "FeedEntry", "FeedPage", "FeedRow", "OutcomeUnknown", "Producer"),
    *("Refused", "Request", "Snapshot", "Stream", "Undeleted"),
}
"""Classes of the client that are what the server's class of the same name is, seen from outside."""


def test_a_public_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())
    doubled = {name: found for name, found in places.items() if len(found) > 1}
    assert doubled.keys() == CLIENT_MIRRORS, doubled
    for found in doubled.values():
        assert [path.startswith("client/") for path in found] == [True, False], found


def test_no_file_is_a_dumping_place() -> None:
    names = {path.name for path in SOURCE.rglob("*.py")}
    assert not names & {"utils.py", "helpers.py", "common.py", "lib.py", "misc.py"}


def test_the_files_that_come_first_are_there() -> None:
    """A file that is renamed or removed must not stay in the list."""
    assert [name for name in LONG_FILES if not (SOURCE.parent.parent / "tests" / name).is_file()] == []


def test_only_residency_changes_what_is_in_memory() -> None:
    """`apply` decides and changes the state; eviction and parking are the business of one class."""
    evicting = {"drain", "drop_before", "drop_stored", "drop_trimmed", "forget_part", "park"}
    callers = {
        path.relative_to(SOURCE).as_posix()
        for room in ("model", "engine", "http")
        for path in files_of(room)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in evicting
    }
    assert callers == {
        "model/change/snapshot.py",  # drops the first of the messages that it trims
        "model/deleted.py",
        "model/residency.py",
        "model/stream/stream.py",
    }


def test_the_engine_never_assigns_to_the_state() -> None:
    assigned = [
        f"{path.relative_to(SOURCE)}:{target.lineno}"
        for path in files_of("engine")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign | ast.AugAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute) and ast.unparse(target.value).endswith("state")
    ]
    assert assigned == []


def test_every_command_has_a_decision_and_a_change() -> None:
    commands = {one for kind in get_args(AnyCommand) for one in (kind, *kind.__subclasses__())}
    assert DECIDE.keys() == CHANGE.keys() == commands
    assert all(decide.__name__.startswith("decide_") for decide in DECIDE.values())
    assert all(change.__name__ == "change_" + DECIDE[kind].__name__[7:] for kind, change in CHANGE.items())
