"""Counting: a value belongs to the first bound that it does not exceed."""

from ursula.tally import Tally


def test_a_bound_holds_what_is_at_or_below_it() -> None:
    tally = Tally((1.0, 10.0))
    for value in (0.5, 1.0, 1.5, 10.0, 11.0):
        tally.add(value)
    assert tally.counts == [2, 2, 1]
    assert tally.total == 24.0
    assert tally.count == 5
