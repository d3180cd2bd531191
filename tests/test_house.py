"""Dependencies point one way: http -> engine -> {model, log, cold}, and inside a room from shelf to shelf.

A room is a package below `ursula`; a shelf is a folder or a file in a room. The tables below are the rule.
"""

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
    "ursula.engine.failures",
    "ursula.engine.interface",
    "ursula.engine.reads.deferred",
    "ursula.engine.reads.bucket_plan",
    "ursula.engine.status",
    "ursula.engine.group.watchers",
}
"""What http may know of the engine: an interface that a group on another node could have, and its values."""

ALLOWED = {
    "model": {"ursula.model", "ursula.ranges"},
    "log": {"ursula.log", "ursula.etcd", "ursula.crc", "ursula.histogram", "ursula.positions"},
    "log/etcd": {"ursula.log", "ursula.etcd"},
    "etcd": {"ursula.etcd", "ursula.histogram"},
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
        "ursula.extras",
        "ursula.log.interface",
        "ursula.logs",
        "ursula.malloc",
        "ursula.histogram",
        "ursula.times",
        *MODEL_VALUES,
    },
    "http/wire": {"ursula.http", "ursula.malloc"},  # it knows no streams
    "cluster": {
        "ursula.cluster",
        "ursula.etcd",
        "ursula.log",
        "ursula.config",
        "ursula.cold.objects",
        "ursula.cold.state",
        "ursula.engine.agreement",
        "ursula.engine.clock",
        "ursula.engine.keeper",
        "ursula.engine.peers",
        "ursula.engine.start",
        "ursula.engine.status",
        "ursula.model.codec",
    },
    "cluster/member": {  # it knows no streams
        "ursula.cluster",
        "ursula.etcd",
        "ursula.cold.objects.fsync",
        "ursula.engine.status.cluster_status",
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
    "terminal": {"ursula.terminal", "ursula.client", "ursula.extras", "ursula.printable", "ursula.times"},
    "terminal/option_groups.py": {"ursula.terminal"},
    "terminal/output.py": {"ursula.terminal", "ursula.printable"},
    "terminal/progress.py": {"ursula.terminal"},
    "terminal/server": {"ursula.terminal", "ursula.client"},
    "config": {"ursula.config"},
    "crc.py": set(),
    "extras.py": set(),
    "logs.py": {"ursula.printable", "ursula.times"},
    "malloc.py": set(),
    "positions.py": set(),
    "printable.py": set(),
    "ranges.py": set(),
    "histogram.py": set(),
    "times.py": set(),
}
"""Which of our modules a room may import; a folder stands for all that is in it. Some shelves may import
less than their room."""

EXCEPTIONS = {
    # The one place that chooses a log, and hands the settings of the store to who needs them:
    "engine/node.py": {"ursula.log.file", "ursula.log.memory", "ursula.config"},
    "cold/objects/open.py": {"ursula.config"},  # the one place that chooses a store
    "http/server.py": {"ursula.cluster", "ursula.cold.objects", "ursula.engine"},  # puts a server together
    # On the driver alone, which has msgspec: the row of a bucket in a checkpoint.
    "spark/reads/bucket_start.py": {
        "ursula.model.checkpoint.bucket_row",
        "ursula.model.stream.row",
    },
    "terminal/dev/dev.py": {"ursula.cluster"},  # finds etcd before it starts a node
    # Commands that work on a store, without a server:
    "terminal/store/opened_store.py": {"ursula.cold", "ursula.config", "ursula.engine"},
    "terminal/store/restore.py": {"ursula.cold", "ursula.config", "ursula.engine"},
    "terminal/store/fence.py": {"ursula.cluster", "ursula.cold", "ursula.config", "ursula.engine"},
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

SHELVES = {
    "model": {
        "limits": "",
        "offsets": "",
        "ordered": "",
        "commands": "",
        "outcomes": "commands",
        "entry_hash": "outcomes",
        "text": "limits",
        "stream": "commands outcomes text",
        "codec": "commands stream",
        "journal": "commands stream",
        "bucket": "journal ordered stream",
        "deleted": "ordered stream",
        "store_view": "commands ordered",
        "decide": "bucket commands deleted outcomes stream text",
        "change": "bucket codec commands decide deleted journal outcomes store_view stream text",
        "read": "bucket decide.refusals journal offsets outcomes stream",
        "residency": "journal store_view stream",
        "state": "bucket change codec commands decide deleted entry_hash journal outcomes read residency "
        "store_view stream",
        "checkpoint": "bucket commands deleted outcomes state store_view stream",
        "dump": "bucket state",
    },
    "log": {
        "interface": "",
        "disk": "",
        "record": "interface",
        "segment": "disk interface record",
        "segment_scan": "disk interface segment",
        "recovery": "disk interface record segment segment_scan",
        "writer": "disk interface record recovery segment",
        "follower": "interface",
        "memory": "follower interface",
        "file": "disk follower interface recovery segment segment_scan writer",
        "etcd": "interface",
    },
    "cold": {
        "objects": "",
        "cache": "",
        "segment": "cache objects",
        "state": "objects",
        "blobs": "cache objects",
        "staging": "objects",
        "feed_spool": "objects segment",
    },
    "engine": {
        "agreement": "",
        "background": "",
        "clock": "",
        "failures": "",
        "keeper": "",
        "pacing": "",
        "peers": "agreement",
        "segment_info": "",
        "status": "agreement pacing peers",
        "start": "clock failures pacing segment_info",
        "reads": "background segment_info",
        "group": "agreement background clock failures keeper pacing peers reads status",
        "flush": "failures group keeper pacing peers segment_info start status",
        "upkeep": "clock failures flush group keeper pacing segment_info start",
        "offline": "clock segment_info start",
        "bulk_write": "failures group",
        "interface": "failures group reads status",
        "node": "agreement background bulk_write clock failures flush group keeper peers reads start status "
        "upkeep",
    },
    "http": {
        "errors": "",
        "certainty": "",
        "store_problems": "errors",
        "wire": "errors",
        "syntax": "errors wire",
        "exchange": "certainty errors store_problems syntax wire",
        "body": "errors exchange wire",
        "live": "certainty errors exchange store_problems syntax wire",
        "observe": "exchange wire",
        "stream": "body errors exchange live observe.request_stats store_problems syntax wire",
        "bucket": "errors exchange live observe.request_stats syntax wire",
        "cluster": "body bucket.feed certainty errors exchange syntax",
        "services": "body bucket certainty live observe syntax wire",
        "routes": "bucket cluster errors exchange observe stream syntax",
        "not_joined": "cluster.status errors observe.prometheus syntax wire",
        "leader_only": "errors exchange routes wire",
        "app": "certainty errors exchange routes services stream syntax wire",
        "server": "app body certainty cluster leader_only live not_joined services syntax wire",
    },
    "cluster": {
        "failures": "",
        "authority": "failures",
        "tls": "authority failures",
        "member": "failures tls",
        "keeper_check": "",
        "keeper_lease": "",
        "clock_check": "",
        "presence": "clock_check",
        "settings": "member tls",
        "store_generation": "failures",
        "fence": "failures settings",
        "readiness": "member",
        "cluster": "clock_check failures fence keeper_check keeper_lease member presence readiness settings "
        "store_generation",
    },
    "client": {
        "address": "",
        "checks": "",
        "errors": "",
        "formats": "errors",
        "connection": "address checks errors",
        "results": "connection errors formats",
        "target": "address connection results",
        "read": "address checks connection errors formats results target",
        "write": "checks connection errors formats results target",
        "manage": "address connection errors formats results target",
        "client": "address connection manage read results target write",
        "async_client": "address connection manage read results target write",
        "__init__": "address async_client client connection errors formats manage read results write",
    },
    "spark": {
        "options": "",
        "spark_errors": "",
        "launch": "",
        "executor_store": "options",
        "http_client": "options",
        "reads": "executor_store http_client options",
        "writes": "http_client options",
        "tasks": "executor_store http_client options",  # for jobs; apart from reads and writes
        "source": "options reads writes",
        "__init__": "launch reads source",
    },
    "terminal": {
        "option_groups": "",
        "output": "",
        "progress": "output",
        "dev": "output",
        "server": "option_groups output",
        "store": "output progress",
        "pipeline": "option_groups output progress server.session",
        "__init__": "dev option_groups pipeline server store",
    },
    "config": {
        "kinds": "",
        "settings": "kinds",
        "loading": "kinds settings",
        "__init__": "kinds loading settings",
    },
}
"""Which other shelves of its room a shelf may import. A row stands below the rows that it names."""

TYPES = {
    # Their functions take a state, and the state has the tables of these functions:
    **{f"model/{shelf}": "state" for shelf in ("change", "decide", "read", "residency")},
    # A request carries the services, and some services work on requests:
    "http/exchange": "body.read services",
    "http/observe": "services",
    "http/stream": "services",
}
"""What else a shelf may name as a type only, under TYPE_CHECKING, against the direction of the table."""


class Import:
    """One imported module or name, with where it is written."""

    def __init__(self, path: Path, line: int, module: str, name: str | None, *, is_type: bool) -> None:
        self.where = f"{path.relative_to(SOURCE)}:{line}"
        self.is_type = is_type
        self.module = module
        self.name = name
        inside = SOURCE.parent / Path(*module.split("."), name or "")
        if name is not None and (inside.is_dir() or inside.with_suffix(".py").exists()):
            self.module, self.name = f"{module}.{name}", None

    def is_in(self, allowed: set[str]) -> bool:
        return any(self.module == place or self.module.startswith(place + ".") for place in allowed)


def imports_of(path: Path) -> Iterator[Import]:
    package = ["ursula", *path.relative_to(SOURCE).parent.parts]
    tree = ast.parse(path.read_text())
    types = {
        one
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inside in node.body
        for one in ast.walk(inside)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name, None, is_type=node in types)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(path, node.lineno, module, alias.name, is_type=node in types)


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


def shelf_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[1]


def imports_between_shelves(room: str) -> Iterator[tuple[str, Import]]:
    for path in files_of(room):
        own = {f"ursula.{room}.{shelf_of(path)}"}
        for found in imports_of(path):
            if found.is_in({f"ursula.{room}"}) and not found.is_in(own):
                yield shelf_of(path), found


def modules(room: str, names: str) -> set[str]:
    return {f"ursula.{room}.{name}" for name in names.split()}


@pytest.mark.parametrize("room", SHELVES)
def test_a_shelf_imports_only_what_its_row_in_the_table_allows(room: str) -> None:
    wrong = [
        f"{found.where} imports {found.module}"
        for shelf, found in imports_between_shelves(room)
        if not found.is_in(modules(room, SHELVES[room].get(shelf, "")))
        and not (found.is_type and found.is_in(modules(room, TYPES.get(f"{room}/{shelf}", ""))))
    ]
    assert wrong == []


@pytest.mark.parametrize("room", SHELVES)
def test_the_shelves_of_a_room_point_one_way(room: str) -> None:
    above: set[str] = set()
    for shelf, names in SHELVES[room].items():
        assert {name.split(".")[0] for name in names.split()} <= above, shelf
        above.add(shelf)


@pytest.mark.parametrize("room", SHELVES)
def test_the_table_of_shelves_allows_nothing_that_is_not_used(room: str) -> None:
    found = list(imports_between_shelves(room))
    types = {place.removeprefix(f"{room}/"): names for place, names in TYPES.items()}
    unused = [
        f"{shelf} does not import {module}"
        for shelf, names in [*SHELVES[room].items(), *types.items()]
        for module in modules(room, names)
        if "/" not in shelf and not any(own == shelf and one.is_in({module}) for own, one in found)
    ]
    assert unused == []


def test_every_shelf_has_a_row_in_the_table() -> None:
    for room, rows in SHELVES.items():
        there = {shelf_of(path) for path in files_of(room)}
        assert rows.keys() | {"__init__"} == there, room
    with_folders = {path.parent.parent.name for path in SOURCE.glob("*/*/__init__.py")}
    assert with_folders <= SHELVES.keys()


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
