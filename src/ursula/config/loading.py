"""Finds and checks the settings: a file, then the environment, then flags; the last one given wins."""

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .kinds import SIZE, is_loopback
from .settings import KEYS, SECTIONS, LogKind, Settings

GROUPS_MAX = 64
FILES_SEARCHED = ("./ursula.toml", "/etc/ursula/ursula.toml")


class StartRefused(Exception):
    """Why the server cannot start: one line that says what to do."""

    exit_code = 1


class ConfigRefused(StartRefused):
    """A setting is unknown, has a wrong value, or cannot be read."""

    exit_code = 2


@dataclass(frozen=True)
class LoadedConfig:
    """The effective settings, where each came from, and warnings about them."""

    settings: Settings
    origins: dict[str, str]
    warnings: list[str]


class Given(NamedTuple):
    """A value as it is written in one of the sources."""

    name: str
    raw: object
    origin: str


IGNORED = {
    f"{prefix}hot_payload_backend": "has no effect and is ignored; remove it"
    for prefix in ("", "server.", "storage.")
}


def load(config_path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> LoadedConfig:
    """Find and check all settings; `flags` is keyed like `KEYS`, and None there means not given."""
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
    return LoadedConfig(settings, origins, warnings + _doubts(settings))


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
    except OSError:  # a folder on the path is not searchable, so for us the file does not exist
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
    """A suggestion for a key that does not exist."""
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
    """A suggestion for a section that does not exist."""
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
    """The value of the environment variable that `"$NAME"` refers to; anything else unchanged."""
    if not isinstance(raw, str) or not re.fullmatch(r"\$[A-Za-z_][A-Za-z0-9_]*", raw):
        return raw
    if raw[1:] not in environ and KEYS[given.name].kind.is_secret:  # not shown: it may be the secret itself
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
    """Reject values that are valid alone but not together."""
    cold = settings.cold
    if cold.backend == "s3" and not cold.s3_bucket:
        raise ConfigRefused('cold.backend = "s3" needs a bucket: set cold.s3_bucket')
    if bool(cold.s3_access_key_id) != bool(cold.s3_secret_access_key.text):
        raise ConfigRefused("cold.s3_access_key_id and cold.s3_secret_access_key belong together: set both")
    if cold.s3_session_token.text and not cold.s3_access_key_id:
        raise ConfigRefused("cold.s3_session_token needs cold.s3_access_key_id: set both")
    _check_cluster(settings)


def _check_cluster(settings: Settings) -> None:
    """Reject a cluster whose nodes could not reach each other, their store or their log."""
    cluster, server, cold = settings.cluster, settings.server, settings.cold
    if not cluster.name:
        return
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", cluster.name):
        raise ConfigRefused(
            f"cluster.name = {_quoted(cluster.name)}: expected up to 64 letters, digits, dots, dashes and "
            "underscores, of which the first is a letter or digit"
        )
    if server.log is LogKind.MEMORY:
        raise ConfigRefused('a cluster keeps its log in etcd: leave out server.log = "memory"')
    if cold.backend == "fs" and not cold.shared_fs:
        raise ConfigRefused(
            'cold.backend = "fs" keeps objects on one machine, and all nodes of a cluster need them: set '
            'cold.backend = "s3", or cold.shared_fs = true if cold.root is a folder that all nodes share'
        )
    if server.listen.port == 0 or server.advertise.port == 0:
        raise ConfigRefused("in a cluster, server.listen needs a fixed port: etcd uses the two after it")
    if server.advertise in cluster.routes:
        raise ConfigRefused(f"cluster.routes has the other nodes, and {server.advertise} is this one")
    if cluster.groups > GROUPS_MAX:
        raise ConfigRefused(f"cluster.groups = {cluster.groups}: expected at most {GROUPS_MAX}")
    files = (cluster.tls_cert, cluster.tls_key, cluster.tls_ca)
    if any(files) and not all(files):
        raise ConfigRefused("cluster.tls_cert, cluster.tls_key and cluster.tls_ca belong together: set all")
    if server.advertise.host in ("0.0.0.0", "::"):
        raise ConfigRefused(
            f"other nodes cannot reach {server.advertise}: set server.advertise to this node's own address"
        )
    hosts = {server.listen.host, server.advertise.host, *(route.host for route in cluster.routes)}
    if not all(map(is_loopback, hosts)) and not cluster.secret.text and not any(files):
        raise ConfigRefused(
            "etcd's ports would be open to the network: set cluster.secret, the same on all nodes, or "
            "cluster.tls_cert, cluster.tls_key and cluster.tls_ca"
        )


def _doubts(settings: Settings) -> list[str]:
    limits, cold = settings.limits, settings.cold
    doubts = []
    if limits.append_bytes > limits.inflight_bytes:
        doubts.append(
            f"limits.append_bytes ({SIZE.show(limits.append_bytes)}) is more than limits.inflight_bytes "
            f"({SIZE.show(limits.inflight_bytes)}): bodies between the two always get 503"
        )
    if cold.backend == "fs" and cold.s3_bucket:
        doubts.append(
            f'cold.s3_bucket is set, but cold.backend is "fs": objects go to {cold.root}, not to the bucket'
        )
    if cold.flush_size > cold.max_hot_bytes:
        doubts.append(
            f"cold.flush_size ({SIZE.show(cold.flush_size)}) is more than cold.max_hot_bytes "
            f"({SIZE.show(cold.max_hot_bytes)}): appends get 503 until cold.flush_interval is over"
        )
    return doubts
