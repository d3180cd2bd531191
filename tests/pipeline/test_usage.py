"""`usage`: what each bucket received, day by day, from the history alone."""

import json
import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from pyspark.sql import SparkSession
from tests.http.wire import BINARY, JSON, make, post
from tests.pipeline.conftest import Pipeline
from tests.server import Server

from ursula.pipeline import usage
from ursula.pipeline.chart import stacked_bars
from ursula.spark.options import OptionError


@pytest.fixture(scope="module")
def counted(start_server: Any) -> tuple[Server, set[date]]:
    """A server with two buckets, in two segments and in memory; and the possible dates of the messages."""
    server: Server = start_server()
    begun = datetime.now(UTC).date()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        for bucket in ("first", "second"):
            api.put(f"/{bucket}").raise_for_status()
            make(api, f"/{bucket}/a", BINARY)
        post(api, "/first/a", b"12345")
        api.post("/cluster/flush").raise_for_status()
        make(api, "/first/j", JSON, b'[1,22,"x"]')
        post(api, "/second/a", b"1" * 100)
        api.post("/cluster/flush").raise_for_status()
        post(api, "/first/a", b"67")
        api.delete("/second/a").raise_for_status()
        make(api, "/second/a", BINARY, b"again")
    return server, {begun, datetime.now(UTC).date()}


def sums(found: Any) -> dict[str, tuple[int, int]]:
    """Messages and bytes of each bucket, on all days."""
    counts: dict[str, tuple[int, int]] = {}
    for used in found.used:
        before = counts.get(used.bucket, (0, 0))
        counts[used.bucket] = (before[0] + used.messages, before[1] + used.bytes)
    return counts


def test_everything_is_counted_once(spark: SparkSession, counted: tuple[Server, set[date]]) -> None:
    server, days = counted
    would = usage(spark, server.url, dry_run=True)
    assert (would.segments, would.used) == (2, [])
    found = usage(spark, server.url)
    assert sums(found) == {"first": (5, 7 + 1 + 2 + 3), "second": (2, 105)}
    assert {used.day for used in found.used} <= days
    if len(days) == 1:
        assert [used.streams for used in found.used] == [2, 2], (
            "a stream that is created again is another one"
        )
    store = str(server.data_dir / "cold")
    assert usage(spark, path=store).used == found.used
    assert set(sums(usage(spark, path=store, bucket="second"))) == {"second"}
    assert usage(spark, path=store, bucket="nobody").used == []


def test_what_cannot_be_read_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="give endpoint or path"):
        usage(spark)
    with pytest.raises(OptionError, match="there is no store"):
        usage(spark, path=str(tmp_path))


def test_the_command_draws_and_reports(
    pipeline: Pipeline, counted: tuple[Server, set[date]], tmp_path: Path
) -> None:
    server, _ = counted
    chart, report = tmp_path / "usage.svg", tmp_path / "report.json"
    more = ["--chart", str(chart), "--report", str(report)]
    done = pipeline("usage", "--store", str(server.data_dir / "cold"), *more)
    assert done.exit_code == 0, done.stderr
    assert "first" in done.stdout
    assert "streams" in done.stdout
    assert {row["bucket"] for row in json.loads(report.read_text())["used"]} == {"first", "second"}
    ElementTree.parse(chart)


def test_a_chart_has_a_bar_for_each_name_and_day() -> None:
    values = {(f"b{n}", f"2030-01-0{d}"): float(n * d) for n in range(1, 12) for d in (1, 2)}
    drawn = ElementTree.fromstring(stacked_bars("a <title>", "bytes", values))
    boxes = [one for one in drawn if one.tag.endswith("rect")]
    texts = [one.text or "" for one in drawn if one.tag.endswith("text")]
    assert len(boxes) == 8 * 2 + 8
    assert texts[0] == "a <title>"
    assert {"2030-01-01", "2030-01-02", "b11", "others"} <= set(texts)
    assert "b1" not in texts
    heights = [float(one.attrib["height"]) for one in boxes if one.attrib["width"] != "10"]
    assert sum(heights[8:]) == pytest.approx(2 * sum(heights[:8]), abs=1)
    axis = max(float(text.removesuffix(" B")) for text in texts if text.endswith(" B"))
    assert sum(heights[8:]) / 250 == pytest.approx(2 * sum(range(1, 12)) / axis, abs=0.01)


CHARACTER_WIDTH = 6.2  # of the usual sans-serif letters, at 11 pixels


@pytest.mark.parametrize(
    ("unit", "highest", "top"),
    [
        ("bytes", 80 << 20, "80 MiB"),
        ("bytes", 83_900_000, "100 MiB"),
        ("bytes", 5, "5 B"),
        ("bytes", 1500, "1.5 KiB"),
        ("bytes", 1023 << 40, "1,500 TiB"),
        ("runs", 1, "1"),
        ("messages", 123_456_789, "150,000,000"),
    ],
)
def test_the_axis_of_a_chart_can_be_read_and_is_not_clipped(unit: str, highest: int, top: str) -> None:
    longest = "a-very-long-name-of-a-bucket-of-someone"
    values = {(longest, f"2030-01-{day:02}"): float(highest * day / 31) for day in range(1, 32)}
    drawn = ElementTree.fromstring(stacked_bars("by day", unit, values))
    width = float(drawn.attrib["viewBox"].split()[2])
    texts = [one for one in drawn if one.tag.endswith("text")]
    assert top in [one.text for one in texts]
    for one in texts:
        assert one.text is not None
        assert not re.search(r"\d[eE][+-]\d", one.text)
        long, x = CHARACTER_WIDTH * len(one.text), float(one.attrib["x"])
        left = x - {"start": 0.0, "middle": long / 2, "end": long}[one.attrib.get("text-anchor", "start")]
        assert left >= 0, one.text
        assert left + long <= width, one.text


def test_a_name_that_xml_cannot_hold_does_not_break_a_chart() -> None:
    drawn = ElementTree.fromstring(stacked_bars("by day", "bytes", {("a\x1b<b>\x00", "2030-01-01"): 1.0}))
    assert "a\ufffd<b>\ufffd" in [one.text for one in drawn]


def test_a_chart_of_nothing_is_empty() -> None:
    assert "<rect" not in stacked_bars("nothing", "bytes", {})
