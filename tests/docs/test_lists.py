"""Whatever can be called, sent, answered or typed is in the documents, and nothing else is."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.core
import typer.main
from tests.docs.pages import DOCS, ROOT, codes, for_users, headings, name_of, pages, prose, rows

import ursula.client
from ursula.cli import app as command_line
from ursula.config import Settings
from ursula.http.errors import STATUS
from ursula.http.routes import ROUTES
from ursula.http.syntax.cors import EXPOSED
from ursula.http.syntax.headers import OURS
from ursula.http.syntax.query import WAIT_SECONDS_MAX
from ursula.http.wire.connection import HEAD_SECONDS
from ursula.spark.reads.options import OPTIONS

API = DOCS / "api"
INDEX = API / "README.md"
ROUTE = re.compile(r"(GET|HEAD|PUT|POST|DELETE) (/[\w/{}-]+)")
PAGES = for_users()


SERVER_PATHS = {route.path for route in ROUTES if not route.path.startswith("/{bucket}")}


def served() -> Iterator[tuple[str, str]]:
    """Every method and path that the server has."""
    for route in ROUTES:
        yield route.method, route.path
        if route.path == "/{bucket}/{stream}":
            yield route.method, "/v1/stream/{path}"


def documented() -> dict[tuple[str, str], Path]:
    """Every route in the index, and the page that describes it."""
    found = {}
    for line in INDEX.read_text().splitlines():
        route = re.match(r"\| `(\w+) (/[^`]*)` \| \[.+?\]\(([^)#]+)", line)
        if route is not None:
            found[route[1], route[2]] = (API / route[3]).resolve()
    return found


def test_every_route_is_in_the_index_and_nothing_else_is() -> None:
    # A HEAD beside a GET of the server's own routes is told in one sentence.
    told_together = {("HEAD", path) for path in SERVER_PATHS}
    assert set(documented()) == set(served()) - told_together


@pytest.mark.parametrize("route", documented(), ids=" ".join)
def test_the_page_of_a_route_names_it(route: tuple[str, str]) -> None:
    page = documented()[route]
    assert route in {(method, path) for code in codes(prose(page)) for method, path in ROUTE.findall(code)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_names_no_route_that_is_not_there(page: Path) -> None:
    known = set(served())
    named = {route for code in codes(prose(page)) for route in ROUTE.findall(code)}
    assert named - known == set()


def test_every_error_code_is_documented_with_its_status() -> None:
    found = {codes(code)[0]: int(status) for code, status, _ in rows(API / "errors.md", "## The codes")}
    assert found == STATUS


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent == API], ids=name_of)
def test_a_page_gives_error_codes_the_status_that_they_have(page: Path) -> None:
    wrong = []
    for line in page.read_text().splitlines():
        row = re.match(r"\| (\d{3}) \| (`.+?`) \|", line)
        if row is not None:
            wrong += [code for code in codes(row[2]) if STATUS.get(code) != int(row[1])]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_names_no_error_code_that_is_not_there(page: Path) -> None:
    named = re.findall(r"\b[45]\d\d `([a-z_]+)`", prose(page))
    assert [code for code in named if code not in STATUS] == []


def test_every_request_header_is_documented() -> None:
    found = [codes(header)[0].lower() for header, _, _ in rows(API / "headers.md", "## Request headers")]
    assert sorted(found) == sorted(OURS)


def test_every_response_header_is_documented() -> None:
    found = [codes(header)[0] for header, _, _ in rows(API / "headers.md", "## Response headers")]
    assert sorted(found) == sorted(EXPOSED.split(", "))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_names_no_header_of_ours_that_is_not_there(page: Path) -> None:
    known = OURS | {name.lower() for name in EXPOSED.split(", ")}
    named = re.findall(r"`((?:Stream|Producer)-[\w-]+)", prose(page))
    assert [name for name in named if name.lower() not in known] == []


def commands(group: typer.core.TyperGroup, prefix: str = "ursula") -> Iterator[str]:
    """Every command that can be typed."""
    for name, command in group.commands.items():
        if isinstance(command, typer.core.TyperGroup):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}"


def test_every_command_is_documented() -> None:
    group = typer.main.get_command(command_line)
    assert isinstance(group, typer.core.TyperGroup)
    titles = [codes(title)[0] for title in headings(DOCS / "command-line.md") if title.startswith("`")]
    assert sorted(titles) == sorted(commands(group))


def test_every_option_of_spark_is_documented() -> None:
    named = [name for cell, _ in rows(DOCS / "spark.md", "## Options") for name in codes(cell)]
    assert sorted(named) == sorted(OPTIONS)


def test_every_name_of_the_client_is_documented() -> None:
    text = (DOCS / "client.md").read_text()
    assert [name for name in ursula.client.__all__ if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_a_page_installs_ursula_from_its_source_and_from_no_registry(page: Path) -> None:
    assert re.findall(r"pipx? install[^\n`]*\bursula\b", page.read_text()) == []


def test_the_readme_says_where_the_command_is() -> None:
    text = (ROOT / "README.md").read_text()
    assert ".venv/bin/ursula" in text
    assert "pipx install ." in text


def test_the_page_on_proxies_has_the_time_outs_of_the_server() -> None:
    text = (DOCS / "proxy.md").read_text()
    keep_alive = Settings().http.keep_alive
    assert f"within {HEAD_SECONDS:g} s" in text
    assert f"within {keep_alive:g} s" in text
    idle = re.findall(r"keepalive(?:_timeout)? (\d+)s", text)
    assert len(idle) == 2
    assert all(int(seconds) < keep_alive for seconds in idle)
    (read,) = re.findall(r"proxy_read_timeout (\d+)s", text)
    assert int(read) > WAIT_SECONDS_MAX
    assert int(read) > Settings().http.sse_heartbeat
