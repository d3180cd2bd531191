"""Which paths name a stream, and which name the same one."""

import httpx
import pytest
from tests.http.raw import ask
from tests.http.wire import TEXT, content, make
from tests.server import Server


@pytest.mark.parametrize(
    "name",
    [
        "%FF",
        "a%FFb",
        "%C3",
        "%ED%A0%80",
        "%EF%BF%BD",
        "%00",
        "a%00b",
        "..",
        "../x",
        "a/../b",
        "a..b",
        "%2E%2E/x",
        "",
        "/x",
        "a/",
        "__ds",
        "__ds/x",
        "healthz",
        "cluster/x",
        "x" * 1025,
        "a/" + "x" * 1023,
        "%C3%A9" * 513,
    ],
    ids=lambda name: name[:20],
)
@pytest.mark.parametrize("method", ["PUT", "GET", "POST", "HEAD", "DELETE"])
def test_a_flat_path_that_names_no_stream_is_400(server: Server, name: str, method: str) -> None:
    lines = ["Content-Type: text/plain"] if method in ("PUT", "POST") else []
    answer = ask(server, method, f"/v1/stream/{name}", *lines, body=b"x" if lines else None)
    assert answer.status == 400
    assert method == "HEAD" or answer.code == "invalid_stream_id"


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        ("%FF", "invalid_stream_id"),
        ("a%00", "invalid_stream_id"),
        ("..", "invalid_stream_id"),
        ("", "invalid_stream_id"),
        ("a/b", "invalid_stream_id"),
        ("a%2Fb", "invalid_stream_id"),
        ("a/unknown", "invalid_stream_id"),
        ("x" * 116, "invalid_stream_id"),
        ("%C3%A9" * 58, "invalid_stream_id"),
    ],
    ids=lambda name: name[:20],
)
def test_a_bucket_path_that_names_no_stream_is_400(
    server: Server, api: httpx.Client, stream: str, code: str
) -> None:
    api.put("/bucket")
    for method in ("PUT", "GET", "DELETE"):
        answer = ask(server, method, f"/bucket/{stream}")
        assert (answer.status, answer.code) == (400, code)


def test_the_longest_names_are_taken(server: Server, api: httpx.Client) -> None:
    api.put("/bucket")
    assert ask(server, "PUT", "/bucket/" + "x" * 115, body=b"").status == 201
    assert ask(server, "PUT", "/v1/stream/" + "y" * 1024, body=b"").status == 201
    assert ask(server, "PUT", "/v1/stream/ab/" + "%C3%A9" * 510, body=b"").status == 201


@pytest.mark.parametrize("name", ["%zz", "%", "%4", "a%C"])
def test_a_percent_sign_that_encodes_nothing_does_no_harm(server: Server, path: str, name: str) -> None:
    """It stands for itself, or is refused; it never becomes another name."""
    made = ask(server, "PUT", f"{path}{name}", body=b"x")
    assert made.status in (201, 400)
    assert ask(server, "HEAD", path).status == 404


def test_a_slash_may_be_encoded_and_other_characters_too(
    server: Server, api: httpx.Client, path: str
) -> None:
    bucket = path.rpartition("/")[2]
    make(api, f"/v1/stream/{bucket}/a/b", TEXT, b"same")
    for spelling in (f"{bucket}%2Fa%2fb", f"{bucket}/%61%2Fb", f"%74{bucket[1:]}/a/b"):
        assert ask(server, "GET", f"/v1/stream/{spelling}").body == b"same"


def test_names_that_look_alike_are_different_streams(server: Server, path: str) -> None:
    names = ["é", "e\u0301", "É", " ", "+", "%20", "a?b", "a#b", ".", "a.b", "漢", "😀", "a\\b", "streams"]
    for name in names:
        encoded = "".join(f"%{byte:02X}" for byte in name.encode())
        made = ask(server, "PUT", f"{path}{encoded}", body=name.encode())
        assert made.status == 201, name
        assert made.headers["location"].startswith(f"http://test{path}")
    for name in names:
        encoded = "".join(f"%{byte:02X}" for byte in name.encode())
        assert ask(server, "GET", f"{path}{encoded}").body == name.encode()


def test_the_location_leads_back_to_the_stream(server: Server, path: str) -> None:
    for name in ("é x", "a?b", "a#b", "100%", 'q"<>', "a+b&c=d;e,f:@!$'()*~"):
        encoded = "".join(f"%{byte:02X}" for byte in name.encode())
        made = ask(server, "PUT", f"{path}{encoded}", body=name.encode())
        location = made.headers["location"].removeprefix("http://test")
        assert ask(server, "GET", location).body == name.encode()


def test_streams_and_ids_with_slashes_are_reachable_on_flat_paths_only(
    server: Server, api: httpx.Client
) -> None:
    make(api, "/v1/stream/flatbucket/streams", TEXT, b"x")
    make(api, "/v1/stream/flatbucket/a/b", TEXT, b"y")
    for method in ("PUT", "POST"):
        answer = ask(server, method, "/flatbucket/streams", "Content-Type: text/plain", body=b"x")
        assert (answer.status, answer.code) == (400, "invalid_stream_id")
    assert ask(server, "DELETE", "/flatbucket/streams").status == 405
    assert content(api, "/v1/stream/flatbucket/streams") == b"x"
    assert ask(server, "GET", "/flatbucket/a/b").status == 400
    assert content(api, "/v1/stream/flatbucket/a/b") == b"y"


def test_a_flat_path_without_a_slash_is_in_the_default_bucket(
    server: Server, api: httpx.Client, path: str
) -> None:
    name = path.rpartition("/")[2]
    make(api, path, TEXT, b"x")
    assert ask(server, "GET", f"/_default/{name}").body == b"x"
    assert ask(server, "GET", f"/v1/stream/_default/{name}").body == b"x"
