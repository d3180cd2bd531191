"""What the options of reads and writes have in common: how a wrong one is rejected, and how S3 is reached."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

OFFSET_DIGITS = 20
"""The maximum number of digits of an offset or a position, which is also the number with leading zeros."""


class OptionError(ValueError):
    """An option is missing or invalid; the message says what to write instead."""


@dataclass(frozen=True)
class S3Options:
    """How to reach a store in S3. Fields that are None are looked up where the AWS tools look."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)


def take_known(given: Mapping[str, str], names: Sequence[str], internal: str | None = None) -> dict[str, str]:
    """The options, spelled as in `names`; OptionError if one has another name.

    `internal` names an option that is accepted too, but not suggested to users.
    """
    known = {name.lower(): name for name in names}
    options: dict[str, str] = {}
    for given_name, text in given.items():
        name = given_name if given_name == internal else known.get(given_name.lower())
        if name is None:
            raise OptionError(f"there is no option {given_name}; the options are {', '.join(names)}")
        options[name] = text
    return options


def parse_seconds(options: Mapping[str, str], name: str, default: float) -> float:
    """An option that is a number of seconds."""
    try:
        seconds = float(options.get(name, default))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise OptionError(f"{name} must be a number of seconds, not {options[name]!r}")
    return seconds


def parse_flag(options: Mapping[str, str], name: str, default: bool = False) -> bool:
    """An option that is true or false."""
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, not {options[name]!r}")
    return text == "true"
