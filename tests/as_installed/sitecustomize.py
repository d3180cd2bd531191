"""A server has only what it depends on. Pandas is here for tests; PyArrow would load it at every start."""

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class WithoutPandas(MetaPathFinder):
    """Finds nothing, and does not let others look for it."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        """Refuse it by name."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, WithoutPandas())
