"""What an operator does through the client."""

import pytest
from tests.client.conftest import Connect
from tests.client.proxy import CUT_AFTER, Proxy, answer

from ursula.client import Client, NotFound, Refused, Undeleted


def test_a_stream_is_deleted_and_brought_back(client: Client, name: str) -> None:
    bucket, _, stream_id = name.partition("/")
    stream = client.stream(name)
    stream.create("text/plain", body="kept", closed=True)
    incarnation = stream.head().incarnation
    stream.delete()
    found = client.undelete(bucket, stream_id)
    assert found == Undeleted(bucket, stream_id, incarnation, "4".zfill(20), True)
    assert stream.read().data == b"kept"
    with pytest.raises(Refused) as refused:
        client.undelete(bucket, stream_id)
    assert (refused.value.code, refused.value.status) == ("stream_exists", 409)


def test_one_of_several_is_brought_back_by_its_incarnation(client: Client, name: str) -> None:
    bucket, _, stream_id = name.partition("/")
    stream = client.stream(name)
    incarnations = []
    for text in ("first", "second"):
        stream.create("text/plain", body=text)
        incarnations.append(stream.head().incarnation)
        stream.delete()
    assert client.undelete(bucket, stream_id, incarnations[0]).incarnation == incarnations[0]
    assert stream.read().data == b"first"


def test_what_never_was_is_not_brought_back(client: Client, name: str) -> None:
    bucket, _, stream_id = name.partition("/")
    with pytest.raises(NotFound) as missing:
        client.undelete(bucket, stream_id)
    assert missing.value.code == "stream_not_found"


def test_a_flush_reports_how_far_it_came(client: Client, name: str) -> None:
    (before,) = client.flush()
    client.stream(name).create("text/plain", body="x")
    (after,) = client.flush()
    assert (after.group, before.group) == (0, 0)
    assert after.position > before.position


def test_the_state_is_stored_and_the_log_purged(client: Client, name: str) -> None:
    client.stream(name).create("text/plain", body="x")
    client.trigger_snapshot()
    (flushed,) = client.flush()
    assert 0 <= client.purge_log() <= flushed.position
    assert client.stream(name).read().data == b"x"


def test_what_the_store_cannot_take_now_is_asked_for_again(
    connect: Connect, proxy: Proxy, client: Client, name: str
) -> None:
    client.stream(name).create("text/plain", body="x")
    proxy.faults["POST"] += [answer(503, "store_unavailable", 0), CUT_AFTER]
    (flushed,) = connect(proxy.url).flush()
    assert flushed.group == 0
    assert not proxy.faults["POST"]
