"""The log entry: what was written is what is read, and what cannot be read stops with both versions."""

import msgspec
import pytest

from ursula.model.commands import (
    AnyCommand,
    Append,
    Create,
    CreateBucket,
    Delete,
    Expire,
    ForkPoint,
    IfMatch,
    Producer,
    Renew,
    Version,
)
from ursula.model.entry import ENTRY_VERSION, EntryUnreadable, decode, encode

CONDITION = IfMatch((Version("0-1-0", 7, True), Version("0-2-0", 2**40, False)), anything=False)
COMMANDS: list[AnyCommand] = [
    CreateBucket("b"),
    Create("b", "s", None),
    Create(
        "b",
        "é/s",
        "application/json",
        (b"1", b"\x00\xff"),
        True,
        60,
        None,
        True,
        ForkPoint("t", 5, 2),
        Producer("p", 1, 2**53 - 1),
        "seq",
        CONDITION,
    ),
    Create("b", "s", "text/plain", expires_at=-62_135_596_800_000_000),
    Append("b", "s", (b"x",), "text/plain"),
    Append("b", "s", (), None, True, Producer("p", 0, 0), "seq", IfMatch((), anything=True), "0-1-0"),
    Delete("b", "s"),
    Delete("b", "s", "0-1-0"),
    Expire("b", "s", "0-1-0", -5),
    Renew("b", "s", "0-1-0", 2**60),
]


def raw(*items: object) -> bytes:
    return msgspec.msgpack.encode(items)


def test_what_was_written_is_what_is_read() -> None:
    batch = decode(encode(2**63 - 1, 1_700_000_000_000_000, COMMANDS))
    assert batch.proposer == 2**63 - 1
    assert batch.at == 1_700_000_000_000_000
    assert batch.commands == COMMANDS


def test_the_bytes_of_an_entry_stay_what_they_are() -> None:
    """These bytes are in logs on disks: if this fails, a new version is needed."""
    commands: list[AnyCommand] = [CreateBucket("b"), Append("b", "s", (b"x",), "text/plain")]
    assert encode(5, 6, commands).hex() == (
        "94010506929201a1629a03a162a17391c40178aa746578742f706c61696ec2c0c0c0c0"
    )
    tags = [msgspec.msgpack.decode(msgspec.msgpack.encode(command))[0] for command in COMMANDS]
    assert tags == [1, 2, 2, 2, 3, 3, 4, 4, 5, 6]


def test_a_command_may_gain_fields_at_its_end() -> None:
    old = raw(ENTRY_VERSION, 5, 6, [[3, "b", "s", [b"x"], "text/plain"]])
    assert decode(old).commands == [Append("b", "s", (b"x",), "text/plain")]


@pytest.mark.parametrize(
    ("payload", "theirs"),
    [
        (raw(ENTRY_VERSION, 5, 6, [[99, "b"]]), "version 1"),
        (raw(ENTRY_VERSION, 5, 6, [[1, "b", "a field from the future"]]), "version 1"),
        (raw(ENTRY_VERSION, 5, 6, [[3, "b", "s", [b"x"], None, False, ["p", 0, 0, "more"]]]), "version 1"),
        (raw(ENTRY_VERSION, 5, 6, [[1]]), "version 1"),
        (raw(ENTRY_VERSION, 5, 6, [[1, 7]]), "version 1"),
        (b"\x94\x01\x05\x06\x91\x92\x01\xa1\xff", "version 1"),
        (raw(ENTRY_VERSION + 1, 5, 6, []), "version 2"),
        (raw(ENTRY_VERSION + 1, 5, 6, [], "more"), "version 2"),
        (raw(ENTRY_VERSION + 1, {"at": 6}), "version 2"),
        (raw(0, 5, 6, []), "version 0"),
        (raw("two", 5, 6, []), "no version that can be read"),
        (raw(), "no version that can be read"),
        (raw({}), "no version that can be read"),
        (b"", "no version that can be read"),
        (b"\x00\xff not ours", "no version that can be read"),
    ],
)
def test_what_cannot_be_read_stops_with_an_error_that_names_both_versions(
    payload: bytes, theirs: str
) -> None:
    with pytest.raises(EntryUnreadable) as caught:
        decode(payload)
    message = str(caught.value)
    assert f"has {theirs}," in message
    assert "this server reads version 1 " in message


def test_an_entry_that_was_cut_off_is_never_half_read() -> None:
    whole = encode(5, 6, COMMANDS)
    for length in range(len(whole)):
        with pytest.raises(EntryUnreadable):
            decode(whole[:length])
    with pytest.raises(EntryUnreadable):
        decode(whole + b"\x00")
