"""What becomes of an append: the order of checks, `If-Match`, `Stream-Seq`, closure."""

import pytest
from tests.model.driving import Driver, as_proposed
from tests.model.rows import all_rows_of

from ursula.model.codec.entry import decode, encode
from ursula.model.commands import (
    AnyCommand,
    Append,
    Create,
    CreateBucket,
    Delete,
    ForkPoint,
    IfMatch,
    PlainAppend,
    Producer,
    Version,
)
from ursula.model.dump import dump
from ursula.model.outcomes import Appended, Refused

NEVER = IfMatch((Version("9-9-9", 0, False),))


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create("s")
    return driver


def test_appends_follow_each_other(driver: Driver) -> None:
    first = driver.append("s", b"hello ")
    second = driver.append("s", b"world")
    assert (first.next_offset, second.next_offset, second.tail) == (6, 11, 11)
    assert driver.content("s") == b"hello world"
    assert not second.duplicate
    assert not second.closed


def test_commands_of_one_entry_are_applied_in_order(driver: Driver) -> None:
    outcomes = driver.send(*(Append("b", "s", (b"%d" % n,), "text/plain") for n in range(5)))
    assert [o.next_offset for o in outcomes if isinstance(o, Appended)] == [1, 2, 3, 4, 5]
    assert driver.content("s") == b"01234"


SITUATIONS: dict[str, list[AnyCommand]] = {
    "new": [Create("b", "p", "text/plain")],
    "begun": [Create("b", "p", "text/plain", (b"one",))],
    "several messages at once": [
        Create("b", "p", "text/plain"),
        Append("b", "p", (b"1", b"2"), "text/plain", counts=(1, 1)),
    ],
    "closed": [Create("b", "p", "text/plain", (b"one",), close=True)],
    "of another type": [Create("b", "p", "text/html")],
    "with a window": [Create("b", "p", "text/plain", ttl_seconds=9)],
    "missing": [],
    "gone": [
        Create("b", "p", "text/plain", (b"one",)),
        Create("b", "fork", None, fork=ForkPoint("p", 0)),
        Delete("b", "p"),
    ],
}


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("bucket", ["b", "none"])
def test_a_plain_append_comes_to_what_it_comes_to_from_the_log(situation: str, bucket: str) -> None:
    drivers = Driver(), Driver()
    plain = Append(bucket, "p", (b"more",), "text/plain")
    assert type(as_proposed(plain)) is PlainAppend
    told = []
    for driver, command in zip(drivers, (plain, as_proposed(plain)), strict=True):
        driver.create("s")
        driver.send(*SITUATIONS[situation])
        driver.now += 1
        told.append(driver.send(command, command) + driver.send(command))
    assert told[0] == told[1]
    one, other = (driver.state for driver in drivers)
    assert dump(one) == dump(other)
    assert all_rows_of(one.buckets["b"]) == all_rows_of(other.buckets["b"])
    assert (one.gauge.count, set(one.dirty_rows.open)) == (other.gauge.count, set(other.dirty_rows.open))


def test_a_plain_append_is_one_when_it_comes_from_the_log() -> None:
    plain = as_proposed(Append("b", "s", (b"x",), "text/plain"))
    (found,) = decode(encode(7, 8, [plain])).commands
    assert (type(found), found) == (PlainAppend, plain)


def worst(**better: object) -> Append:
    """An append with everything wrong, but for what is made better."""
    fields = {
        "bucket": "b",
        "stream": "s",
        "messages": (b"x",),
        "media_type": "image/png",
        "producer": Producer("p", 1, 7),
        "stream_seq": "a",
        "if_match": NEVER,
        "incarnation": "9-9-9",
    }
    return Append(**{**fields, **better})  # type: ignore[arg-type]


def test_an_earlier_check_is_never_hidden_by_a_later_one(driver: Driver) -> None:
    driver.do(Append("b", "s", (b"x",), "text/plain", producer=Producer("p", 1, 0), stream_seq="m"))
    driver.create("closed")
    driver.do(Append("b", "closed", (), None, close=True))
    driver.create("gone", b"x")
    driver.do(Create("b", "fork", None, fork=ForkPoint("gone")))
    driver.do(Delete("b", "gone"))
    before = driver.state.at
    right: dict[str, object] = {}

    def look(**better: object) -> str:
        right.update(better)
        foreseen = driver.state.look(worst(**right), "no JSON")
        assert isinstance(foreseen, Refused)
        return foreseen.code

    assert look(bucket="nowhere") == "bucket_not_found"
    assert look(bucket="b", stream="nothing") == "stream_not_found"
    assert look(stream="gone") == "stream_gone"
    assert look(stream="s") == "incarnation_mismatch"
    assert look(stream="closed", incarnation=None) == "stream_closed"
    assert look(stream="s") == "content_type_mismatch"
    assert look(media_type="text/plain") == "precondition_failed"
    assert look(if_match=None) == "producer_seq_conflict"
    assert look(producer=Producer("p", 0, 0)) == "producer_epoch_stale"
    assert look(producer=Producer("p", 2, 5)) == "producer_headers_invalid"
    assert look(producer=Producer("p", 1, 1)) == "stream_seq_conflict"
    assert look(stream_seq="n") == "invalid_json"
    assert driver.state.at == before
    assert driver.content("s") == b"x"


def test_a_retry_is_answered_as_one_whatever_its_preconditions_say(driver: Driver) -> None:
    request = Append("b", "s", (b"x",), "text/plain", producer=Producer("p", 0, 0), stream_seq="m")
    driver.do(request)
    again = driver.do(worst(producer=Producer("p", 0, 0), media_type="text/plain", incarnation=None))
    assert isinstance(again, Appended)
    assert again.duplicate
    assert driver.content("s") == b"x"


def test_a_refused_append_changes_nothing(driver: Driver) -> None:
    driver.append("s", b"x")
    driver.do(Append("b", "s", (b"y",), "text/plain", stream_seq="m"))
    driver.state.begin(9, driver.now)
    before = dump(driver.state)
    commands = [
        Append("b", "s", (b"z",), "text/html"),
        Append("b", "s", (b"z",), "text/plain", if_match=NEVER),
        Append("b", "s", (b"z",), "text/plain", producer=Producer("p", 0, 1), stream_seq="z"),
        Append("b", "s", (b"z",), "text/plain", producer=Producer("p", 0, 0), stream_seq="a"),
        Append("b", "s", (b"z",), "text/plain", close=True, stream_seq="a"),
        Append("b", "t", (b"z",), "text/plain"),
    ]
    for index, command in enumerate(commands):
        assert isinstance(driver.state.apply(command, index), Refused)
        assert dump(driver.state) == before


def test_content_types_are_compared_without_case_and_parameters() -> None:
    driver = Driver()
    created = driver.create("s", content_type="Text/Plain; Charset=UTF-8")
    assert created.content_type == "Text/Plain; Charset=UTF-8"
    assert driver.append("s", b"x", media_type="text/plain").tail == 1


def test_if_match_lets_through_the_state_it_names(driver: Driver) -> None:
    incarnation = driver.append("s", b"x").incarnation

    def on(*versions: Version) -> AnyCommand:
        return Append("b", "s", (b"y",), "text/plain", if_match=IfMatch(versions))

    assert driver.code(on()) == "precondition_failed"
    assert driver.code(on(Version(incarnation, 0, False))) == "precondition_failed"
    assert driver.code(on(Version(incarnation, 1, True))) == "precondition_failed"
    assert driver.code(on(Version("9-9-9", 1, False))) == "precondition_failed"
    driver.do(on(Version("9-9-9", 1, False), Version(incarnation, 1, False)))
    driver.do(Append("b", "s", (b"z",), "text/plain", if_match=IfMatch((), any_version=True)))
    assert driver.content("s") == b"xyz"


def test_an_incarnation_is_a_precondition(driver: Driver) -> None:
    old = driver.append("s", b"x").incarnation
    driver.do(Delete("b", "s"))
    new = driver.create("s").incarnation
    assert new != old
    assert driver.code(Append("b", "s", (b"y",), "text/plain", incarnation=old)) == "incarnation_mismatch"
    driver.do(Append("b", "s", (b"y",), "text/plain", incarnation=new))
    assert driver.content("s") == b"y"


def test_stream_seq_must_grow_as_bytes(driver: Driver) -> None:
    def with_seq(seq: str) -> AnyCommand:
        return Append("b", "s", (b"x",), "text/plain", stream_seq=seq)

    for seq in ["10", "9", "a", "aa"]:
        assert isinstance(driver.do(with_seq(seq)), Appended)
    for seq in ["aa", "a", "99", "Z"]:
        assert driver.code(with_seq(seq)) == "stream_seq_conflict"
    driver.append("s", b"y")
    assert driver.code(with_seq("aa")) == "stream_seq_conflict"


def test_a_closed_stream_takes_nothing_more_and_says_where_it_ends(driver: Driver) -> None:
    closing = driver.do(Append("b", "s", (b"end",), "text/plain", close=True))
    assert isinstance(closing, Appended)
    assert (closing.tail, closing.closed) == (3, True)
    refusal = driver.refusal(Append("b", "s", (b"x",), "text/plain"))
    assert (refusal.code, refusal.tail, refusal.closed) == ("stream_closed", 3, True)
    page = driver.page("s")
    assert page.closed
    assert page.chunks == [b"end"]


def test_closing_again_is_no_error_whatever_its_content_type(driver: Driver) -> None:
    first = driver.do(Append("b", "s", (), "image/png", close=True))
    second = driver.do(Append("b", "s", (), None, close=True))
    assert isinstance(first, Appended)
    assert isinstance(second, Appended)
    assert (first.closed, first.duplicate) == (True, False)
    assert (second.closed, second.duplicate, second.tail) == (True, True, 0)
    assert driver.code(Append("b", "s", (b"x",), "text/plain", close=True)) == "stream_closed"


def test_a_bucket_is_made_once() -> None:
    driver = Driver()
    assert driver.code(Create("b", "s", None)) == "bucket_not_found"
    driver.do(CreateBucket("b"))
    assert driver.code(CreateBucket("b")) == "bucket_exists"
    driver.create("s", b"x")
    assert driver.code(CreateBucket("b")) == "bucket_exists"
    assert driver.content("s") == b"x"


def test_a_bucket_is_made_on_the_fly_only_when_the_stream_is() -> None:
    driver = Driver()
    fork = Create("b", "s", None, make_bucket=True, fork=ForkPoint("t"))
    assert driver.code(fork) == "stream_not_found"
    assert driver.code(Create("b", "s", None, make_bucket=True, if_match=NEVER)) == "precondition_failed"
    assert driver.state.buckets == {}
    driver.create("s")
    assert list(driver.state.buckets) == ["b"]
