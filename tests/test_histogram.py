"""Histograms: a value belongs to the first bound that it does not exceed."""

from ursula.histogram import Histogram


def test_a_bound_counts_the_values_at_or_below_it() -> None:
    histogram = Histogram((1.0, 10.0))
    for value in (0.5, 1.0, 1.5, 10.0, 11.0):
        histogram.add(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == 24.0
    assert histogram.count == 5
