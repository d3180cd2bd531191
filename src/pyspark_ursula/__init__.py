"""Spark finds the format "ursula" through the name of this package, without registration."""

from ursula.spark.source import UrsulaSource as DefaultSource

__all__ = ["DefaultSource"]
