"""A live dashboard over agent runs: JSON events, counted by time and outcome, drawn after every batch.

    python examples/agent_dashboard.py --picture dashboard.svg

follows the bucket `agent-runs` forever. With `--demo` it writes an hour of events first, and ends when all
of them are counted.
"""

import argparse
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import ursula.spark
from ursula.client import Client
from ursula.pipeline.chart import stacked_bars

BUCKET = "agent-runs"
EVENT = "run string, status string, at timestamp"


def write_demo(endpoint: str) -> None:
    """Write an hour of runs: each begins, takes some steps, and ends in one way or another."""
    chance = random.Random(7)
    start = datetime(2030, 1, 1, 12, tzinfo=UTC)
    with Client(endpoint) as client:
        client.bucket(BUCKET).create()
        for number in range(120):
            begun = start + timedelta(seconds=chance.uniform(0, 3600))
            outcome = chance.choices(["done", "failed", "cancelled"], [8, 2, 1])[0]
            steps = ["started", *["step"] * chance.randrange(1, 5), outcome]
            events = []
            for turn, status in enumerate(steps):
                at = begun + timedelta(seconds=20 * turn)
                events.append({"run": f"run-{number}", "status": status, "at": at.isoformat()})
            stream = client.stream(f"{BUCKET}/run-{number}")
            stream.create("application/json")
            stream.append_json(*events)


def main() -> None:
    """Count the runs that have ended, and draw the chart whenever a count changes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", "--endpoint", dest="endpoint", default="http://127.0.0.1:4437")
    parser.add_argument("--picture", type=Path, default=Path("dashboard.svg"))
    parser.add_argument("--checkpoint", default="dashboard-checkpoint")
    parser.add_argument("--demo", action="store_true")
    given = parser.parse_args()
    if given.demo:
        write_demo(given.endpoint)

    spark = ursula.spark.session(
        settings={"spark.sql.shuffle.partitions": "4", "spark.sql.session.timeZone": "UTC"}
    )
    source = spark.readStream.format("ursula").options(endpoint=given.endpoint, bucket=BUCKET)
    events = (
        source.option("startingOffsets", "earliest")
        .load()
        .select(f.from_json(f.col("value").cast("string"), EVENT).alias("event"))
        .select("event.*")
        .where("status IN ('done', 'failed', 'cancelled')")
    )
    counts = events.withWatermark("at", "10 minutes").groupBy(f.window("at", "5 minutes"), "status").count()
    shown: dict[tuple[str, str], float] = defaultdict(float)

    def draw(batch: DataFrame, number: int) -> None:
        rows = batch.selectExpr("date_format(window.start, 'HH:mm') AS time", "status", "count")
        for row in rows.collect():
            shown[row["status"], row["time"]] = row["count"]
        given.picture.write_text(stacked_bars("agent runs that ended, every 5 minutes", "runs", shown))
        print(f"batch {number}: {sum(shown.values()):.0f} runs have ended", flush=True)

    writer = counts.writeStream.outputMode("update").foreachBatch(draw)
    writer = writer.option("checkpointLocation", str(Path(given.checkpoint).absolute()))
    writer = writer.trigger(availableNow=True) if given.demo else writer.trigger(processingTime="2 seconds")
    writer.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
