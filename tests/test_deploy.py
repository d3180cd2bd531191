"""The files in deploy/ query only metrics and labels that a server really exports."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tests.conftest import StartServer
from tests.exported import export_everything
from tests.scrape import Scrape

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"

OF_PROMETHEUS = {"up": set[str]()}
"""Metrics that the scraper adds by itself."""
ADDED_LABELS = {"job", "instance"}
"""Labels that the scraper adds to every metric."""
WORDS = {"sum", "min", "max", "count", "by", "on", "and", "or", "group_left"}
FUNCTIONS = {"rate", "increase", "delta", "changes", "histogram_quantile"}
"""Words in our queries that are not metrics."""

DURATION = re.compile(r"([0-9]+(ms|s|m|h))+")
SELECTOR = re.compile(r"\b([a-zA-Z_]\w*)\s*(\{[^{}]*\})?")
MATCHER = re.compile(r'\s*(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"\s*')


class Query(NamedTuple):
    """An expression, where it is, and the labels that are shown with it."""

    where: str
    expression: str
    shown: set[str]


def rules() -> list[dict[str, Any]]:
    """Every alert."""
    document = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    assert document.keys() == {"groups"}
    found: list[dict[str, Any]] = []
    for group in document["groups"]:
        assert group.keys() <= {"name", "interval", "rules"}
        found += group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    """Every panel of the dashboard that has queries."""
    document = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def queries() -> Iterator[Query]:
    """Every query for Prometheus."""
    for panel in panels():
        for target in panel["targets"]:
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            yield Query(panel["title"], target["expr"], shown)
    for rule in rules():
        texts = " ".join(rule["annotations"].values())
        yield Query(rule["alert"], rule["expr"], set(re.findall(r"\$labels\.(\w+)", texts)))
    document = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    for variable in document["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert match is not None
            yield Query(variable["name"], match[1], {match[2]})


@pytest.fixture(scope="module")
def exported(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Scrape:
    """Every metric there is."""
    return export_everything(start_server, tmp_path_factory.mktemp("exported"))


@pytest.mark.parametrize("query", list(queries()), ids=lambda query: query.where)
def test_a_query_names_only_exported_metrics_and_labels(query: Query, exported: Scrape) -> None:
    known = {name: exported.labels(name) for name in exported.samples} | OF_PROMETHEUS
    labels = set(ADDED_LABELS)
    expression = re.sub(r"\[[^\]]+\]", "", query.expression)
    grouped: set[str] = set()
    for names in re.findall(r"\b(?:by|on)\s*\(([^()]*)\)", expression):
        grouped |= {name.strip() for name in names.split(",")}
    expression = re.sub(r"\b(by|on)\s*\([^()]*\)", "", expression)
    metrics = 0
    for name, matchers in SELECTOR.findall(expression):
        if name in WORDS | FUNCTIONS:
            continue
        assert name in known, f"{name} is exported by nobody"
        metrics += 1
        labels |= known[name]
        for matcher in filter(None, matchers.strip("{}").split(", ")):
            match = MATCHER.fullmatch(matcher)
            assert match is not None, matcher
            assert match[1] in known[name] | ADDED_LABELS, f"{name} has no label {match[1]}"
    assert metrics > 0
    assert grouped <= labels
    assert query.shown <= labels


def test_every_range_is_a_valid_duration(exported: Scrape) -> None:
    for query in queries():
        for duration in re.findall(r"\[([^\]]+)\]", query.expression):
            assert duration == "$__rate_interval" or DURATION.fullmatch(duration)


def test_the_alerts_are_complete() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 10
    for rule in rules():
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations", "keep_firing_for"}
        assert re.fullmatch(r"Ursula[A-Z]\w+", rule["alert"])
        assert DURATION.fullmatch(rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert all(rule["annotations"].values())


def test_every_alert_is_documented() -> None:
    rows = re.findall(r"^\| `(Ursula\w+)` \|", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    assert rows == [rule["alert"] for rule in rules()]


def test_the_dashboard_can_be_imported_anywhere() -> None:
    document = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    assert document["uid"] == "ursula"
    assert "id" not in document
    source, *_ = document["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    assert re.findall(r'"uid": "(?!\$\{datasource\}|ursula")', json.dumps(document)) == []
    identities = [panel["id"] for panel in document["panels"]]
    assert len(identities) == len(set(identities))


def test_the_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_every_metric_of_ours_has_a_panel_or_an_alert(exported: Scrape) -> None:
    text = " ".join(query.expression for query in queries())
    hidden = {
        name
        for name in exported.families
        if name.startswith("ursula_") and name.removesuffix("_info") not in text
    }
    assert hidden == set()


def test_the_scrape_configuration_finds_the_rules_and_the_server() -> None:
    document = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    assert [(DEPLOY / name).exists() for name in document["rule_files"]] == [True]
    (job,) = document["scrape_configs"]
    assert (job["job_name"], job["metrics_path"]) == ("ursula", "/metrics")
    assert all(
        'job="ursula"' in rule["expr"] for rule in rules() if re.search(r"\b(up|process_)", rule["expr"])
    )
