"""A condition on one column: exact for rows, and conservative for row groups, by their statistics."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...cold.segment.schema import SEGMENT_SCHEMA

Operator = Literal["=", ">", ">=", "<", "<=", "in", "starts"]
Bounds = tuple[Any, Any]
"""The smallest and the largest of some values."""


class Condition(NamedTuple):
    """A comparison with the value of a column. A row without a value does not pass.

    Times are microseconds since 1970. For `in`, the value is a sorted tuple.
    """

    column: str
    operator: Operator
    value: Any

    def mask(self, column: pa.Array) -> pa.Array:
        """Which rows pass; null means no."""
        kind = SEGMENT_SCHEMA.field(self.column).type
        if self.operator == "in":
            return pc.is_in(column, pa.array(self.value, kind))
        if self.operator == "starts":
            return pc.starts_with(column, self.value)
        return _COMPARE[self.operator](column, pa.scalar(self.value, kind))

    def may_pass(self, bounds: Bounds) -> bool:
        """Whether any value within these bounds could pass."""
        least, greatest = bounds
        match self.operator:
            case "=":
                return bool(least <= self.value <= greatest)
            case ">":
                return bool(greatest > self.value)
            case ">=":
                return bool(greatest >= self.value)
            case "<":
                return bool(least < self.value)
            case "<=":
                return bool(least <= self.value)
            case "in":
                index = bisect_left(self.value, least)
                return index < len(self.value) and self.value[index] <= greatest
            case "starts":
                size = len(self.value)
                return bool(least[:size] <= self.value <= greatest[:size])


_COMPARE: dict[str, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    "=": pc.equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<": pc.less,
    "<=": pc.less_equal,
}


def bounds_of(row_group: Any) -> dict[str, Bounds]:
    """The bounds of the columns of a row group that have Parquet statistics.

    They are raw values: converting one to a time needs a time zone database, which an executor may lack.
    """
    found = {}
    for number in range(row_group.num_columns):
        column = row_group.column(number)
        statistics = column.statistics
        if statistics is not None and statistics.has_min_max:
            found[column.path_in_schema] = _plain(statistics.min_raw), _plain(statistics.max_raw)
    return found


def _plain(raw: Any) -> Any:
    return raw.decode() if isinstance(raw, bytes) else raw
