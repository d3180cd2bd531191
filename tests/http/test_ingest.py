"""Bulk writes: every row of the staged objects is one append, exactly once, whatever is repeated."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pyarrow as pa
import pytest
from tests.cluster.spread_server import any_server
from tests.http.staged import Row, arrow, arrow_table, ingest, stage
from tests.http.wire import JSON, TEXT, content, make, post, refused
from tests.server import Server


@pytest.fixture
def bucket(api: httpx.Client, path: str) -> str:
    name = path.rpartition("/")[2]
    api.put(f"/{name}").raise_for_status()
    return name


def done(answer: httpx.Response, appended: int, refused_count: int = 0) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    report: dict[str, Any] = answer.json()
    assert (report["appended"], report["refused_count"]) == (appended, refused_count)
    return report


def test_rows_of_all_objects_are_appended_in_order(api: httpx.Client, bucket: str) -> None:
    make(api, f"/{bucket}/a", TEXT, b"before ")
    one = stage(api, bucket, [("a", b"1 "), ("b", b"x"), ("a", b"2 ")], batch_rows=2)
    two = stage(api, bucket, [("a", b"3"), ("b", b"y")])
    assert content(api, f"/{bucket}/a") == b"before "
    report = done(ingest(api, bucket, 7, [one, two], content_type="text/plain"), 5)
    assert report["refused"] == []
    assert content(api, f"/{bucket}/a") == b"before 1 2 3"
    assert content(api, f"/{bucket}/b") == b"xy"
    assert api.head(f"/{bucket}/b").headers["content-type"] == "text/plain"


def test_each_row_is_an_append_of_its_own(api: httpx.Client, bucket: str) -> None:
    done(ingest(api, bucket, 0, [stage(api, bucket, [("a", b"1"), ("b", b"2"), ("a", b"3")])]), 3)
    rows = [json.loads(line) for line in api.get(f"/{bucket}", params={"offset": "-1"}).text.splitlines()]
    told = [(row["kind"], row["stream"], row["index"]) for row in rows]
    assert told == [
        ("create", "a", 0),
        ("append", "a", 0),
        ("create", "b", 1),
        ("append", "b", 1),
        ("append", "a", 2),
    ]
    assert len({row["position"] for row in rows}) == 1
    assert len({row["incarnation"] for row in rows}) == 2


def test_a_repeat_answers_the_same_and_appends_nothing(api: httpx.Client, bucket: str) -> None:
    one = stage(api, bucket, [("a", b"1")])
    other = stage(api, bucket, [("a", b"2")])
    first = done(ingest(api, bucket, 3, [one]), 1)
    assert done(ingest(api, bucket, 3, [one]), 1) == first
    assert done(ingest(api, bucket, 3, [other]), 1) == first, "the first list counts"
    assert done(ingest(api, bucket, 3, [f"staging/{bucket}/{26 * '0'}.arrow"]), 1) == first
    assert content(api, f"/{bucket}/a") == b"1"


def test_an_older_version_is_refused_and_apps_do_not_know_of_each_other(
    api: httpx.Client, bucket: str
) -> None:
    one = stage(api, bucket, [("a", b"1")])
    done(ingest(api, bucket, 3, [one]), 1)
    refused(ingest(api, bucket, 2, [one]), 403, "ingest_outdated")
    done(ingest(api, bucket, 2, [one], app="another"), 1)
    done(ingest(api, bucket, 4, [one]), 1)
    assert content(api, f"/{bucket}/a") == b"111"


def test_json_is_split_as_in_an_append(api: httpx.Client, bucket: str) -> None:
    make(api, f"/{bucket}/j", JSON)
    rows: list[Row] = [("j", b'{"n": 1}'), ("j", b"[2, [3]]"), ("new", b"4", "application/json")]
    done(ingest(api, bucket, 0, [stage(api, bucket, rows)]), 3)
    assert json.loads(content(api, f"/{bucket}/j")) == [{"n": 1}, 2, [3]]
    assert json.loads(content(api, f"/{bucket}/new")) == [4]
    assert api.head(f"/{bucket}/j").headers["stream-record-next"] == "3"


def test_refused_rows_are_dropped_and_named(api: httpx.Client, bucket: str) -> None:
    make(api, f"/{bucket}/j", JSON)
    make(api, f"/{bucket}/t", TEXT)
    make(api, f"/{bucket}/closed", TEXT | {"stream-closed": "true"})
    rows: list[Any] = [
        ("j", b"{"),
        ("t", b"ok"),
        ("closed", b"late"),
        ("t", b"1", "application/json"),
        ("nobody", b"1"),
        ("t", b""),
        ("j", b"[]"),
        ("a..b", b"1"),
        ("t", b"!"),
    ]
    object_ = stage(api, bucket, rows, batch_rows=4)
    answer = ingest(api, bucket, 0, [object_], on_refused="drop", create_streams=False)
    report = done(answer, 2, 7)
    assert [(row["row"], row["stream"], row["reason"]) for row in report["refused"]] == [
        (0, "j", "invalid_json"),
        (2, "closed", "stream_closed"),
        (3, "t", "content_type_mismatch"),
        (4, "nobody", "stream_not_found"),
        (5, "t", "empty_body"),
        (6, "j", "invalid_json"),
        (7, "a..b", "invalid_stream_id"),
    ]
    assert {row["object"] for row in report["refused"]} == {object_}
    assert content(api, f"/{bucket}/t") == b"ok!"


def test_the_first_thousand_refused_rows_are_named(api: httpx.Client, bucket: str) -> None:
    make(api, f"/{bucket}/closed", TEXT | {"stream-closed": "true"})
    object_ = stage(api, bucket, [("closed", b"x")] * 2500)
    report = done(ingest(api, bucket, 0, [object_], on_refused="drop"), 0, 2500)
    assert [row["row"] for row in report["refused"]] == list(range(1000))


def test_a_refused_row_ends_it_unless_it_may_be_dropped(api: httpx.Client, bucket: str) -> None:
    make(api, f"/{bucket}/closed", TEXT | {"stream-closed": "true"})
    one = stage(api, bucket, [("a", b"1"), ("closed", b"late"), ("a", b"2")])
    two = stage(api, bucket, [("a", b"3")])
    for _ in range(2):
        told = refused(ingest(api, bucket, 5, [one, two]), 409, "ingest_refused")
        assert (told["object"], told["row"], told["stream"]) == (one, 1, "closed")
        assert (told["reason"], told["appended"]) == ("stream_closed", 1)
        assert content(api, f"/{bucket}/a") == b"1"
    done(ingest(api, bucket, 6, [two]), 1)
    assert content(api, f"/{bucket}/a") == b"13"


def test_no_objects_and_objects_without_rows(api: httpx.Client, bucket: str) -> None:
    done(ingest(api, bucket, 0, []), 0)
    none = stage(api, bucket, [])
    done(ingest(api, bucket, 1, [none, stage(api, bucket, [("a", b"1")]), none]), 1)
    assert content(api, f"/{bucket}/a") == b"1"


def test_many_rows_and_large_ones(api: httpx.Client, bucket: str) -> None:
    many = [(f"s{number % 7}", b"%06d" % number) for number in range(10_000)]
    large = [("large", bytes([number]) * 1_500_000) for number in range(3)]
    objects = [stage(api, bucket, many, 3000), stage(api, bucket, large, 2)]
    done(ingest(api, bucket, 0, objects), 10_003)
    for number in range(7):
        expected = b"".join(value for stream, value in many if stream == f"s{number}")
        assert content(api, f"/{bucket}/s{number}") == expected
    assert content(api, f"/{bucket}/large") == b"".join(value for _, value in large)


def test_who_follows_a_stream_gets_ingested_rows(api: httpx.Client, bucket: str) -> None:
    make(api, f"/{bucket}/a", TEXT)
    object_ = stage(api, bucket, [("a", b"news")])
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(api.get, f"/{bucket}/a", params={"offset": "now", "live": "long-poll"})
        while "watchers" not in (metrics := api.get("/metrics").text) or not _watchers(metrics):
            pass
        done(ingest(api, bucket, 0, [object_]), 1)
        assert waiting.result(timeout=60).content == b"news"


def _watchers(metrics: str) -> bool:
    values = [
        line.rpartition(" ")[2] for line in metrics.splitlines() if line.startswith("ursula_live_watchers")
    ]
    return any(float(value) > 0 for value in values)


def test_two_who_ask_at_once_append_once(api: httpx.Client, bucket: str, server: Server) -> None:
    objects = [stage(api, bucket, [("a", b"%05d" % n) for n in range(k, k + 5000)]) for k in (0, 5000)]

    def ask(_: int) -> httpx.Response:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            return ingest(client, bucket, 1, objects)

    with ThreadPoolExecutor(4) as threads:
        for answer in threads.map(ask, range(4)):
            done(answer, 10_000)
    assert content(api, f"/{bucket}/a") == b"".join(b"%05d" % n for n in range(10_000))


@pytest.fixture
def killable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with any_server(tmp_path_factory.mktemp("server") / "data") as server:
        yield server


def test_a_server_that_is_killed_goes_on_where_it_was(killable: Server) -> None:
    values = [b"%07d" % number for number in range(60_000)]
    with httpx.Client(base_url=killable.url, timeout=60) as api:
        api.put("/bulk").raise_for_status()
        objects = [
            stage(api, "bulk", [("a", v) for v in values[k : k + 20_000]]) for k in (0, 20_000, 40_000)
        ]
    body = {"bucket": "bulk", "app": "job", "version": 1, "objects": objects}
    for flush in (False, True):
        with ThreadPoolExecutor(1) as threads, httpx.Client(base_url=killable.url, timeout=60) as api:
            asking = threads.submit(lambda: httpx.post(f"{killable.url}/cluster/ingest", json=body))
            while api.head("/bulk/a").status_code == 404:
                pass
            if flush:
                api.post("/cluster/flush")
            killable.kill()
            assert isinstance(asking.exception(), httpx.HTTPError) or asking.result().status_code == 200
        killable.start()
    with httpx.Client(base_url=killable.url, timeout=60) as api:
        done(ingest(api, "bulk", 1, objects), 60_000)
        assert content(api, "/bulk/a") == b"".join(values)
        api.post("/cluster/trigger-snapshot")
        api.post("/cluster/flush").raise_for_status()
    killable.kill()
    killable.start()
    with httpx.Client(base_url=killable.url, timeout=60) as api:
        done(ingest(api, "bulk", 1, []), 60_000)
        refused(ingest(api, "bulk", 0, []), 403, "ingest_outdated")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "Arrow stream"),
        (b"nonsense", "Arrow stream"),
        (arrow([("a", b"1")])[:-20], "Arrow stream"),
        (arrow_table(pa.table({"stream": ["a"]})), "no column value"),
        (arrow_table(pa.table({"value": [b"a"]})), "no column stream"),
        (arrow_table(pa.table({"stream": ["a"], "value": [1]})), "wrong type, int64"),
        (arrow_table(pa.table({"stream": [b"a"], "value": [b"1"]})), "wrong type, binary"),
        (arrow_table(pa.table({"stream": ["a"], "value": [b"1"], "more": [1]})), "its columns are"),
        (arrow_table(pa.table({"stream": ["a", None], "value": [b"1", b"2"]})), "has nulls"),
        (arrow_table(pa.table({"stream": ["a", "b"], "value": [b"1", None]})), "has nulls"),
    ],
)
def test_what_is_no_table_of_rows_is_not_staged(
    api: httpx.Client, bucket: str, body: bytes, says: str
) -> None:
    answer = api.post("/cluster/staging", params={"bucket": bucket}, content=body)
    assert says in answer.text
    refused(answer, 400, "invalid_rows")


def test_text_is_a_value_too(api: httpx.Client, bucket: str) -> None:
    body = arrow_table(pa.table({"value": ["text"], "stream": pa.array(["a"], pa.large_string())}))
    answer = api.post("/cluster/staging", params={"bucket": bucket}, content=body)
    done(ingest(api, bucket, 0, [answer.json()["object"]]), 1)
    assert content(api, f"/{bucket}/a") == b"text"


def test_bad_requests_change_nothing(api: httpx.Client, bucket: str) -> None:
    good = stage(api, bucket, [("a", b"1")])
    base: dict[str, Any] = {"bucket": bucket, "app": "job", "version": 1, "objects": [good]}
    wrong: list[tuple[dict[str, Any], int, str]] = [
        ({"objects": None}, 400, "invalid_json"),
        ({"version": "1"}, 400, "invalid_json"),
        ({"version": -1}, 400, "invalid_parameter"),
        ({"app": ""}, 400, "invalid_parameter"),
        ({"app": "x" * 257}, 400, "invalid_parameter"),
        ({"on_refused": "ignore"}, 400, "invalid_json"),
        ({"unknown": 1}, 400, "invalid_json"),
        ({"objects": ["segments/g0/x.parquet"]}, 400, "invalid_parameter"),
        ({"objects": [good, "../x"]}, 400, "invalid_parameter"),
        ({"objects": [good.replace("staging/", "staging/x")]}, 400, "invalid_parameter"),
        ({"objects": [good[:-9] + "000.arrow"]}, 404, "object_not_found"),
        ({"bucket": "nobody", "objects": []}, 404, "bucket_not_found"),
    ]
    for change, status, code in wrong:
        refused(api.post("/cluster/ingest", json=base | change), status, code)
    refused(api.post("/cluster/ingest", content=b"{"), 400, "invalid_json")
    refused(api.post("/cluster/staging", content=arrow([])), 400, "invalid_parameter")
    refused(
        api.post("/cluster/staging", params={"bucket": "nobody"}, content=arrow([])), 404, "bucket_not_found"
    )
    assert api.head(f"/{bucket}/a").status_code == 404
    done(ingest(api, bucket, 1, [good]), 1)


def test_a_staged_object_with_a_flipped_bit_is_not_appended(killable: Server) -> None:
    with httpx.Client(base_url=killable.url, timeout=60) as api:
        api.put("/flipped").raise_for_status()
        staged = stage(api, "flipped", [("a", b"the right bytes")])
        path = killable.data_dir / "cold" / staged
        original = path.read_bytes()
        path.write_bytes(original.replace(b"the right", b"the rigjt"))
        refused(ingest(api, "flipped", 1, [staged]), 500, "object_damaged")
        assert api.head("/flipped/a").status_code == 404
        path.write_bytes(original)
        done(ingest(api, "flipped", 1, [staged]), 1)
        assert content(api, "/flipped/a") == b"the right bytes"


def test_an_object_that_was_staged_by_an_earlier_version_is_taken(
    server: Server, api: httpx.Client, bucket: str
) -> None:
    staged = stage(api, bucket, [("a", b"1")])
    old = f"staging/{bucket}/{staged.rpartition('-')[2]}"
    (server.data_dir / "cold" / staged).rename(server.data_dir / "cold" / old)
    done(ingest(api, bucket, 1, [old]), 1)


def test_a_bucket_that_is_made_again_knows_nothing_of_the_old_one(api: httpx.Client, bucket: str) -> None:
    one = stage(api, bucket, [("a", b"1")])
    done(ingest(api, bucket, 9, [one]), 1)
    api.delete(f"/{bucket}/a").raise_for_status()
    api.delete(f"/{bucket}").raise_for_status()
    api.put(f"/{bucket}").raise_for_status()
    done(ingest(api, bucket, 1, [one]), 1)
    assert content(api, f"/{bucket}/a") == b"1"


def test_an_expired_stream_is_made_anew(start_server: Any) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        api.put("/bulk").raise_for_status()
        object_ = stage(api, "bulk", [("a", b"new")])
        make(api, "/bulk/a", TEXT | {"stream-ttl": "1"}, b"old")
        while api.get("/cluster/buckets").json()["buckets"][0]["streams"]:
            if (answer := ingest(api, "bulk", 1, [])).status_code != 200:
                raise AssertionError(answer.text)
        done(ingest(api, "bulk", 2, [object_]), 1)
        assert content(api, "/bulk/a") == b"new"
        post(api, "/bulk/a", b"!")
