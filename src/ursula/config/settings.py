"""Every setting, declared once: its default, its kind, one line of text and its flag.

Each section is a frozen class. `KEYS` is derived from these classes; the command line, `ursula config show`
and docs/configuration.md are based on it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, cast

from .kinds import (
    ADDRESS,
    ADDRESSES,
    COUNT,
    DURATION,
    ENDPOINT,
    FOLDER,
    ORIGINS,
    SECRET,
    SIZE,
    SIZE_OR_NONE,
    SWITCH,
    TEXT,
    Address,
    Secret,
    SettingKind,
    choice,
    word_of,
)

T = TypeVar("T")


def key(
    written: object, kind: SettingKind[T], doc: str, flag: str | None = None, shown: str | None = None
) -> T:
    """A field of a section: its default as a user would write it, its kind, one line of text, its flag.

    `shown` replaces the default in help and documentation where the default is not a fixed value.
    """
    default = kind.read(written)
    about = {"kind": kind, "doc": doc, "flag": flag, "shown": shown or kind.show(default)}
    return field(default=default, metadata=about)


class LogKind(StrEnum):
    """Where the log is kept: by the words of `server.log`, or in etcd, as every cluster does."""

    FILE = "file"
    MEMORY = "memory"
    ETCD = "etcd"

    @property
    def is_durable(self) -> bool:
        """Whether it outlives the server. Only then a node has a data folder, and a store that is kept."""
        return self is not LogKind.MEMORY


@dataclass(frozen=True)
class ServerSettings:
    """The identity of this node, where it listens and where it keeps its data."""

    node_id: int = key(1, COUNT, "Number of this node.", "--node-id")
    listen: Address = key(
        "127.0.0.1:4437", ADDRESS, "Address to listen on; with port 0 the system picks a port.", "--listen"
    )
    advertise: Address = key(
        "same-as-listen:0",
        ADDRESS,
        "Address at which others reach this node.",
        "--advertise",
        shown="same as listen",
    )
    data_dir: Path = key("./data", FOLDER, "Folder for everything that must survive a restart.", "--data-dir")
    log: LogKind = key(
        "file",
        word_of(LogKind.FILE, LogKind.MEMORY),
        "Where the log is kept: file is durable, memory loses everything when the server stops.",
        "--log",
    )
    write_only_leader: bool = key(
        False,
        SWITCH,
        "Whether this node leaves writes to the leader of its cluster. A single node always leads.",
    )

    def __post_init__(self) -> None:
        if self.advertise == Address("same-as-listen", 0):
            object.__setattr__(self, "advertise", self.listen)


@dataclass(frozen=True)
class ColdSettings:
    """Where objects are stored, and when data is flushed."""

    backend: str = key(
        "fs",
        choice("fs", "s3"),
        "Where objects are stored: fs is local files, s3 is S3 or a compatible store.",
    )
    root: str = key(
        "",
        TEXT,
        "Folder of the objects; for s3, the prefix of their keys, which may be empty.",
        shown="data_dir/cold",
    )
    shared_fs: bool = key(
        False,
        SWITCH,
        "Whether all nodes of a cluster share the folder; a cluster needs that, or s3.",
    )
    s3_bucket: str = key("", TEXT, "Bucket for the objects; it must exist.", shown="none")
    s3_region: str = key("", TEXT, "Region of the bucket.", shown="AWS_REGION, otherwise us-east-1")
    s3_endpoint: str = key("", ENDPOINT, "URL of the S3 service.", shown="AWS")
    s3_access_key_id: str = key(
        "",
        TEXT,
        "Access key.",
        shown="from the environment, the container or the machine, as for AWS's own tools",
    )
    s3_secret_access_key: Secret = key("", SECRET, "Secret of the access key; never shown.", shown="none")
    s3_session_token: Secret = key("", SECRET, "Token of a temporary access key; never shown.", shown="none")
    flush_size: int = key("8MiB", SIZE, "How many bytes trigger a flush to the store.")
    flush_interval: float = key("60s", DURATION, "How old data gets before it is flushed to the store.")
    max_hot_bytes: int = key(
        "256MiB", SIZE, "Maximum bytes that are not yet in the store; above this, appends get 503."
    )
    cache_bytes: int = key(
        "256MiB",
        SIZE_OR_NONE,
        "Maximum bytes of stored data that stay in memory because they were recently read or written.",
    )
    keep_replaced: float = key(
        "24h", DURATION, "How long replaced objects are kept for readers, and deleted streams for undelete."
    )
    keep_trimmed: bool = key(False, SWITCH, "Whether trimmed and deleted data stays in the store.")


@dataclass(frozen=True)
class HttpSettings:
    """How reads are answered and cached, and how long live reads and idle connections last."""

    reads: str = key(
        "linearizable",
        choice("linearizable", "local"),
        "What reads in a cluster show: everything acknowledged (linearizable), or what the node has (local).",
    )
    cache: str = key(
        "public",
        choice("public", "private"),
        "Who may cache catch-up reads: public is anyone, private is the client alone.",
    )
    long_poll: float = key("3s", DURATION, "How long a long-poll waits for new data.")
    sse_cycle: float = key("60s", DURATION, "How long an SSE connection lives before the client resumes it.")
    sse_heartbeat: float = key("15s", DURATION, "How often an idle SSE connection gets a comment.")
    keep_alive: float = key("75s", DURATION, "How long an idle connection is kept open.")


@dataclass(frozen=True)
class ClusterSettings:
    """The cluster that this node belongs to. A node without a cluster name is a single server."""

    name: str = key("", TEXT, "Name of the cluster; all its nodes have the same.", shown="none")
    bootstrap_node_id: int = key(
        1, COUNT, "Number of the node that begins a new cluster; others wait for it."
    )
    routes: tuple[Address, ...] = key([], ADDRESSES, "Advertised addresses of the other nodes.", shown="none")
    groups: int = key(
        1, COUNT, "Number of groups that share the buckets, at most 64; fixed once the cluster has begun."
    )
    secret: Secret = key(
        "",
        SECRET,
        "Secret that all nodes share, from which they make certificates; never shown.",
        shown="none",
    )
    tls_cert: str = key("", TEXT, "File with the certificate of this node.", shown="made from the secret")
    tls_key: str = key("", TEXT, "File with the key of that certificate.", shown="made from the secret")
    tls_ca: str = key(
        "", TEXT, "File with the authority that signed those of all nodes.", shown="made from the secret"
    )
    etcd_path: str = key("", TEXT, "The etcd program.", shown="etcd on the PATH")
    write_wait: float = key("10s", DURATION, "How long a request waits for the log; after that, 503.")
    log_bytes: int = key(
        "512MiB", SIZE, "How large the log may become while a lagging node still needs its entries."
    )


@dataclass(frozen=True)
class CorsSettings:
    """Which web pages may use the server."""

    origins: tuple[str, ...] = key(
        ["*"], ORIGINS, "Origins whose pages may use the server; * allows any, except for /cluster/*."
    )


@dataclass(frozen=True)
class LimitsSettings:
    """How much one request, one connection and the whole server may use."""

    append_bytes: int = key("32MiB", SIZE, "Largest body of an append; larger ones get 413.")
    connections: int = key(16384, COUNT, "Maximum number of open connections.")
    body_timeout: float = key("30s", DURATION, "How long a request body may take to arrive; after that, 408.")
    inflight_bytes: int = key(
        "256MiB", SIZE, "Maximum bytes of all request bodies being read or queued; above this, 503."
    )
    sse_bytes: int = key(
        "256KiB", SIZE, "About how many bytes an SSE connection is sent before its client must read them."
    )
    unread_bytes: int = key(
        "256MiB",
        SIZE,
        "Maximum bytes of all responses that clients have not read; above this, the slowest are cut off.",
    )
    log_segment_bytes: int = key("64MiB", SIZE, "Size of a segment file of the log.")
    spool_bytes: int = key("8GiB", SIZE, "Maximum bytes of the temporary files from which feeds are served.")


@dataclass(frozen=True)
class LoggingSettings:
    """What is logged, and how log lines look."""

    level: str = key(
        "info", choice("debug", "info", "warning", "error"), "Lowest level that is logged.", "--log-level"
    )
    format: str = key(
        "auto",
        choice("auto", "text", "json"),
        "How log lines look: auto is text on a terminal and JSON elsewhere.",
        "--log-format",
    )


@dataclass(frozen=True)
class Settings:
    """Everything that can be set; `Settings()` has the defaults."""

    server: ServerSettings = ServerSettings()
    cold: ColdSettings = ColdSettings()
    cluster: ClusterSettings = ClusterSettings()
    http: HttpSettings = HttpSettings()
    cors: CorsSettings = CorsSettings()
    limits: LimitsSettings = LimitsSettings()
    logging: LoggingSettings = LoggingSettings()

    def __post_init__(self) -> None:
        if self.cold.backend == "fs" and not self.cold.root:
            root = FOLDER.show(self.server.data_dir / "cold")
            object.__setattr__(self, "cold", replace(self.cold, root=root))
        if self.cluster.name and self.server.log is LogKind.FILE:
            object.__setattr__(self, "server", replace(self.server, log=LogKind.ETCD))


SECTIONS = {section.name: cast(type[Any], type(section.default)) for section in fields(Settings)}


@dataclass(frozen=True)
class Key:
    """One setting, as the help, `config show` and the documentation show it."""

    name: str
    default: str
    kind: SettingKind[Any]
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
