"""The one door: a check before every request, whatever route it is for and however fast it would go."""

from pathlib import Path

import pytest
from tests.http.in_process import serving
from tests.http.raw import Answer, Raw

from ursula.http.errors import Problem
from ursula.http.routes import ROUTES, Match
from ursula.http.wire.request import Request

TYPED = "Content-Type: text/plain"


def only_with_a_pass(request: Request, match: Match) -> Problem | None:
    """What authentication will be like."""
    if request.method == "OPTIONS" or "x-pass" in request.headers:
        return None
    return Problem("route_not_found", f"no pass for {match.route.path}")


def test_every_request_is_checked_before_anything_is_done(tmp_path: Path) -> None:
    with serving(tmp_path, before=only_with_a_pass) as place:

        def ask(method: str, path: str, *lines: str, body: bytes | None = None) -> Answer:
            with Raw(place) as raw:
                return raw.ask(method, path, *lines, body=body).answer(head=method == "HEAD")

        assert ask("PUT", "/demo", "X-Pass: 1", body=b"").status == 201
        assert ask("PUT", "/demo/s", "X-Pass: 1", TYPED, body=b"one").status == 201
        for route in ROUTES:
            path = route.path.replace("{bucket}", "demo").replace("{stream}", "s").replace("{offset}", "0")
            answer = ask(route.method, path, TYPED, body=b"more" if route.method in ("PUT", "POST") else None)
            assert answer.status == 404, route
            if route.method != "HEAD":
                assert f"no pass for {route.path}".encode() in answer.body, route
        for path in ("/nothing/at/all", "/v1/stream/%FF", "/cluster/nothing", "/"):
            assert b"no pass" in ask("GET", path).body, path
        assert b"no pass" in ask("PATCH", "/demo/s").body
        assert ask("OPTIONS", "/demo/s").status == 204, "the check decides for itself what needs no pass"
        assert ask("POST", "/demo/s", "X-Pass: 1", TYPED, body=b"two").status == 204
        assert ask("GET", "/demo/s", "X-Pass: 1").body == b"onetwo"


@pytest.mark.parametrize("body", [b"small", b"x" * 100_000, b"y" * 3_000_000])
def test_a_body_of_a_refused_request_is_not_taken_for_the_next_one(tmp_path: Path, body: bytes) -> None:
    with serving(tmp_path, before=only_with_a_pass) as place, Raw(place) as raw:
        answer = raw.ask("POST", "/v1/stream/s", TYPED, body=body).answer()
        assert answer.status == 404
        if answer.headers.get("connection") != "close":
            assert raw.ask("GET", "/healthz", "X-Pass: 1").answer().status == 200
