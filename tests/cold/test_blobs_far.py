"""A server whose store is S3: snapshots and large bodies are served as from its own disk."""

import hashlib
from collections.abc import Iterator

import httpx
import pytest
from tests.cold.seaweed import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Seaweed
from tests.conftest import StartServer
from tests.http.surface import MEBIBYTE, feed, frames, make_bucket
from tests.http.test_bootstrap import parts_of
from tests.http.wire import BINARY, JSON, make, offset, post, refused
from tests.server import Server

from ursula.cold.objects.ulid import new_ulid

STATE = bytes(range(256)) * 20_000
BODY = bytes(range(255)) * 10_000


def settings(seaweed: Seaweed) -> dict[str, str]:
    """How a server reaches the store."""
    return {
        "cold__backend": "s3",
        "cold__root": new_ulid(),
        "cold__s3_bucket": seaweed.bucket("blobs"),
        "cold__s3_endpoint": seaweed.endpoint,
        "cold__s3_region": "local",
        "cold__s3_access_key_id": ACCESS_KEY_ID,
        "cold__s3_secret_access_key": SECRET_ACCESS_KEY,
        "cold__flush_interval": "1h",
    }


@pytest.fixture(scope="module")
def far(seaweed: Seaweed, start_server: StartServer) -> Server:
    return start_server(**settings(seaweed))


@pytest.fixture
def api(far: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=far.url, timeout=60) as client:
        yield client


def published(api: httpx.Client) -> str:
    stream = f"{make_bucket(api)}/s"
    make(api, stream, body=b"before")
    post(api, stream, b"after")
    answer = api.put(f"{stream}/snapshot/6", headers=BINARY, content=STATE)
    assert answer.status_code == 204, answer.text
    return stream


def test_a_snapshot_is_served_from_far_away(far: Server, api: httpx.Client) -> None:
    snapshot = f"{published(api)}/snapshot/6"
    digest = f"sha256:{hashlib.sha256(STATE).hexdigest()}"
    for _ in range(2):
        whole = api.get(snapshot)
        assert (whole.status_code, whole.content) == (200, STATE)
        assert whole.headers["stream-snapshot-digest"] == digest
    head = api.head(snapshot)
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(STATE)))
    some = api.get(snapshot, headers={"range": "bytes=1000-1999"})
    assert (some.status_code, some.content) == (206, STATE[1000:2000])
    assert some.headers["content-range"] == f"bytes 1000-1999/{len(STATE)}"
    refused(api.get(snapshot, headers={"range": f"bytes={len(STATE)}-"}), 416, "range_not_satisfiable")
    known = api.get(snapshot, headers={"if-none-match": whole.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")
    assert not (far.data_dir / "cold").exists(), "nothing of it is kept as if it were here"


def test_bootstrap_begins_with_a_snapshot_from_far_away(api: httpx.Client) -> None:
    stream = published(api)
    assert [part.body for part in parts_of(api.get(f"{stream}/bootstrap"))] == [STATE, b"after"]
    post(api, stream, b"more")
    assert api.put(f"{stream}/snapshot/11", headers=BINARY, content=b"small").status_code == 204
    assert [part.body for part in parts_of(api.get(f"{stream}/bootstrap"))] == [b"small", b"more"]


def test_a_snapshot_that_is_refused_is_not_left_there(seaweed: Seaweed, start_server: StartServer) -> None:
    named = settings(seaweed)
    server = start_server(**named)
    with httpx.Client(base_url=server.url, timeout=60) as client:
        stream = published(client)
        answer = client.put(f"{stream}/snapshot/6", headers=BINARY, content=b"another")
        refused(answer, 409, "snapshot_conflict")
        assert client.get(f"{stream}/snapshot/6").content == STATE
    assert server.stop() == 0
    assert server.complaints() == []


def test_large_bodies_are_read_from_far_away(far: Server) -> None:
    messages = [b'{"n":%d,"pad":"%b"}' % (number, b"x" * 1000) for number in range(2000)]
    with httpx.Client(base_url=far.url, timeout=60) as api:
        bucket = make_bucket(api)
        make(api, f"{bucket}/s", body=BODY)
        post(api, f"{bucket}/s", b"small")
        answer = api.post(f"{bucket}/s/append-batch", headers=BINARY, content=frames(BODY, b"x", BODY))
        assert answer.status_code == 200, answer.text
        make(api, f"{bucket}/j", JSON, b"[%b]" % b",".join(messages))
    for step in ("hot", "killed", "flushed", "killed again"):
        if "killed" in step:
            far.kill()
            far.start()
        with httpx.Client(base_url=far.url, timeout=60) as api:
            if step == "flushed":
                assert api.post("/cluster/flush").status_code == 200
            whole = api.get(f"{bucket}/s", params={"max_bytes": str(16 * MEBIBYTE)})
            assert whole.content == BODY + b"small" + BODY + b"x" + BODY
            some = api.get(f"{bucket}/s", params={"offset": offset(1_000_000), "max_bytes": "100"})
            assert some.content == BODY[1_000_000:1_000_100]
            lines = api.get(f"{bucket}/j", params={"record": "1500", "max_records": "3"}).content
            assert lines == b"".join(message + b"\n" for message in messages[1500:1503])
            assert len([line for line in feed(api, bucket) if line["kind"] == "append"]) == 2005
    assert far.complaints() == []
