"""Streams through the client: create, append, read, look at, close, delete."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from ursula.client import (
    Client,
    Closed,
    NotFound,
    PreconditionFailed,
    Refused,
    Retryable,
    StreamAddress,
    StreamError,
)

TEXT = "text/plain"
JSON = "application/json"


def test_a_stream_is_made_written_read_and_deleted(client: Client, name: str) -> None:
    stream = client.stream(name)
    assert stream.create(TEXT).is_new
    assert not stream.create(TEXT).is_new
    stream.append("hello, ")
    appended = stream.append(b"world")
    chunk = stream.read()
    assert chunk.data == b"hello, world"
    assert chunk.next_offset == appended.next_offset
    assert chunk.up_to_date
    assert not chunk.closed
    stream.delete()
    with pytest.raises(NotFound) as missing:
        stream.read()
    assert (missing.value.code, missing.value.status) == ("stream_not_found", 404)


def test_what_a_stream_is_made_with_can_be_seen(client: Client, name: str) -> None:
    stream = client.stream(name)
    created = stream.create("application/x-thing; v=1", body=b"all", ttl_seconds=60, closed=True)
    info = stream.head()
    assert info.content_type == "application/x-thing; v=1"
    assert (info.ttl_seconds, info.closed) == (60, True)
    assert info.next_offset == created.next_offset == stream.read().next_offset
    assert info.incarnation == created.incarnation
    assert info.etag == created.etag


def test_a_stream_can_end_at_a_time(client: Client, name: str) -> None:
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    stream = client.stream(name)
    stream.create(expires_at=moment)
    assert datetime.fromisoformat(stream.head().expires_at or "") == moment


def test_a_fork_shares_what_its_source_had(client: Client, name: str) -> None:
    source, fork = client.stream(name), client.stream(f"{name}-fork")
    middle = source.create(TEXT, body="ab").next_offset
    source.append("cd")
    fork.create(forked_from=f"/{name}", fork_offset=middle)
    fork.append("x")
    assert fork.read().data == b"abx"


def test_json_values_are_one_message_each(client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create(JSON)
    stream.append_json({"a": 1})
    stream.append_json([1, 2], "three")
    stream.append('{"big": 12345678901234567890}')
    assert stream.read().values() == [{"a": 1}, [1, 2], "three", {"big": 12345678901234567890}]


def test_a_value_that_is_not_json_is_not_sent(client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create(JSON)
    with pytest.raises(ValueError, match="JSON compliant"):
        stream.append_json(float("nan"))
    assert stream.read().values() == []


def test_all_of_a_stream_is_read_chunk_by_chunk(client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create()
    for number in range(5):
        stream.append(bytes([65 + number]) * 1000)
    chunks = list(stream.read_all(max_bytes=1500))
    assert len(chunks) > 2
    assert b"".join(chunk.data for chunk in chunks) == b"".join(bytes([65 + n]) * 1000 for n in range(5))
    assert chunks[-1].up_to_date
    assert list(stream.read_all(chunks[-1].next_offset)) == []


def test_a_chunk_that_was_left_half_way_leaves_the_client_usable(client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create(body=b"x" * 3000)
    first = next(iter(stream.read_all(max_bytes=1000)))
    assert len(first.data) == 1000
    assert stream.head().next_offset.endswith("3000")


def test_an_append_can_depend_on_what_was_read(client: Client, name: str) -> None:
    stream = client.stream(name)
    tag = stream.create(TEXT).etag
    stream.append("first", if_match=tag)
    with pytest.raises(PreconditionFailed) as failed:
        stream.append("second", if_match=tag)
    assert failed.value.code == "precondition_failed"
    assert stream.read().data == b"first"


def test_stream_seq_must_grow(client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create(TEXT)
    stream.append("a", stream_seq="2")
    with pytest.raises(Refused) as refused:
        stream.append("b", stream_seq="1")
    assert refused.value.code == "stream_seq_conflict"


def test_an_append_to_a_stream_that_was_made_again_can_be_refused(client: Client, name: str) -> None:
    stream = client.stream(name)
    incarnation = stream.create(TEXT).incarnation
    stream.append("a", incarnation=incarnation)
    stream.delete(incarnation=incarnation)
    stream.create(TEXT)
    with pytest.raises(PreconditionFailed) as failed:
        stream.append("b", incarnation=incarnation)
    assert failed.value.code == "incarnation_mismatch"
    with pytest.raises(PreconditionFailed):
        stream.close(incarnation=incarnation)
    assert not stream.head().closed


def test_a_closed_stream_takes_nothing_more(client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create(TEXT)
    assert stream.append("last", close=True).closed
    assert stream.close().closed
    with pytest.raises(Closed) as closed:
        stream.append("more")
    assert (closed.value.code, closed.value.status) == ("stream_closed", 409)
    assert stream.read().closed


def test_a_client_learns_the_content_type_once_and_again_when_it_changed(client: Client, name: str) -> None:
    writer, other = client.stream(name), client.stream(name)
    other.create(TEXT)
    writer.append("a")
    other.delete()
    other.create(JSON)
    with pytest.raises(Refused, match="content_type_mismatch"):
        writer.append("[1]")
    writer.append("[1]")
    assert other.read().values() == [1]


def test_the_flat_route_makes_its_bucket(client: Client, name: str) -> None:
    flat = client.stream(f"/v1/stream/flat-{name}/with/slashes")
    flat.create(TEXT, body="a")
    assert client.stream(f"flat-{name}/with/slashes").read().data == b"a"
    short = client.stream("/v1/stream/" + name.replace("/", "-"))
    short.create(TEXT, body="b")
    assert client.stream(f"_default/{name.replace('/', '-')}").read().data == b"b"


def test_names_are_encoded(client: Client, name: str) -> None:
    strange = client.stream(StreamAddress(name.split("/", maxsplit=1)[0], f"{name.split('/')[1]} ä?#%41"))
    strange.create(TEXT, body="x")
    assert strange.read().data == b"x"


@pytest.mark.parametrize("text", ["", "hello", "/", "a/", "/v1/stream/"])
def test_what_is_not_a_stream_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        StreamAddress.parse(text)


def test_a_server_that_is_not_there_is_certainly_not_written_to(connect: type[Client]) -> None:
    from ursula.client import Patience

    client = connect("http://127.0.0.1:9", patience=Patience(give_up_seconds=0.05))
    with pytest.raises(Retryable) as failed:
        client.stream("a/b", TEXT).append("x")
    assert failed.value.code == "unreachable"
    assert failed.value.status is None
    assert not failed.value.maybe_written
    assert isinstance(failed.value, StreamError)


def test_what_cannot_be_sent_is_refused_at_once(client: Client, name: str) -> None:
    with pytest.raises(Refused) as refused:
        client.stream(name).create("text/plain\nInjected: yes")
    assert refused.value.code == "invalid_request"
    assert refused.value.status is None


def test_whatever_json_the_server_takes_is_read(client: Client, name: str) -> None:
    digits, deep = "7" * 5000, "[" * 900 + "]" * 900
    stream = client.stream(name)
    stream.create(JSON)
    stream.append(f'[{digits}, {{"n": {digits}}}]')
    stream.append(f"[{deep}]")
    stream.close()
    big, held, _ = stream.read().values()
    assert (big, held) == (Decimal(digits), {"n": Decimal(digits)})
    assert [message.value for message in stream.tail()][:2] == [big, held]
    assert [message.value for message in stream.tail(decode=False)] == [digits, f'{{"n": {digits}}}', deep]
    assert [record.value for record in stream.records()][:2] == [big, held]
    bucket, _, stream_id = name.partition("/")
    rows = [row for entry in client.bucket(bucket).feed() for row in entry.rows if row.stream == stream_id]
    assert [row.value for row in rows if row.kind == "append"][:2] == [big, held]
