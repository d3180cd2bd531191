"""What is in memory, in steps: every row in one of them, and none in two."""

import random

import pytest

from ursula.model.bucket import Bucket
from ursula.model.journal import EventKind, Gauge, Journal
from ursula.model.read.hot_ranges import STEP_BYTES, hot_steps
from ursula.model.stream.stream import Stream


@pytest.mark.parametrize("seed", range(20))
def test_every_row_is_in_one_step(seed: int) -> None:
    draw = random.Random(seed)
    gauge = Gauge()
    bucket = Bucket("b", 1, 0, gauge, {})
    stream = Stream("s", "0-1-0", "text/plain", 0)
    positions, position = [], 10
    journals = []
    for _ in range(draw.randint(1, 4)):
        journal = Journal(gauge)
        for _ in range(draw.randint(0, 300)):
            position += draw.randint(1, 3)
            journal.enter(position, position)
            for index in range(draw.randint(1, 3)):
                journal.add(index, EventKind.APPEND, stream, 0, payload=bytes(draw.randint(0, 20_000)))
                positions.append(position)
        journals.append(journal)
    *bucket.parts, bucket.journal = journals
    after = draw.choice([9, position // 2, position])
    steps = hot_steps(bucket, after)
    wanted = [found for found in positions if found > after]
    assert sum(step.rows for step in steps) == len(wanted)
    before = after
    for step in steps:
        assert step.first == before
        assert step.rows == len([found for found in wanted if step.first < found <= step.last])
        assert step.bytes < 2 * STEP_BYTES
        before = step.last
    assert before == (wanted[-1] if wanted else after)
