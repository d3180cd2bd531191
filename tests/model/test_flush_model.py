"""Flush, merge, collection, crash and restore in random order: nothing is lost, and a broken rule is noticed.

`URSULA_FAULT_ROUNDS` says how many schedules are tried: 100 a round.
"""

import os

import pytest
from tests.model.flushing import RULES, Lost, World

SCHEDULES = 100 * int(os.environ.get("URSULA_FAULT_ROUNDS", "3"))
PARTS = 4
STEPS = 300


@pytest.mark.timeout(0 if SCHEDULES > 1000 else 300)
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_in_any_order_of_flushes_merges_collections_crashes_and_restores(part: int) -> None:
    for seed in range(part, SCHEDULES, PARTS):
        try:
            World(seed).run(STEPS)
        except Lost as error:
            pytest.fail(f"with seed {seed}: {error}")


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_is_broken_is_noticed(rule: str) -> None:
    for seed in range(150):
        try:
            World(seed, broken=rule).run(STEPS)
        except Lost:
            return
    pytest.fail(f"nobody noticed that this was not kept: {rule}")
