"""Chat rooms folded into snapshots: a newcomer starts with the current state of a room, not its beginning.

    python examples/chat_snapshots.py --picture chats.svg

folds the new messages of the bucket `chats` and publishes the states as snapshots; run it as often as you
like. With `--demo` it writes some conversations first.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import ursula.spark
from ursula.client import Client
from ursula.pipeline import materialize
from ursula.pipeline.chart import stacked_bars

BUCKET = "chats"
LAST_KEPT = 5


def fold(state: dict[str, Any] | None, messages: list[dict[str, str]]) -> dict[str, Any]:
    """The state of a room: how many messages each person has written, and the last few messages."""
    state = state or {"said": {}, "last": []}
    said = dict(state["said"])
    for message in messages:
        said[message["from"]] = said.get(message["from"], 0) + 1
    return {"said": said, "last": [*state["last"], *messages][-LAST_KEPT:]}


def write_demo(endpoint: str) -> None:
    """Write some rooms with messages."""
    chance = random.Random(3)
    with Client(endpoint) as client:
        client.bucket(BUCKET).create()
        for room in ("garden", "kitchen", "library", "roof"):
            stream = client.stream(f"{BUCKET}/{room}")
            stream.create("application/json")
            names = chance.sample(["ada", "bo", "chris", "dana"], 3)
            said = [{"from": chance.choice(names), "text": f"message {number}"} for number in range(40)]
            stream.append_json(*said[: chance.randrange(10, 40)])


def main() -> None:
    """Fold, publish, and show what a newcomer gets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", "--endpoint", dest="endpoint", default="http://127.0.0.1:4437")
    parser.add_argument("--states", default="chat-states")
    parser.add_argument("--picture", type=Path, default=Path("chats.svg"))
    parser.add_argument("--demo", action="store_true")
    given = parser.parse_args()
    if given.demo:
        write_demo(given.endpoint)

    spark = ursula.spark.session()
    options = {"endpoint": given.endpoint, "bucket": BUCKET}
    done = materialize(spark, given.states, options, fold, publish=True)
    print(f"{done.changed} rooms have changed, {done.published.get('published', 0)} snapshots were published")
    table = spark.read.parquet(f"{given.states}/{done.path}").select("stream", "state").orderBy("stream")
    states = {row["stream"]: json.loads(row["state"]) for row in table.collect()}
    spark.stop()

    counts = {(name, room): float(n) for room, state in states.items() for name, n in state["said"].items()}
    given.picture.write_text(stacked_bars("who said how much in which room", "messages", counts))
    with Client(given.endpoint) as client:
        for room in states:
            snapshot = client.stream(f"{BUCKET}/{room}").latest_snapshot()
            if snapshot is not None:
                last = json.loads(snapshot.data)["last"][-1]
                print(f"{room}: {last['from']} said {last['text']!r} last")


if __name__ == "__main__":
    main()
