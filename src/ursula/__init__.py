"""Ursula: durable streams over plain HTTP."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("ursula")
except PackageNotFoundError:  # on a Spark executor, which gets only the files
    __version__ = "0"
