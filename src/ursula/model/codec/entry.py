"""The log entry: one or more batches of commands as bytes.

Every new command or field raises the version, so that an older server that reads one can say which
version it needs. Entries of all lower versions stay readable.

Layout: a msgpack array of two: format version, and the array of batches. A batch is an array of
three: proposer, time in microseconds since 1970, and the array of commands, each an array that
begins with its tag. The proposer is a random number that each process draws, so that no two
processes ever write the same batch. Up to version 5 an entry was one batch, and an array of four:
version, proposer, time, commands.

An entry that is too large for its log is stored as a blob, and the log has an array of three instead:
version, time of the entry, and the name of the blob with the digest of the entry.

While nodes of an earlier version share the log, entries are written in the version that all nodes
read, and what it cannot express is not written (VersionTooLow).

All batches of an entry have its position, and the indexes of their commands continue from one to
the next. An entry has one time: the latest of its batches.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from ..commands import AnyCommand, Append, PlainAppend, RequestFlush

ENTRY_VERSION = 6
ENTRY_VERSION_WRITTEN_MIN = 5
"""The lowest version that is still written, for nodes that are not upgraded yet."""

_BATCHES_SINCE = 6  # several batches in an entry, and entries in blobs
_COMMANDS_SINCE: dict[type, int] = {RequestFlush: 6}  # commands that not every written version has

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, list[tuple[int, int, list[AnyCommand]]]])
_stored_decoder = msgspec.msgpack.Decoder(tuple[int, int, tuple[str, str]])
_early_decoder = msgspec.msgpack.Decoder(tuple[int, int, int, list[AnyCommand]])
_items = msgspec.msgpack.Decoder(list[msgspec.Raw])  # an entry of any version is at least an array
_STORED, _EARLY = b"\x93", b"\x94"  # the headers of arrays of three and of four


class Batch(NamedTuple):
    """Commands that one proposer has put into the log together."""

    proposer: int
    at: int
    commands: list[AnyCommand]


class DecodedEntry(NamedTuple):
    """A decoded log entry: at least one batch."""

    batches: list[Batch]

    @property
    def at(self) -> int:
        """The time of the entry."""
        return max(batch.at for batch in self.batches)

    @property
    def commands(self) -> list[AnyCommand]:
        """The commands of all batches."""
        if len(self.batches) == 1:
            return self.batches[0].commands
        return list(chain.from_iterable(batch.commands for batch in self.batches))


class StoredEntry(NamedTuple):
    """An entry that is in a blob: its time, and its digest."""

    at: int
    blob: str
    digest: str


class EntryUnreadable(Exception):
    """An entry that this version cannot read: a newer one wrote the log, or another program did."""


class VersionTooLow(Exception):
    """Something cannot be written now, since a node reads only entries of an earlier version."""

    def __init__(self, what: str, needed: int, version: int) -> None:
        super().__init__(
            f"{what} needs log entries of version {needed}, and a node of the cluster reads only version "
            f"{version}: it is possible once all nodes are upgraded"
        )
        self.needed, self.version = needed, version


def encode(proposer: int, at: int, commands: Sequence[AnyCommand], version: int = ENTRY_VERSION) -> bytes:
    """The bytes of an entry with one batch; raises VersionTooLow."""
    if version >= _BATCHES_SINCE:
        return _encoder.encode((version, ((proposer, at, commands),)))
    if version < ENTRY_VERSION_WRITTEN_MIN:
        raise VersionTooLow("every write", ENTRY_VERSION_WRITTEN_MIN, version)
    for command in commands:
        if not is_expressible(command, version):
            raise VersionTooLow(
                f"the command {type(command).__name__}", _COMMANDS_SINCE[type(command)], version
            )
    return _encoder.encode((version, proposer, at, [_early_form(command) for command in commands]))


def encode_batches(batches: Sequence[Batch], version: int = ENTRY_VERSION) -> bytes:
    """The bytes of an entry with these batches; raises VersionTooLow."""
    if version >= _BATCHES_SINCE:
        return _encoder.encode((version, batches))
    if len(batches) > 1:
        raise VersionTooLow("an entry with several batches", _BATCHES_SINCE, version)
    return encode(*batches[0], version)


def encode_stored(stored: StoredEntry, version: int = ENTRY_VERSION) -> bytes:
    """The bytes that lead to an entry in a blob; raises VersionTooLow."""
    if version < _BATCHES_SINCE:
        raise VersionTooLow("a write of this size", _BATCHES_SINCE, version)
    return _encoder.encode((version, stored.at, (stored.blob, stored.digest)))


def is_expressible(command: AnyCommand, version: int) -> bool:
    """Whether entries of a version can have this command."""
    return version >= _COMMANDS_SINCE.get(type(command), ENTRY_VERSION_WRITTEN_MIN)


def _early_form(command: AnyCommand) -> AnyCommand:
    """A command as versions before 6 have it: they know no plain append."""
    return Append(*msgspec.structs.astuple(command)) if isinstance(command, PlainAppend) else command


def decode_any(payload: bytes) -> DecodedEntry | StoredEntry:
    """Decode an entry of the log, which may be in a blob; raises EntryUnreadable."""
    if not payload.startswith(_STORED):
        return decode(payload)
    try:
        version, at, (blob, digest) = _stored_decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise EntryUnreadable(_explain(payload, str(error))) from None
    if not 6 <= version <= ENTRY_VERSION:
        raise EntryUnreadable(_explain(payload, "another format"))
    return StoredEntry(at, blob, digest)


def decode(payload: bytes) -> DecodedEntry:
    """Decode an entry; raises EntryUnreadable, which names both versions, if that is impossible."""
    try:
        if payload.startswith(_EARLY):
            version, *batch = _early_decoder.decode(payload)
            batches, versions = [Batch(*batch)], range(1, 6)  # type: ignore[arg-type]
        else:
            version, found = _decoder.decode(payload)
            batches, versions = [Batch(*batch) for batch in found], range(6, ENTRY_VERSION + 1)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise EntryUnreadable(_explain(payload, str(error))) from None
    if version not in versions or not batches:
        raise EntryUnreadable(_explain(payload, "another format"))
    return DecodedEntry(batches)


def _explain(payload: bytes, problem: str) -> str:
    try:
        found = f"version {msgspec.msgpack.decode(_items.decode(payload)[0], type=int)}"
    except (msgspec.MsgspecError, IndexError):
        found = "no readable version"
    return (
        f"a log entry has {found}, and this server reads version {ENTRY_VERSION} ({problem}): "
        "start the version of ursula that wrote it"
    )
