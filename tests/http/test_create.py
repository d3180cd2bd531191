"""PUT: a stream or a bucket is made, or is as asked already."""

import httpx
import pytest
from tests.http.raw import ask
from tests.http.wire import BINARY, CLOSED, JSON, TEXT, content, make, offset, post, producer, refused
from tests.server import Server

LIFETIMES = [{}, {"stream-ttl": "60"}, {"stream-expires-at": "2099-01-01T00:00:00Z"}]


def test_a_new_stream_is_described_in_full(api: httpx.Client, path: str) -> None:
    answer = api.put(path, headers={"content-type": "Text/Plain; Charset=UTF-8"}, content=b"hello")
    assert answer.status_code == 201
    assert answer.content == b""
    assert answer.headers["content-type"] == "Text/Plain; Charset=UTF-8"
    assert answer.headers["stream-next-offset"] == offset(5)
    assert answer.headers["location"] == f"{str(api.base_url).rstrip('/')}{path}"
    incarnation = answer.headers["stream-incarnation"]
    assert answer.headers["etag"] == f'"{incarnation}:5:5"'
    assert "stream-closed" not in answer.headers
    assert content(api, path) == b"hello"


def test_the_location_is_an_absolute_url_on_the_host_that_was_asked(server: Server, path: str) -> None:
    answer = ask(server, "PUT", f"{path}%20%C3%A9", body=b"")
    assert answer.headers["location"] == f"http://test{path}%20%C3%A9"


def test_the_content_type_is_octet_stream_unless_told(api: httpx.Client, path: str) -> None:
    make(api, path, headers={})
    assert api.head(path).headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize("lifetime", LIFETIMES)
@pytest.mark.parametrize("closed", [{}, CLOSED])
def test_a_repeated_put_changes_nothing(
    api: httpx.Client, path: str, lifetime: dict[str, str], closed: dict[str, str]
) -> None:
    made = make(api, path, {**TEXT, **lifetime, **closed}, b"first")
    repeated = api.put(
        path, headers={"content-type": "TEXT/plain;x=y", **lifetime, **closed}, content=b"other"
    )
    assert repeated.status_code == 200
    for name in ("content-type", "stream-next-offset", "stream-incarnation", "etag"):
        assert repeated.headers[name] == made.headers[name]
    assert repeated.headers.get("stream-closed") == ("true" if closed else None)
    assert content(api, path) == b"first"


@pytest.mark.parametrize(
    "other",
    [
        {},
        JSON,
        {**TEXT, **CLOSED},
        {**TEXT, "stream-ttl": "61"},
        {**TEXT, "stream-expires-at": "2099-01-01T00:00:00Z"},
        {**TEXT, "stream-ttl": "60", **CLOSED},
    ],
)
def test_a_put_that_asks_for_something_else_is_a_conflict(
    api: httpx.Client, path: str, other: dict[str, str]
) -> None:
    made = make(api, path, {**TEXT, "stream-ttl": "60"}, b"first")
    answer = api.put(path, headers=other, content=b"x")
    refused(answer, 409, "stream_exists")
    assert answer.headers["stream-incarnation"] == made.headers["stream-incarnation"]
    assert content(api, path) == b"first"


def test_a_stream_that_was_closed_later_is_no_longer_as_asked(api: httpx.Client, path: str) -> None:
    make(api, path)
    post(api, path, b"", CLOSED)
    refused(api.put(path, headers=BINARY), 409, "stream_exists")
    assert api.put(path, headers={**BINARY, **CLOSED}).status_code == 200


def test_an_expiry_is_compared_as_an_instant(api: httpx.Client, path: str) -> None:
    make(api, path, {**BINARY, "stream-expires-at": "2099-01-01T00:00:00Z"})
    same = api.put(path, headers={**BINARY, "stream-expires-at": "2099-01-01T02:00:00.000+02:00"})
    assert same.status_code == 200
    later = api.put(path, headers={**BINARY, "stream-expires-at": "2099-01-01T00:00:00.001Z"})
    refused(later, 409, "stream_exists")


def test_a_stream_can_be_made_closed(api: httpx.Client, path: str) -> None:
    answer = make(api, path, {**TEXT, "stream-closed": "TRUE"}, b"all")
    assert answer.headers["stream-closed"] == "true"
    assert answer.headers["etag"].endswith(':3:3:c"')
    refused(api.post(path, headers=TEXT, content=b"more"), 409, "stream_closed")


@pytest.mark.parametrize("value", ["false", "1", "yes", ""])
def test_stream_closed_counts_only_as_true(api: httpx.Client, path: str, value: str) -> None:
    answer = make(api, path, {**BINARY, "stream-closed": value})
    assert "stream-closed" not in answer.headers
    assert "stream-closed" not in post(api, path, b"x", {**BINARY, "stream-closed": value}).headers


@pytest.mark.parametrize(
    "ttl",
    ["-1", "+1", "01", "1.0", "1e3", "1_000", "", "٣", "0x10", "1 0", "99999999999999999999999", "9" * 400],
)
def test_a_ttl_is_plain_digits(server: Server, path: str, ttl: str) -> None:
    answer = ask(server, "PUT", path, f"Stream-TTL: {ttl}", body=b"")
    assert answer.status == 400
    assert answer.code == ("invalid_ttl" if ttl.isascii() else "header_invalid")


@pytest.mark.parametrize(
    "moment",
    [
        "tomorrow",
        "",
        "2099-01-01",
        "2099-01-01T00:00:00",
        "2099-01-01 00:00:00Z",
        "2099-13-01T00:00:00Z",
        "2099-01-01T25:00:00Z",
        "20990101T000000Z",
        "2099-W01-1T00:00:00Z",
        "4070908800",
        "2099-01-01T00:00:00+9999",
        "9999-12-31T23:59:59-01:00",
        "0001-01-01T00:00:00+01:00",
    ],
)
def test_an_expiry_is_an_rfc_3339_time(api: httpx.Client, path: str, moment: str) -> None:
    refused(api.put(path, headers={"stream-expires-at": moment}), 400, "invalid_ttl")
    assert api.head(path).status_code == 404


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59.999999Z", "2099-01-01t00:00:00.5z"])
def test_an_expiry_can_be_sent_back_as_it_is_shown(api: httpx.Client, path: str, moment: str) -> None:
    make(api, path, {"stream-expires-at": moment})
    shown = api.head(path)
    assert shown.status_code == 200
    again = api.put(path, headers={"stream-expires-at": shown.headers["stream-expires-at"]})
    assert again.status_code == 200


def test_ttl_and_expiry_exclude_each_other(api: httpx.Client, path: str) -> None:
    both = {"stream-ttl": "60", "stream-expires-at": "2099-01-01T00:00:00Z"}
    refused(api.put(path, headers=both), 400, "invalid_ttl")


def test_head_shows_the_lifetime_as_it_was_set(api: httpx.Client, path: str) -> None:
    make(api, path, {**BINARY, "stream-ttl": "3600"})
    assert api.head(path).headers["stream-ttl"] == "3600"
    assert "stream-expires-at" not in api.head(path).headers
    make(api, path + "-2", {**BINARY, "stream-expires-at": "2099-01-01T01:00:00+01:00"})
    assert api.head(path + "-2").headers["stream-expires-at"] == "2099-01-01T00:00:00Z"
    assert "stream-ttl" not in api.head(path + "-2").headers


def test_the_first_body_counts_for_its_producer(api: httpx.Client, path: str) -> None:
    make(api, path, {**BINARY, **producer(0)}, b"one")
    repeated = post(api, path, b"one", {**BINARY, **producer(0)}, status=204)
    assert repeated.headers["stream-next-offset"] == offset(3)
    assert post(api, path, b"two", {**BINARY, **producer(1)}, status=200).headers["producer-seq"] == "1"
    assert content(api, path) == b"onetwo"


def test_the_first_body_sets_the_stream_seq(api: httpx.Client, path: str) -> None:
    make(api, path, {**BINARY, "stream-seq": "b"}, b"one")
    refused(api.post(path, headers={**BINARY, "stream-seq": "b"}, content=b"x"), 409, "stream_seq_conflict")
    post(api, path, b"two", {**BINARY, "stream-seq": "c"})


def test_a_first_body_out_of_its_producers_order_creates_nothing(api: httpx.Client, path: str) -> None:
    answer = api.put(path, headers={**BINARY, **producer(3)}, content=b"x")
    assert refused(answer, 409, "producer_seq_conflict") == {"expected_seq": 0, "received_seq": 3}
    assert api.head(path).status_code == 404


def test_a_bucket_is_made_once(api: httpx.Client, path: str) -> None:
    bucket = path.rpartition("/")[2]
    missing = api.put(f"/{bucket}/stream", headers=TEXT)
    refused(missing, 404, "bucket_not_found")
    made = api.put(f"/{bucket}")
    assert made.status_code == 201
    assert made.headers["location"] == f"{str(api.base_url).rstrip('/')}/{bucket}"
    refused(api.put(f"/{bucket}"), 409, "bucket_exists")
    make(api, f"/{bucket}/stream", TEXT, b"in a bucket")
    refused(api.put(f"/{bucket}"), 409, "bucket_exists")
    assert content(api, f"/{bucket}/stream") == b"in a bucket"
    assert content(api, f"/v1/stream/{bucket}/stream") == b"in a bucket"


def test_a_flat_path_makes_its_bucket(api: httpx.Client, path: str) -> None:
    bucket = path.rpartition("/")[2]
    make(api, f"/v1/stream/{bucket}/deep/er", TEXT, b"x")
    refused(api.put(f"/{bucket}"), 409, "bucket_exists")
    make(api, f"/{bucket}/stream", TEXT)
    assert content(api, f"/v1/stream/{bucket}/stream") == b""


@pytest.mark.parametrize("bucket", ["abc", "a" * 65, "Abcd", "ab.cd", "ab cd", "abcdé", "streams!"])
def test_a_bucket_name_follows_its_pattern(server: Server, bucket: str) -> None:
    name = "".join(
        c if c.isascii() and c != " " else "".join(f"%{b:02X}" for b in c.encode()) for c in bucket
    )
    answer = ask(server, "PUT", f"/{name}")
    assert (answer.status, answer.code) == (400, "invalid_bucket_id")


@pytest.mark.parametrize("bucket", ["healthz", "readyz", "metrics", "cluster", "console", "admin", "auth"])
def test_reserved_names_are_no_buckets(server: Server, bucket: str) -> None:
    for path in (f"/{bucket}", f"/{bucket}/stream"):
        answer = ask(server, "PUT", path)
        if path in ("/healthz", "/metrics"):  # there is something
            assert (answer.status, answer.code) == (405, "method_not_allowed")
        elif path == "/cluster/stream":  # a place of its own, where nothing is made
            assert (answer.status, answer.code) == (404, "route_not_found")
        else:
            assert (answer.status, answer.code) == (400, "invalid_bucket_id")
    assert ask(server, "PUT", f"/v1/stream/{bucket}/stream").status == 400
    assert ask(server, "PUT", f"/v1/stream/{bucket}").status == 400
