"""Spark finds the format "ursula" by the name of this package, without any registration."""

from ursula.spark.source import UrsulaSource as DefaultSource

__all__ = ["DefaultSource"]
