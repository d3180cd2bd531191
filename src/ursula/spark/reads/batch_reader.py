"""Reading a bucket once: `spark.read.format("ursula")`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .options import ReadOptions
from .partitions import ReadPartition, partitions_of
from .rows import read_partition

if TYPE_CHECKING:
    import pyarrow as pa


class BucketReader(DataSourceReader):
    """Reads the history of a bucket up to one position."""

    def __init__(self, options: ReadOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """The partitions, one per task. The position up to which to read is determined here, once."""
        return partitions_of(self._options) or [ReadPartition("", -1, -1, [])]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The rows of a partition."""
        return read_partition(self._options, partition, self._columns)
