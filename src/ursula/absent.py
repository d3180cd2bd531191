"""Modules that a process does without, though they may be installed."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def do_without(name: str) -> None:
    """From now on a module is not found, unless it was loaded before."""
    sys.meta_path.insert(0, _Absent(name))


class _Absent:
    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Nothing of other modules."""
        if name == self._name:
            raise ModuleNotFoundError(f"this process does without {name}", name=name)
        return None
