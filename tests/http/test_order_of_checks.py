"""What a request is told first when several things are wrong with it: the order is part of the interface.

Each step of an order is a way to be wrong. For each pair of neighbours, a request that is wrong in both
ways gets the answer of the earlier.
"""

from itertools import count
from typing import NamedTuple

import httpx
import pytest
from tests.http.wire import CLOSED, JSON, make, offset, post, producer, refused

_numbers = count()


class Wrong(NamedTuple):
    """One way to be wrong: what it changes in the request, and in the stream that is there before."""

    status: int
    code: str
    headers: dict[str, str]
    body: bytes | None = None
    path: str | None = None
    stream: str = "open"
    unset: str = ""


POST_STEPS = {
    "header syntax": Wrong(400, "header_invalid", {"stream-seq": "x" * 300}),
    "empty body": Wrong(400, "empty_body", {}, b""),
    "no content type": Wrong(400, "content_type_missing", {}, unset="content-type"),
    "no stream": Wrong(404, "stream_not_found", {}, stream="missing"),
    "incarnation": Wrong(412, "incarnation_mismatch", {"stream-incarnation": "1-0-1-1"}),
    "closed": Wrong(409, "stream_closed", {}, stream="closed"),
    "content type": Wrong(409, "content_type_mismatch", {"content-type": "text/plain"}),
    "producer duplicate": Wrong(204, "", producer(0)),
    "if-match": Wrong(412, "precondition_failed", {"if-match": '"other"'}),
    "producer": Wrong(409, "producer_seq_conflict", producer(9)),
    "stream seq": Wrong(409, "stream_seq_conflict", {"stream-seq": "a"}),
    "json": Wrong(400, "invalid_json", {}, b"{"),
}

PUT_STEPS = {
    "name": Wrong(400, "invalid_stream_id", {}, path="/bucket/a/b"),
    "headers": Wrong(400, "invalid_ttl", {"stream-ttl": "soon"}),
    "bucket": Wrong(404, "bucket_not_found", {}, path="/no-such-bucket/stream"),
    "if-match": Wrong(412, "precondition_failed", {"if-match": '"other"'}),
    "configuration": Wrong(409, "stream_exists", {"stream-ttl": "5"}),
}


def compatible(earlier: Wrong, later: Wrong) -> bool:
    """Whether a request can be wrong in both ways at once."""
    same_header = set(earlier.headers) & set(later.headers) or earlier.unset in later.headers
    two_bodies = earlier.body is not None and later.body is not None
    return not same_header and not two_bodies


def pairs(steps: dict[str, Wrong]) -> list[tuple[str, str]]:
    """Each step with all that come later: neighbours, and those further apart."""
    names = list(steps)
    return [
        (earlier, later)
        for index, earlier in enumerate(names)
        for later in names[index + 1 :]
        if compatible(steps[earlier], steps[later])
    ]


@pytest.mark.parametrize(("earlier", "later"), pairs(POST_STEPS))
def test_post_tells_the_earlier_of_two_problems(
    api: httpx.Client, path: str, earlier: str, later: str
) -> None:
    first, second = POST_STEPS[earlier], POST_STEPS[later]
    kinds = {first.stream, second.stream} - {"open"}
    if "missing" not in kinds:
        make(api, path, JSON)
        post(api, path, b"1", {**JSON, **producer(0), "stream-seq": "b"}, status=200)
        if "closed" in kinds:
            post(api, path, b"", CLOSED)
    headers = {**JSON, **second.headers, **first.headers}
    for unset in (first.unset, second.unset):
        headers.pop(unset, None)
    bodies = [body for body in (first.body, second.body) if body is not None]
    answer = api.post(path, headers=headers, content=bodies[0] if bodies else b"2")
    if first.status == 204:
        assert answer.status_code == 204, answer.text
    else:
        refused(answer, first.status, first.code)
    if "missing" not in kinds:
        assert api.head(path).headers["stream-next-offset"] == offset(1)


@pytest.mark.parametrize(("earlier", "later"), pairs(PUT_STEPS))
def test_put_tells_the_earlier_of_two_problems(api: httpx.Client, earlier: str, later: str) -> None:
    first, second = PUT_STEPS[earlier], PUT_STEPS[later]
    bucket = f"order-{next(_numbers)}"
    api.put(f"/{bucket}")
    make(api, f"/{bucket}/stream", JSON, b"1")
    headers = {**JSON, **second.headers, **first.headers}
    path = first.path or second.path or f"/{bucket}/stream"
    refused(api.put(path, headers=headers, content=b"2"), first.status, first.code)
    assert api.head(f"/{bucket}/stream").headers["stream-next-offset"] == offset(1)


def test_bad_json_in_a_put_comes_last(api: httpx.Client, path: str) -> None:
    refused(api.put("/no-such-bucket/stream", headers=JSON, content=b"{"), 404, "bucket_not_found")
    refused(api.put(path, headers={**JSON, "if-match": "*"}, content=b"{"), 412, "precondition_failed")
    refused(api.put(path, headers=JSON, content=b"{"), 400, "invalid_json")
    assert api.head(path).status_code == 404
    make(api, path, JSON)
    refused(api.put(path, headers={**JSON, **CLOSED}, content=b"{"), 409, "stream_exists")
    assert api.put(path, headers=JSON, content=b"{").status_code == 200, "a body on a repeated PUT is ignored"


def test_a_gone_stream_comes_before_what_is_wrong_with_its_name_in_the_request(
    api: httpx.Client, path: str
) -> None:
    make(api, path, JSON, b"1")
    make(api, path + "-fork", {"stream-forked-from": path})
    api.delete(path)
    answer = api.post(path, headers={**JSON, "stream-incarnation": "1-0-1-1"}, content=b"{")
    refused(answer, 410, "stream_gone")
    refused(api.post(path, headers=JSON, content=b""), 400, "empty_body")
    refused(api.post(path, content=b"x"), 400, "content_type_missing")
