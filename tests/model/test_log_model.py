"""Proposers, followers, trims and take-overs in random order: nothing is lost, and a broken rule is noticed.

`URSULA_FAULT_ROUNDS` says how many schedules are tried: 5,000 a round.
"""

import os

import pytest
from tests.model.etcd_log import COUNT, RULES, Late, Lost, Stopped, World

SCHEDULES = 5_000 * int(os.environ.get("URSULA_FAULT_ROUNDS", "3"))
BROKEN_SCHEDULES = 5_000
STEPS = 200

SKIPPING = (
    "trimming only moves forward",
    "trimming deletes nothing after its end",
    "after a compaction, the trimmed position is compared",
    "the trimmed position and the entries are read at one revision",
    "the watch continues at the revision of the read",
)
"""Rules without which a node may miss entries."""


@pytest.mark.timeout(0 if SCHEDULES > 50_000 else 300)
def test_nothing_is_lost_in_any_order_of_appends_trims_compactions_and_crashes() -> None:
    for seed in range(SCHEDULES):
        try:
            World(seed).run(STEPS)
        except (Lost, Stopped, Late) as error:
            pytest.fail(f"with seed {seed}: {error!r}")


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_of_the_log_that_is_broken_is_noticed(rule: str) -> None:
    for seed in range(BROKEN_SCHEDULES):
        try:
            World(seed, rule).run(STEPS)
        except (Lost, Stopped, Late):
            return
    pytest.fail(f"nobody noticed that this was not kept: {rule}")


@pytest.mark.parametrize("rule", SKIPPING)
def test_a_node_that_would_skip_an_entry_stops_since_the_count_does_not_fit(rule: str) -> None:
    skipped = stopped = 0
    for seed in range(BROKEN_SCHEDULES // 3):
        try:
            World(seed, rule).run(STEPS)
        except (Stopped, Late):
            stopped += 1
        try:
            World(seed, rule, COUNT).run(STEPS)
        except (Lost, Late) as error:
            skipped += isinstance(error, Lost)
    assert stopped
    assert skipped
