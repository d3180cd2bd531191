"""Folds for the tests; executors import them by name."""

from typing import Any


def total(state: dict[str, Any] | None, messages: list[Any]) -> dict[str, Any]:
    """The number of messages, and the sum of their numbers."""
    state = state or {"count": 0, "sum": 0}
    return {"count": state["count"] + len(messages), "sum": state["sum"] + sum(m["n"] for m in messages)}


def joined(state: bytes | None, messages: list[bytes]) -> bytes:
    """All messages, concatenated."""
    return (state or b"") + b"".join(messages)


def broken(state: object, messages: list[Any]) -> object:
    """A fold that always fails."""
    raise ValueError("no")
