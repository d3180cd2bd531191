"""The log entry: one batch of commands as bytes.

Every new command or field raises the version, so that an older server that reads one can say which
version it needs. Entries of all lower versions stay readable.

Layout: a msgpack array of four: format version, proposer, time in microseconds since 1970, and the
array of commands, each an array that begins with its tag. The proposer is a random number that
each process draws, so that no two processes ever write the same entry.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ..commands import AnyCommand

ENTRY_VERSION = 5

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, int, int, list[AnyCommand]])
_items = msgspec.msgpack.Decoder(list[msgspec.Raw])  # an entry of any version is at least an array


class DecodedEntry(NamedTuple):
    """A decoded log entry."""

    proposer: int
    at: int
    commands: list[AnyCommand]


class EntryUnreadable(Exception):
    """An entry that this version cannot read: a newer one wrote the log, or another program did."""


def encode(proposer: int, at: int, commands: Sequence[AnyCommand]) -> bytes:
    """The bytes of a batch."""
    return _encoder.encode((ENTRY_VERSION, proposer, at, commands))


def decode(payload: bytes) -> DecodedEntry:
    """Decode a batch; raises EntryUnreadable, which names both versions, if that is impossible."""
    try:
        version, proposer, at, commands = _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise EntryUnreadable(_explain(payload, str(error))) from None
    if not 1 <= version <= ENTRY_VERSION:
        raise EntryUnreadable(_explain(payload, "another format"))
    return DecodedEntry(proposer, at, commands)


def _explain(payload: bytes, problem: str) -> str:
    try:
        found = f"version {msgspec.msgpack.decode(_items.decode(payload)[0], type=int)}"
    except (msgspec.MsgspecError, IndexError):
        found = "no readable version"
    return (
        f"a log entry has {found}, and this server reads version {ENTRY_VERSION} ({problem}): "
        "start the version of ursula that wrote it"
    )
