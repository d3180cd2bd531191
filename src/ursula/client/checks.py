"""Checks of numbers that the caller sets, so that a wrong one is rejected where it is given."""

import math


def check_number(name: str, value: float, least: float, most: float = math.inf) -> None:
    """Raise ValueError unless the value is a finite number in this range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, not {value!r}")
    if not least <= value <= most or math.isinf(value):
        allowed = f"{least} or more" if math.isinf(most) else f"between {least} and {most}"
        raise ValueError(f"{name} must be {allowed}, not {value!r}")


def check_count(name: str, value: int, least: int, most: float = math.inf) -> None:
    """Raise ValueError unless the value is a whole number in this range."""
    check_number(name, value, least, most)
    if not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
