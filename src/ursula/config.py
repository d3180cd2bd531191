"""What can be set, and how a setting is found: defaults < TOML < environment < flags.

Each section is a frozen class and each of its fields is declared once, with its default, its kind, its
text and its flag; `KEYS` is read off these classes and drives the command line, `ursula config show` and
docs/configuration.md. Nothing is opened here but the configuration file, and nothing of ours is imported.
"""

import difflib
import ipaddress
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

T = TypeVar("T")

FILES_SEARCHED = ("./ursula.toml", "/etc/ursula/ursula.toml")


class StartRefused(Exception):
    """Why the server cannot start: one line that says what to do."""

    exit_code = 1


class ConfigRefused(StartRefused):
    """A setting is unknown, has a wrong value, or cannot be read."""

    exit_code = 2


class Address(NamedTuple):
    """A host and a port; port 0 lets the system pick one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class Secret:
    """A text that is used and never shown."""

    text: str = field(default="", repr=False)

    def __str__(self) -> str:
        return "(not shown)" if self.text else ""


# --- Kinds: how a value is written, read and shown ---------------------------------------------------------


@dataclass(frozen=True)
class Kind(Generic[T]):
    """One type of value; `read` takes what TOML, the environment or a flag holds, or raises ValueError."""

    expected: str
    metavar: str
    read: Callable[[object], T]
    show: Callable[[T], str] = str
    is_secret: bool = False


SIZE_UNITS = {
    "GiB": 1 << 30,
    "MiB": 1 << 20,
    "KiB": 1 << 10,
    "GB": 10**9,
    "MB": 10**6,
    "kB": 10**3,
    "": 1,
}
DURATION_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "": 1.0}
DURATION_MAX_SECONDS = 365 * 24 * 3600.0


def _text(raw: object) -> str:
    if not isinstance(raw, str) or not raw or "\0" in raw:
        raise ValueError
    return raw


def _read_optional(raw: object) -> str:
    return _text(raw) if raw != "" else ""


def _read_secret(raw: object) -> Secret:
    return Secret(_read_optional(raw))


def _read_endpoint(raw: object) -> str:
    if raw != "" and not re.fullmatch(r"https?://[^\s/?#@]+/?", _text(raw)):
        raise ValueError
    return str(raw).rstrip("/")


def _read_switch(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if raw not in ("true", "false"):
        raise ValueError
    return raw == "true"


def _show_switch(is_on: bool) -> str:
    return "true" if is_on else "false"


def _whole(raw: object) -> int:
    if isinstance(raw, str) and re.fullmatch(r"[0-9]{1,18}", raw):
        return int(raw)
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    raise ValueError


def _read_count(raw: object) -> int:
    number = _whole(raw)
    if number < 1:
        raise ValueError
    return number


def _read_size(raw: object) -> int:
    if isinstance(raw, str):
        match = re.fullmatch(r"([0-9]{1,18}) ?([A-Za-z]*)", raw)
        if match is None or match[2] not in SIZE_UNITS:
            raise ValueError
        return _read_count(int(match[1]) * SIZE_UNITS[match[2]])
    return _read_count(raw)


def _read_size_or_none(raw: object) -> int:
    return 0 if raw in (0, "0") and not isinstance(raw, bool) else _read_size(raw)


def _show_size(size: int) -> str:
    if not size:
        return "0"
    units = ((unit, factor) for unit, factor in SIZE_UNITS.items() if unit.endswith("iB"))
    return next((f"{size // factor}{unit}" for unit, factor in units if size % factor == 0), str(size))


def _read_duration(raw: object) -> float:
    if isinstance(raw, str):
        match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?) ?([a-z]*)", raw)
        if match is None or match[2] not in DURATION_UNITS:
            raise ValueError
        seconds = float(match[1]) * DURATION_UNITS[match[2]]
    elif isinstance(raw, int | float) and not isinstance(raw, bool):
        seconds = float(raw)
    else:
        raise ValueError
    if not math.isfinite(seconds) or not 0 < seconds <= DURATION_MAX_SECONDS:
        raise ValueError
    return seconds


def _show_duration(seconds: float) -> str:
    if seconds % 3600 == 0:
        return f"{seconds / 3600:g}h"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def _read_address(raw: object) -> Address:
    match = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^\s:/@\[\]]+)):([0-9]{1,5})", _text(raw))
    if match is None or int(match[3]) > 65535:
        raise ValueError
    if match[1]:
        ipaddress.IPv6Address(match[1])
    return Address(match[1] or match[2], int(match[3]))


def _read_folder(raw: object) -> Path:
    try:
        return Path(_text(raw)).expanduser()
    except RuntimeError as unknown_user:
        raise ValueError from unknown_user


def _show_folder(folder: Path) -> str:
    return str(folder) if folder.is_absolute() or folder.parts[:1] == ("..",) else f"./{folder}"


def _read_origins(raw: object) -> tuple[str, ...]:
    items = [item.strip() for item in raw.split(",") if raw.strip()] if isinstance(raw, str) else raw
    if not isinstance(items, list):
        raise ValueError
    for item in items:
        if not isinstance(item, str) or not re.fullmatch(r"\*|[a-z][a-z0-9+.-]*://[^\s/?#*,]+", item):
            raise ValueError
    return tuple(items)


def choice(*words: str) -> Kind[str]:
    """One of a few words."""

    def read(raw: object) -> str:
        if raw not in words:
            raise ValueError
        return str(raw)

    return Kind("one of " + ", ".join(words), "|".join(words), read)


COUNT = Kind("a whole number, 1 or more", "NUMBER", _read_count)
SIZE = Kind('a size in bytes, 1 or more, or with a unit as in "8MiB"', "SIZE", _read_size, _show_size)
SIZE_OR_NONE = Kind(
    'a size in bytes, 0 or more, or with a unit as in "8MiB"', "SIZE", _read_size_or_none, _show_size
)
TEXT = Kind("a text", "TEXT", _read_optional)
SECRET = Kind("a text", "TEXT", _read_secret, is_secret=True)
ENDPOINT = Kind("http://host:port or https://host, without a path", "URL", _read_endpoint)
SWITCH = Kind("true or false", "true|false", _read_switch, _show_switch)
DURATION = Kind(
    'a duration in seconds, more than 0 and at most a year, or with a unit as in "500ms", "60s", "5m", "24h"',
    "DURATION",
    _read_duration,
    _show_duration,
)
ADDRESS = Kind("host:port, as in 127.0.0.1:4437 or [::1]:4437", "HOST:PORT", _read_address)
FOLDER = Kind("the path of a folder", "FOLDER", _read_folder, _show_folder)
ORIGINS = Kind(
    'a list of "*" or origins like https://example.org, without a path', "ORIGIN,...", _read_origins, ",".join
)


# --- The settings ------------------------------------------------------------------------------------------


def key(written: object, kind: Kind[T], doc: str, flag: str | None = None, shown: str | None = None) -> T:
    """A field of a section: its default as one would write it, its kind, one line of text, its flag.

    `shown` replaces the default in help and documentation where the default is not a fixed value.
    """
    default = kind.read(written)
    about = {"kind": kind, "doc": doc, "flag": flag, "shown": shown or kind.show(default)}
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class Server:
    """Who this node is, where it listens and where its data lies."""

    node_id: int = key(1, COUNT, "Number of this node.", "--node-id")
    listen: Address = key(
        "127.0.0.1:4437", ADDRESS, "Address to listen on; with port 0 the system picks a port.", "--listen"
    )
    advertise: Address = key(
        "same-as-listen:0",
        ADDRESS,
        "Address under which others reach this node.",
        "--advertise",
        shown="same as listen",
    )
    data_dir: Path = key("./data", FOLDER, "Folder for everything that must survive a restart.", "--data-dir")
    log: str = key(
        "file",
        choice("file", "memory"),
        "Where the log is kept: file is durable, memory loses everything when the server stops.",
        "--log",
    )
    write_only_leader: bool = key(
        False, SWITCH, "Whether only the leader of a cluster takes writes; a single node always leads."
    )

    def __post_init__(self) -> None:
        if self.advertise == Address("same-as-listen", 0):
            object.__setattr__(self, "advertise", self.listen)


@dataclass(frozen=True)
class Cold:
    """Where objects are stored, and when data goes there."""

    backend: str = key("fs", choice("fs", "s3"), "Where objects are stored: local files, or S3 and its like.")
    root: str = key(
        "",
        TEXT,
        "Folder of the objects, or for s3 the prefix of their names, which may be empty.",
        shown="data_dir/cold",
    )
    shared_fs: bool = key(False, SWITCH, "Whether the folder is one that all nodes of a cluster share.")
    s3_bucket: str = key("", TEXT, "Bucket of the objects; it must be there.", shown="none")
    s3_region: str = key("", TEXT, "Region of the bucket.", shown="that of AWS_REGION, else us-east-1")
    s3_endpoint: str = key("", ENDPOINT, "Where S3 is.", shown="that of AWS")
    s3_access_key_id: str = key(
        "", TEXT, "Access key.", shown="that of the environment, the container or the machine, as AWS has it"
    )
    s3_secret_access_key: Secret = key("", SECRET, "Secret of the access key; never shown.", shown="none")
    s3_session_token: Secret = key("", SECRET, "Token of a temporary access key; never shown.", shown="none")
    flush_size: int = key("8MiB", SIZE, "How many bytes make a flush to the store.")
    flush_interval: float = key("60s", DURATION, "How old data gets before it is flushed to the store.")
    max_hot_bytes: int = key(
        "256MiB", SIZE, "Most bytes that are not yet in the store; beyond it appends get 503."
    )
    cache_bytes: int = key(
        "256MiB", SIZE_OR_NONE, "Most bytes in memory of what is in the store, read or written lately."
    )
    keep_replaced: float = key("24h", DURATION, "How long objects that were replaced are kept for readers.")
    keep_trimmed: bool = key(False, SWITCH, "Whether trimmed and deleted data stays in the store.")


@dataclass(frozen=True)
class Http:
    """How reads are cached and how long live ones last."""

    cache: str = key(
        "public", choice("public", "private"), "Who may cache catch-up reads: anyone, or the client alone."
    )
    long_poll: float = key("3s", DURATION, "How long a long-poll waits for new data.")
    sse_cycle: float = key("60s", DURATION, "How long an SSE connection lives before the client resumes it.")
    sse_heartbeat: float = key("15s", DURATION, "How often an idle SSE connection gets a comment.")
    keep_alive: float = key("75s", DURATION, "How long a connection without a request is kept open.")


@dataclass(frozen=True)
class Cors:
    """Which web pages may use the server."""

    origins: tuple[str, ...] = key(
        ["*"], ORIGINS, "Origins whose pages may use the server; * is any, but for /cluster/*."
    )


@dataclass(frozen=True)
class Limits:
    """What one request, one connection and the whole server may take."""

    append_bytes: int = key("32MiB", SIZE, "Largest body of an append; larger ones get 413.")
    connections: int = key(16384, COUNT, "Most connections open at once.")
    body_timeout: float = key("30s", DURATION, "How long a request body may take to arrive; then 408.")
    inflight_bytes: int = key(
        "256MiB", SIZE, "Most bytes of all request bodies being read or queued; beyond it 503."
    )
    sse_bytes: int = key(
        "256KiB", SIZE, "About how much of a stream an SSE connection is sent before its client must read."
    )
    unread_bytes: int = key(
        "256MiB",
        SIZE,
        "Most bytes of all answers that clients have not read; beyond it the slowest clients are cut off.",
    )
    log_segment_bytes: int = key("64MiB", SIZE, "Size of a segment file of the log.")
    spool_bytes: int = key("8GiB", SIZE, "Most bytes of temporary files from which feeds are served.")


@dataclass(frozen=True)
class Logging:
    """What is logged, and how it is written."""

    level: str = key(
        "info", choice("debug", "info", "warning", "error"), "Least level that is logged.", "--log-level"
    )
    format: str = key(
        "auto",
        choice("auto", "text", "json"),
        "How log lines look: auto is text on a terminal and JSON otherwise.",
        "--log-format",
    )


@dataclass(frozen=True)
class Settings:
    """Everything that can be set; `Settings()` is the defaults."""

    server: Server = Server()
    cold: Cold = Cold()
    http: Http = Http()
    cors: Cors = Cors()
    limits: Limits = Limits()
    logging: Logging = Logging()

    def __post_init__(self) -> None:
        if self.cold.backend == "fs" and not self.cold.root:
            root = _show_folder(self.server.data_dir / "cold")
            object.__setattr__(self, "cold", replace(self.cold, root=root))


SECTIONS = {section.name: cast(type[Any], type(section.default)) for section in fields(Settings)}


@dataclass(frozen=True)
class Key:
    """One setting, as the help, `config show` and the documentation tell it."""

    name: str
    default: str
    kind: Kind[Any]
    doc: str
    flag: str | None

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "URSULA_" + self.name.upper().replace(".", "__")

    def value(self, settings: Settings) -> Any:
        """Its value in these settings."""
        section, name = self.name.split(".")
        return getattr(getattr(settings, section), name)


def _declared() -> Iterator[Key]:
    for section, members in SECTIONS.items():
        for member in fields(members):
            about = member.metadata
            yield Key(f"{section}.{member.name}", about["shown"], about["kind"], about["doc"], about["flag"])


KEYS = {declared.name: declared for declared in _declared()}


# --- Loading -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loaded:
    """The effective settings, where each came from, and what is worth saying about them."""

    settings: Settings
    origins: dict[str, str]
    warnings: list[str]


class Given(NamedTuple):
    """A value as it was written somewhere."""

    name: str
    raw: object
    origin: str


IGNORED = {
    f"{prefix}hot_payload_backend": "has no effect here and is ignored; remove it"
    for prefix in ("", "server.", "storage.")
}


def load(config_path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> Loaded:
    """Finds and checks all settings; `flags` is keyed like `KEYS`, and None there means not given."""
    given: dict[str, Given] = {}
    warnings: list[str] = []
    for one in (*_in_file(config_path), *_in_environment(environ), *_in_flags(flags)):
        if one.name in IGNORED:
            warnings.append(f"{one.name} ({one.origin}) {IGNORED[one.name]}")
        elif one.name in KEYS:
            given[one.name] = one
        else:
            raise ConfigRefused(f"unknown key {one.name} ({one.origin}): {_nearest(one.name)}")
    values: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    for one in given.values():
        section, name = one.name.split(".")
        values[section][name] = _value(one, environ)
    settings = Settings(**{section: SECTIONS[section](**values[section]) for section in SECTIONS})
    _check(settings)
    origins = {name: given[name].origin if name in given else "default" for name in KEYS}
    return Loaded(settings, origins, warnings + _doubts(settings))


def _in_file(config_path: Path | None) -> Iterator[Given]:
    path = str(config_path) if config_path else next(filter(_exists, FILES_SEARCHED), None)
    if path is None:
        return
    origin = f"file {path}"
    for name, content in _document(path).items():
        if name == "version":
            if content != 1 or not isinstance(content, int) or isinstance(content, bool):
                raise ConfigRefused(f"version = {_quoted(content)} ({origin}): expected 1")
        elif name in SECTIONS or (name == "storage" and isinstance(content, dict)):
            if not isinstance(content, dict):
                raise ConfigRefused(f"{name} = {_quoted(content)} ({origin}): expected a section [{name}]")
            for member, raw in content.items():
                yield Given(f"{name}.{member}", raw, origin)
        elif isinstance(content, dict):
            raise ConfigRefused(f"unknown section [{name}] ({origin}): {_nearest_section(name)}")
        else:
            yield Given(name, content, origin)


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # a folder on the way may not be searched: there is nothing for us
        return False


def _document(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        why = f"{error.strerror}; check the path and its permissions"
    except UnicodeDecodeError:
        why = "it is not UTF-8"
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        why = f"it is not TOML: {error}"
    raise ConfigRefused(f"cannot read the configuration file {path}: {why}")


def _in_environment(environ: Mapping[str, str]) -> Iterator[Given]:
    for variable, raw in environ.items():
        match = re.fullmatch(r"URSULA_([A-Z0-9_]+?)__([A-Z0-9_]+)", variable)
        if match is None:
            continue
        section, origin = match[1].lower(), f"environment {variable}"
        if section not in SECTIONS and section != "storage":
            raise ConfigRefused(f"unknown section {section} ({origin}): {_nearest_section(section)}")
        yield Given(f"{section}.{match[2].lower()}", raw, origin)


def _in_flags(flags: Mapping[str, object]) -> Iterator[Given]:
    for name, raw in flags.items():
        if raw is not None:
            yield Given(name, raw, f"flag {KEYS[name].flag}")


def _nearest(name: str) -> str:
    """What to tell about a key that does not exist."""
    member = name.rpartition(".")[2]
    known = {known.rpartition(".")[2]: known for known in KEYS} | {"version": "version"}
    close = difflib.get_close_matches(name, [*KEYS, "version"], n=1) if "." in name else []
    close = close or [known[word] for word in difflib.get_close_matches(member, known, n=1)]
    if close:
        return f"did you mean {close[0]}?"
    section = name.rpartition(".")[0]
    siblings = [key for key in KEYS if key.startswith(f"{section}.")] or list(KEYS)
    return "known keys are " + ", ".join(siblings)


def _nearest_section(name: str) -> str:
    """What to tell about a section that does not exist."""
    close = difflib.get_close_matches(name, SECTIONS, n=1)
    return f"did you mean {close[0]}?" if close else "known sections are " + ", ".join(SECTIONS)


def _value(given: Given, environ: Mapping[str, str]) -> object:
    kind = KEYS[given.name].kind
    raw = given.raw
    expanded = [_expanded(item, given, environ) for item in raw] if isinstance(raw, list) else raw
    expanded = _expanded(expanded, given, environ)
    try:
        return kind.read(expanded)
    except ValueError:
        if kind.is_secret:
            raise ConfigRefused(f"{given.name} ({given.origin}): expected {kind.expected}") from None
        seen = _quoted(raw) if expanded == raw else f"{_quoted(raw)}, which is {_quoted(expanded)}"
        raise ConfigRefused(f"{given.name} = {seen} ({given.origin}): expected {kind.expected}") from None


def _expanded(raw: object, given: Given, environ: Mapping[str, str]) -> object:
    """The value of the environment variable that `"$NAME"` refers to; anything else as it is."""
    if not isinstance(raw, str) or not re.fullmatch(r"\$[A-Za-z_][A-Za-z0-9_]*", raw):
        return raw
    if raw[1:] not in environ and KEYS[given.name].kind.is_secret:  # it may not be meant as a name
        raise ConfigRefused(f"{given.name} ({given.origin}): the environment variable it names is not set")
    if raw[1:] not in environ:
        raise ConfigRefused(
            f"{given.name} = {_quoted(raw)} ({given.origin}): environment variable {raw[1:]} is not set"
        )
    return environ[raw[1:]]


def _quoted(raw: object) -> str:
    """A value on one line, for a message."""
    return json.dumps(raw, default=str, ensure_ascii=False)


def _check(settings: Settings) -> None:
    """What each key allows and all together do not."""
    cold = settings.cold
    if cold.backend == "s3" and not cold.s3_bucket:
        raise ConfigRefused('cold.backend = "s3" needs a bucket: set cold.s3_bucket')
    if bool(cold.s3_access_key_id) != bool(cold.s3_secret_access_key.text):
        raise ConfigRefused("cold.s3_access_key_id and cold.s3_secret_access_key need each other: set both")
    if cold.s3_session_token.text and not cold.s3_access_key_id:
        raise ConfigRefused("cold.s3_session_token needs cold.s3_access_key_id: set both")


def _doubts(settings: Settings) -> list[str]:
    limits, cold = settings.limits, settings.cold
    doubts = []
    if limits.append_bytes > limits.inflight_bytes:
        doubts.append(
            f"limits.append_bytes ({_show_size(limits.append_bytes)}) is more than limits.inflight_bytes "
            f"({_show_size(limits.inflight_bytes)}): bodies between the two always get 503"
        )
    if cold.backend == "fs" and cold.s3_bucket:
        doubts.append(
            f'cold.s3_bucket is set and cold.backend is "fs": objects go to {cold.root}, not to the bucket'
        )
    if cold.flush_size > cold.max_hot_bytes:
        doubts.append(
            f"cold.flush_size ({_show_size(cold.flush_size)}) is more than cold.max_hot_bytes "
            f"({_show_size(cold.max_hot_bytes)}): appends get 503 until cold.flush_interval is over"
        )
    return doubts
