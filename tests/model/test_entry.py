"""The log entry: what was written is what is read, and what cannot be read stops with both versions."""

from typing import get_args

import msgspec
import pytest

from ursula.model.codec.entry import (
    ENTRY_VERSION,
    ENTRY_VERSION_WRITTEN_MIN,
    Batch,
    DecodedEntry,
    EntryUnreadable,
    StoredEntry,
    VersionTooLow,
    decode,
    decode_any,
    encode,
    encode_batches,
    encode_stored,
    is_expressible,
)
from ursula.model.commands import (
    AnyCommand,
    Append,
    Body,
    Collect,
    Create,
    CreateBucket,
    Delete,
    DeleteBucket,
    Expire,
    FlushBegin,
    Flushed,
    ForkedAt,
    ForkPoint,
    IfMatch,
    IngestBegin,
    IngestRow,
    IngestRows,
    Merge,
    PlainAppend,
    Producer,
    PublishSnapshot,
    Renew,
    RequestFlush,
    SetAttributes,
    StoredSegment,
    StoredState,
    Trim,
    Undelete,
    Version,
)

CONDITION = IfMatch((Version("0-1-0", 7, True), Version("0-2-0", 2**40, False)), any_version=False)
SEGMENT = StoredSegment(3, 9, "segments/x", 4, 2**40, 5, 6, 2**32 - 1, "sha256:aa")
STATE = StoredState("state/y", True, 7, 8, "sha256:bb")


def has_body(command: AnyCommand) -> bool:
    return isinstance(command, Append | Create) and command.body is not None


FIRST_FORM: list[tuple[AnyCommand, str]] = [
    (CreateBucket("b"), "94010506919201a162"),
    (Create("b", "s", None), "94010506919e02a162a173c090c2c0c0c2c0c0c0c0c0"),
    (
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
        "94010506919e02a162a4c3a92f73b06170706c69636174696f6e2f6a736f6e92c40131c40200ffc33cc0c393a174050293a17001"
        "cf001fffffffffffffa3736571929293a5302d312d3007c393a5302d322d30cf0000010000000000c2c2c0",
    ),
    (
        Create("b", "s", "text/plain", expires_at=-62_135_596_800_000_000),
        "94010506919e02a162a173aa746578742f706c61696e90c2c0d3ff23400100d44000c2c0c0c0c0c0",
    ),
    (
        Append("b", "s", (b"x",), "text/plain"),
        "94010506919a03a162a17391c40178aa746578742f706c61696ec2c0c0c0c0",
    ),
    (
        Append("b", "s", (), None, True, Producer("p", 0, 0), "seq", IfMatch((), any_version=True), "0-1-0"),
        "94010506919a03a162a17390c0c393a1700000a37365719290c3a5302d312d30",
    ),
    (Delete("b", "s"), "94010506919404a162a173c0"),
    (Delete("b", "s", "0-1-0"), "94010506919404a162a173a5302d312d30"),
    (Expire("b", "s", "0-1-0", -5), "94010506919505a162a173a5302d312d30fb"),
    (Renew("b", "s", "0-1-0", 2**60), "94010506919506a162a173a5302d312d30cf1000000000000000"),
]
"""What version 1 wrote, by proposer 5 at time 6: all that it could say."""

SECOND_FORM: list[tuple[AnyCommand, str]] = [
    (CreateBucket("b"), "94020506919201a162"),
    (Create("b", "s", None), "94020506919f02a162a173c090c2c0c0c2c0c0c0c0c0c0"),
    (
        Create("b", "s", None, attributes=b'{"title":"x"}'),
        "94020506919f02a162a173c090c2c0c0c2c0c0c0c0c0c40d7b227469746c65223a2278227d",
    ),
    (
        Append("b", "s", (b"x",), "text/plain"),
        "94020506919c03a162a17391c40178aa746578742f706c61696ec2c0c0c0c090c0",
    ),
    (
        Append("b", "s", (b"x", b"y"), "application/json", counts=(1, 1), record_match=7),
        "94020506919c03a162a17392c40178c40179b06170706c69636174696f6e2f6a736f6ec2c0c0c0c092010107",
    ),
    (Delete("b", "s", "0-1-0"), "94020506919404a162a173a5302d312d30"),
    (Expire("b", "s", "0-1-0", -5), "94020506919505a162a173a5302d312d30fb"),
    (Renew("b", "s", "0-1-0", 6), "94020506919506a162a173a5302d312d3006"),
    (DeleteBucket("b"), "94020506919207a162"),
    (SetAttributes("b", "s", b"{}"), "94020506919508a162a173c4027b7dc0"),
    (SetAttributes("b", "s", b"{}", "0-1-0"), "94020506919508a162a173c4027b7da5302d312d30"),
    (
        PublishSnapshot("b", "s", 5, "blob", "text/plain", 3, "sha256:aa"),
        "94020506919a09a162a17305a4626c6f62aa746578742f706c61696e03a97368613235363a6161c3c0",
    ),
    (
        PublishSnapshot("b", "s", 5, "blob", "text/plain", 3, "sha256:aa", False, "0-1-0"),
        "94020506919a09a162a17305a4626c6f62aa746578742f706c61696e03a97368613235363a6161c2a5302d312d30",
    ),
    (Trim("b", "s", 5), "9402050691950aa162a17305c0"),
    (Trim("b", "s", 2**40, "0-1-0"), "9402050691950aa162a173cf0000010000000000a5302d312d30"),
]
"""What version 2 wrote: all that version 1 could not say, and the rest again."""

THIRD_FORM: list[tuple[AnyCommand, str]] = [
    (
        CreateBucket("b"),
        "94030506919201a162",
    ),
    (
        Create("b", "s", None),
        "9403050691dc001102a162a173c090c2c0c0c2c0c0c0c0c0c0c0c0",
    ),
    (
        Create("b", "s", None, fork=ForkPoint("t", 5, 2), forked_at=ForkedAt("0-1-0", 7, 3)),
        "9403050691dc001102a162a173c090c2c0c0c293a1740502c0c0c0c0c093a5302d312d300703c0",
    ),
    (
        Create("b", "s", "text/plain", body=Body("b/0-1-0/x", (5, 2**33), 6)),
        "9403050691dc001102a162a173aa746578742f706c61696e90c2c0c0c2c0c0c0c0c0c0c093a9622f302d312d302f789205cf"
        "000000020000000006",
    ),
    (
        Append("b", "s", (b"x",), "text/plain"),
        "94030506919d03a162a17391c40178aa746578742f706c61696ec2c0c0c0c090c0c0",
    ),
    (
        Append("b", "s", (), "text/plain", body=Body("b/0-1-0/x", (5,), 6)),
        "94030506919d03a162a17390aa746578742f706c61696ec2c0c0c0c090c093a9622f302d312d302f78910506",
    ),
    (
        Delete("b", "s", "0-1-0"),
        "94030506919404a162a173a5302d312d30",
    ),
    (
        Expire("b", "s", "0-1-0", -5),
        "94030506919505a162a173a5302d312d30fb",
    ),
    (
        Renew("b", "s", "0-1-0", 6),
        "94030506919506a162a173a5302d312d3006",
    ),
    (
        DeleteBucket("b"),
        "94030506919207a162",
    ),
    (
        SetAttributes("b", "s", b"{}", "0-1-0"),
        "94030506919508a162a173c4027b7da5302d312d30",
    ),
    (
        PublishSnapshot("b", "s", 5, "blob", "text/plain", 3, "sha256:aa"),
        "94030506919c09a162a17305a4626c6f62aa746578742f706c61696e03a97368613235363a6161c3c0c0c0",
    ),
    (
        PublishSnapshot("b", "s", 5, "blob", "text/plain", 3, "sha256:aa", False, "0-1-0", 2, 6),
        "94030506919c09a162a17305a4626c6f62aa746578742f706c61696e03a97368613235363a6161c2a5302d312d300206",
    ),
    (
        Trim("b", "s", 5),
        "9403050691960aa162a17305c0c0",
    ),
    (
        Trim("b", "s", 5, "0-1-0", 2),
        "9403050691960aa162a17305a5302d312d3002",
    ),
    (
        FlushBegin(2**63 - 1),
        "9403050691920bcf7fffffffffffffff",
    ),
    (
        Flushed(3, 9, SEGMENT, STATE, 6),
        "9403050691960c0309990309aa7365676d656e74732f7804cf00000100000000000506ceffffffffa97368613235363a6161"
        "95a773746174652f79c30708a97368613235363a626206",
    ),
    (
        Flushed(3, 9, None, STATE, 6),
        "9403050691960c0309c095a773746174652f79c30708a97368613235363a626206",
    ),
    (
        Merge(("segments/x", "segments/y"), SEGMENT, 6),
        "9403050691940d92aa7365676d656e74732f78aa7365676d656e74732f79990309aa7365676d656e74732f7804cf00000100"
        "000000000506ceffffffffa97368613235363a616106",
    ),
    (
        Merge(("segments/x",), None, 6),
        "9403050691940d91aa7365676d656e74732f78c006",
    ),
    (
        Collect(6, 9),
        "9403050691930e0609",
    ),
    (
        Undelete("b", "s"),
        "9403050691940fa162a173c0",
    ),
    (
        Undelete("b", "s", "0-1-0"),
        "9403050691940fa162a173a5302d312d30",
    ),
]
"""What version 3 writes."""

FOURTH_FORM: list[tuple[AnyCommand, str]] = [
    *((command, "9404" + written[4:]) for command, written in THIRD_FORM),
    (
        IngestBegin("b", "job", 7, ("staging/b/x",), True, None, False, 6),
        "94040506919910a162a36a6f620791ab73746167696e672f622f78c3c0c206",
    ),
    (
        IngestRows("b", "job", 7, 0, 4, (IngestRow("s", (b"x",), "text/plain"),), True),
        "94040506919811a162a36a6f620700049195a17391c40178aa746578742f706c61696ec2c0c3",
    ),
    (
        IngestRows(
            "b", "job", 7, 1, 0, (IngestRow("s", (), "text/plain", True, ("empty_body", "why")),), False
        ),
        "94040506919811a162a36a6f620701009195a17390aa746578742f706c61696ec392aa656d7074795f626f6479a3776879c2",
    ),
]
"""What version 4 writes."""

FIFTH_FORM: list[tuple[AnyCommand, str]] = [
    *((command, "9405" + written[4:]) for command, written in FOURTH_FORM if not has_body(command)),
    (
        Create("b", "s", "text/plain", body=Body("b/new/x", (1, 2**31), 6, (7, 2**32 - 1))),
        "9405050691dc001102a162a173aa746578742f706c61696e90c2c0c0c2c0c0c0c0c0c0c094a7622f6e65772f789201ce80000000069207ceffffffff",
    ),
    (
        Append("b", "s", (), "text/plain", body=Body("b/0-1-0/x", (2**21,), 6, (7,) * 8)),
        "94050506919d03a162a17390aa746578742f706c61696ec2c0c0c0c090c094a9622f302d312d302f7891ce0020000006980707070707070707",
    ),
]
"""What version 5 writes: the checksums of a large body are new."""

SIXTH_FORM: list[tuple[AnyCommand, str]] = [
    *((command, "920691930506" + written[8:]) for command, written in FIFTH_FORM),
    (
        PlainAppend("b", "s", (b"x",), "text/plain"),
        "920691930506919d12a162a17391c40178aa746578742f706c61696ec2c0c0c0c090c0c0",
    ),
    (
        RequestFlush(),
        "9206919305069192" + "13c2",
    ),
    (
        RequestFlush(base=True),
        "9206919305069192" + "13c3",
    ),
]
"""What version 6 writes: an entry has batches, and plain appends and requests for a flush are new."""

ALL_FORMS = FIRST_FORM + SECOND_FORM + THIRD_FORM + FOURTH_FORM + FIFTH_FORM + SIXTH_FORM
COMMANDS = [command for command, _ in ALL_FORMS]


def one(command: AnyCommand) -> DecodedEntry:
    """An entry with one batch of one command."""
    return DecodedEntry([Batch(5, 6, [command])])


def raw(*items: object) -> bytes:
    return msgspec.msgpack.encode(items)


def test_what_was_written_is_what_is_read() -> None:
    batch = decode(encode(2**63 - 1, 1_700_000_000_000_000, COMMANDS))
    assert batch.batches == [Batch(2**63 - 1, 1_700_000_000_000_000, COMMANDS)]
    assert batch.at == 1_700_000_000_000_000
    assert batch.commands == COMMANDS


def test_an_entry_may_have_several_batches() -> None:
    batches = [Batch(1, 20, COMMANDS[:2]), Batch(2, 30, COMMANDS[2:5]), Batch(1, 10, [])]
    entry = decode(encode_batches(batches))
    assert entry == DecodedEntry(batches)
    assert (entry.at, entry.commands) == (30, COMMANDS[:5])


@pytest.mark.parametrize(("command", "written"), SIXTH_FORM)
def test_the_bytes_of_an_entry_stay_what_they_are(command: AnyCommand, written: str) -> None:
    """These bytes are in logs on disks: if this fails, a new version is needed."""
    assert encode(5, 6, [command]).hex() == written
    assert decode(bytes.fromhex(written)) == one(command)


@pytest.mark.parametrize(("command", "written"), FIRST_FORM)
def test_what_version_1_wrote_is_still_read(command: AnyCommand, written: str) -> None:
    assert decode(bytes.fromhex(written)) == one(command)


@pytest.mark.parametrize(("command", "written"), SECOND_FORM)
def test_what_version_2_wrote_is_still_read(command: AnyCommand, written: str) -> None:
    assert decode(bytes.fromhex(written)) == one(command)


@pytest.mark.parametrize(("command", "written"), THIRD_FORM)
def test_what_version_3_wrote_is_still_read(command: AnyCommand, written: str) -> None:
    assert decode(bytes.fromhex(written)) == one(command)


@pytest.mark.parametrize(("command", "written"), FOURTH_FORM)
def test_what_version_4_wrote_is_still_read(command: AnyCommand, written: str) -> None:
    assert decode(bytes.fromhex(written)) == one(command)


@pytest.mark.parametrize(("command", "written"), FIFTH_FORM)
def test_what_version_5_wrote_is_still_read(command: AnyCommand, written: str) -> None:
    assert decode(bytes.fromhex(written)) == one(command)


VERSION_5_COMMANDS = [command for command, _ in FIFTH_FORM]


@pytest.mark.parametrize(("command", "written"), FIFTH_FORM)
def test_an_entry_of_version_5_is_written_as_it_was(command: AnyCommand, written: str) -> None:
    assert encode(5, 6, [command], 5).hex() == written
    assert encode_batches([Batch(5, 6, [command])], 5).hex() == written


def test_a_plain_append_is_an_append_in_version_5() -> None:
    append = Append("b", "s", (b"x",), "text/plain")
    plain = PlainAppend("b", "s", (b"x",), "text/plain")
    assert encode(5, 6, [plain, append], 5) == encode(5, 6, [append, append], 5)
    assert [type(one) for one in decode(encode(5, 6, [plain], 5)).commands] == [Append]


def test_what_version_5_cannot_express_is_not_written() -> None:
    with pytest.raises(VersionTooLow, match="RequestFlush needs log entries of version 6"):
        encode(5, 6, [CreateBucket("b"), RequestFlush()], 5)
    with pytest.raises(VersionTooLow, match="several batches needs log entries of version 6"):
        encode_batches([Batch(5, 6, []), Batch(7, 8, [])], 5)
    with pytest.raises(VersionTooLow, match="reads only version 5"):
        encode_stored(StoredEntry(6, "-/entries/x", "sha256:aa"), 5)


def test_every_command_of_this_version_is_written_as_5_or_is_newer() -> None:
    kinds = {type(command) for command in VERSION_5_COMMANDS} | {PlainAppend}
    for kind in get_args(AnyCommand):
        (command, *_) = (one for one, _ in SIXTH_FORM if type(one) is kind)
        assert is_expressible(command, 5) == (kind in kinds)
        assert is_expressible(command, ENTRY_VERSION)


def test_nothing_is_written_for_a_node_that_is_too_old() -> None:
    with pytest.raises(VersionTooLow, match="every write needs log entries of version 5"):
        encode(5, 6, [], ENTRY_VERSION_WRITTEN_MIN - 1)


def test_every_command_has_bytes_here() -> None:
    assert {type(command) for command, _ in SIXTH_FORM} == set(get_args(AnyCommand))


def test_a_command_may_gain_fields_at_its_end() -> None:
    old = raw(ENTRY_VERSION, [[5, 6, [[3, "b", "s", [b"x"], "text/plain"]]]])
    assert decode(old).commands == [Append("b", "s", (b"x",), "text/plain")]


@pytest.mark.parametrize(
    ("payload", "theirs"),
    [
        (raw(ENTRY_VERSION, [[5, 6, [[99, "b"]]]]), "version 6"),
        (raw(5, 5, 6, [[99, "b"]]), "version 5"),
        (raw(ENTRY_VERSION, [[5, 6, [[1, "b", "a field from the future"]]]]), "version 6"),
        (raw(5, 5, 6, [[1, "b", "a field from the future"]]), "version 5"),
        (
            raw(ENTRY_VERSION, [[5, 6, [[3, "b", "s", [b"x"], None, False, ["p", 0, 0, "more"]]]]]),
            "version 6",
        ),
        (raw(5, 5, 6, [[3, "b", "s", [b"x"], None, False, ["p", 0, 0, "more"]]]), "version 5"),
        (raw(ENTRY_VERSION, [[5, 6, [[1]]]]), "version 6"),
        (raw(5, 5, 6, [[1]]), "version 5"),
        (raw(ENTRY_VERSION, [[5, 6, [[1, 7]]]]), "version 6"),
        (raw(5, 5, 6, [[1, 7]]), "version 5"),
        (b"\x94\x01\x05\x06\x91\x92\x01\xa1\xff", "version 1"),
        (raw(ENTRY_VERSION, []), "version 6"),
        (raw(ENTRY_VERSION, 5, 6, []), "version 6"),
        (raw(5, [[5, 6, []]]), "version 5"),
        (raw(ENTRY_VERSION + 1, [[5, 6, []]]), "version 7"),
        (raw(ENTRY_VERSION + 1, [[5, 6, []]], "more"), "version 7"),
        (raw(ENTRY_VERSION + 1, {"at": 6}), "version 7"),
        (raw(0, 5, 6, []), "version 0"),
        (raw("two", 5, 6, []), "no readable version"),
        (raw(), "no readable version"),
        (raw({}), "no readable version"),
        (b"", "no readable version"),
        (b"\x00\xff not ours", "no readable version"),
    ],
)
def test_what_cannot_be_read_stops_with_an_error_that_names_both_versions(
    payload: bytes, theirs: str
) -> None:
    with pytest.raises(EntryUnreadable) as caught:
        decode(payload)
    message = str(caught.value)
    assert f"has {theirs}," in message
    assert f"this server reads version {ENTRY_VERSION} " in message


def test_an_entry_that_was_cut_off_is_never_half_read() -> None:
    whole = encode(5, 6, COMMANDS)
    for length in range(len(whole)):
        with pytest.raises(EntryUnreadable):
            decode(whole[:length])
    with pytest.raises(EntryUnreadable):
        decode(whole + b"\x00")


def test_an_entry_in_a_blob_is_named_in_the_log() -> None:
    stored = StoredEntry(6, "-/entries/x", "sha256:aa")
    written = encode_stored(stored)
    assert written.hex() == "930606" + "92ab2d2f656e74726965732f78a97368613235363a6161"
    assert decode_any(written) == stored
    assert decode_any(encode(5, 6, COMMANDS)) == DecodedEntry([Batch(5, 6, COMMANDS)])


@pytest.mark.parametrize("payload", [raw(7, 6, ["blob", "x"]), raw(6, 6, [1, "x"]), raw(5, 6, ["blob", "x"])])
def test_a_name_of_an_entry_that_cannot_be_read_is_an_error(payload: bytes) -> None:
    with pytest.raises(EntryUnreadable):
        decode_any(payload)
