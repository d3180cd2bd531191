"""Ursula: durable streams over plain HTTP."""

from importlib.metadata import version

__version__ = version("ursula")
