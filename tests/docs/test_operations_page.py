"""The page for operators names every route, metric and label there is, and no other."""

import re
from pathlib import Path

import pytest
from tests.conftest import StartServer
from tests.exported import export_everything
from tests.scrape import Scrape

from ursula.http.observe import request_stats
from ursula.http.routes import ROUTES

PAGE = Path(__file__).parent.parent.parent / "docs" / "operations.md"


@pytest.fixture(scope="module")
def exported(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Scrape:
    """Every metric there is."""
    return export_everything(start_server, tmp_path_factory.mktemp("exported"))


def rows(pattern: str) -> list[tuple[str, ...]]:
    """The rows of the page's tables that look like this."""
    return re.findall(pattern, PAGE.read_text(), re.MULTILINE)


def test_every_metric_is_documented_with_its_type_and_labels(exported: Scrape) -> None:
    documented = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in rows(r"^\| `((?:ursula|process)_\w+)` \| (\w+) \| ([^|]*)\| .+ \|$")
    }
    found = {}
    for name, family in exported.families.items():
        labels = set().union(*(sample.labels for sample in family.samples)) - {"le"}
        found[name] = (family.type, labels)
    assert documented == found


def test_every_route_label_is_documented() -> None:
    named = {
        value for name, value in vars(request_stats).items() if name.isupper() and isinstance(value, str)
    }
    table = PAGE.read_text().partition("A `route` is one of\n\n")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == named - {request_stats.OTHER_METHOD}


def test_every_route_of_the_server_is_documented() -> None:
    documented = {path: method for method, path in rows(r"^\| `(GET|POST) (/\S+)` \| .+ \|$")}
    documented["/metrics"] = "GET"
    assert "`GET /metrics`" in PAGE.read_text()
    served = {route.path: route.method for route in ROUTES if not route.path.startswith("/{bucket}")}
    assert documented == {path: "GET" if method == "HEAD" else method for path, method in served.items()}
