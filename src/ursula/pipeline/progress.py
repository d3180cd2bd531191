"""How a job tells how far it is."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Told how much is done, and how much there is."""


def silent(done: int, total: int) -> None:
    """Tell nobody."""


def untold(what: str, done: int, total: int) -> None:
    """Tell nobody, where there are several kinds of work."""
