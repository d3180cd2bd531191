"""The same connections under TLS."""

import ssl
from pathlib import Path

import httpx
import pytest
import trustme
from tests.http.in_process import serving
from tests.http.wire import JSON, TEXT, content, make, post


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Who vouches for the server."""
    return trustme.CA()


def test_streams_are_written_read_and_followed_under_tls(tmp_path: Path, authority: trustme.CA) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    large = bytes(range(256)) * 20_000
    with serving(tmp_path, tls=context) as place:
        url = f"https://localhost:{place.port}"
        with httpx.Client(base_url=url, verify=trusting, timeout=60) as api:
            made = make(api, "/v1/stream/s", TEXT, b"hello")
            assert made.headers["location"].startswith(url), "links lead back to the same scheme"
            post(api, "/v1/stream/s", b", world", TEXT)
            assert content(api, "/v1/stream/s") == b"hello, world"
            make(api, "/v1/stream/large", body=large)
            assert content(api, "/v1/stream/large") == large
            make(api, "/v1/stream/j", JSON, b"[1,2]")
            with api.stream("GET", "/v1/stream/j?offset=-1&live=sse") as events:
                lines = events.iter_lines()
                assert next(line for line in lines if line.startswith("data:")) == "data:[1,2]"
                post(api, "/v1/stream/j", b"3", JSON)
                assert next(line for line in lines if line == "data:[3]")
        with httpx.Client(timeout=60) as plain, pytest.raises(httpx.HTTPError):
            plain.get(f"http://localhost:{place.port}/healthz")
        with httpx.Client(base_url=url, verify=trusting, timeout=60) as api:
            assert api.get("/healthz").status_code == 200, "a client without TLS disturbs nobody"
