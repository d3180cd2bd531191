"""GET /metrics as a scraper reads it."""

from collections.abc import Sequence
from urllib.request import urlopen

import httpx
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.cluster.spread import ports_behind


class Scrape:
    """What a server exported at one moment."""

    def __init__(self, text: str) -> None:
        self.families: dict[str, Metric] = {}
        for family in text_string_to_metric_families(text):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            assert name not in self.families, f"{name} is there twice"
            self.families[name] = family

    def __getitem__(self, name: str) -> float:
        """The sum over everything that this sample has labels for."""
        return self.value(name)

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples of this name that have these labels."""
        return sum(
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def labels(self, name: str) -> set[str]:
        """The names of the labels that samples of this name have."""
        found = [
            sample.labels
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name
        ]
        return set().union(*found)

    @property
    def samples(self) -> set[str]:
        """The names of all samples."""
        return {sample.name for family in self.families.values() for sample in family.samples}

    def with_families_of(self, other: "Scrape") -> "Scrape":
        """The families of both; where both have one, that of the other."""
        both = Scrape("")
        both.families = self.families | other.families
        return both


def scrape(api: httpx.Client) -> Scrape:
    """Ask a server; or, where several are behind a proxy, all of them, whose samples are then added up."""
    ports = ports_behind.get(str(api.base_url).rstrip("/"))
    if ports:
        return _scrape_all(ports)
    answer = api.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return Scrape(answer.text)


def _scrape_all(ports: Sequence[int]) -> Scrape:
    found = []
    for port in ports:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            found.append(Scrape(answer.read().decode()))
    for other in found[1:]:
        for name, family in other.families.items():
            found[0].families.setdefault(name, Metric(family.name, "", family.type)).samples += family.samples
    return found[0]
