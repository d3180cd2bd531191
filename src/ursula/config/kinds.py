"""The kinds of values, and how each is written, read and shown.

A value is written the same way in the configuration file, in the environment and as a flag.
"""

import ipaddress
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
W = TypeVar("W", bound=StrEnum)


class Address(NamedTuple):
    """A host and a port; with port 0 the system picks one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class Secret:
    """Text that is never shown."""

    text: str = field(default="", repr=False)

    def __str__(self) -> str:
        return "(not shown)" if self.text else ""


@dataclass(frozen=True)
class SettingKind(Generic[T]):
    """One type of value; `read` takes a value of TOML, the environment or a flag, or raises ValueError."""

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


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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


def _read_addresses(raw: object) -> tuple[Address, ...]:
    items = [item.strip() for item in raw.split(",") if raw.strip()] if isinstance(raw, str) else raw
    if not isinstance(items, list):
        raise ValueError
    return tuple(map(_read_address, items))


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


def choice(*words: str) -> SettingKind[str]:
    """One of a few words."""

    def read(raw: object) -> str:
        if raw not in words:
            raise ValueError
        return str(raw)

    return SettingKind("one of " + ", ".join(words), "|".join(words), read)


def word_of(*words: W) -> SettingKind[W]:
    """One of some words of an enumeration."""
    kind = choice(*words)
    return SettingKind(kind.expected, kind.metavar, lambda raw: type(words[0])(kind.read(raw)))


COUNT = SettingKind("a whole number, 1 or more", "NUMBER", _read_count)
SIZE = SettingKind('a size in bytes, 1 or more, or with a unit as in "8MiB"', "SIZE", _read_size, _show_size)
SIZE_OR_NONE = SettingKind(
    'a size in bytes, 0 or more, or with a unit as in "8MiB"', "SIZE", _read_size_or_none, _show_size
)
TEXT = SettingKind("text", "TEXT", _read_optional)
SECRET = SettingKind("text", "TEXT", _read_secret, is_secret=True)
ENDPOINT = SettingKind("http://host:port or https://host, without a path", "URL", _read_endpoint)
SWITCH = SettingKind("true or false", "true|false", _read_switch, _show_switch)
DURATION = SettingKind(
    'a duration in seconds, more than 0 and at most a year, or with a unit as in "500ms", "60s", "5m", "24h"',
    "DURATION",
    _read_duration,
    _show_duration,
)
ADDRESS = SettingKind("host:port, as in 127.0.0.1:4437 or [::1]:4437", "HOST:PORT", _read_address)
ADDRESSES = SettingKind(
    'a list of host:port, as in ["10.0.0.2:4437", "10.0.0.3:4437"]',
    "HOST:PORT,...",
    _read_addresses,
    lambda addresses: ",".join(map(str, addresses)),
)
FOLDER = SettingKind("the path of a folder", "FOLDER", _read_folder, _show_folder)
ORIGINS = SettingKind(
    'a list of "*" or origins like https://example.org, without a path', "ORIGIN,...", _read_origins, ",".join
)
