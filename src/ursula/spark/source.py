"""The data source "ursula": to read, to follow and to write."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from .options import (
    OptionError,
    ReadOptions,
    parse_read_options,
    parse_shared_options,
    parse_stream_options,
)
from .planning import Task, tasks_of
from .rows import read_task, schema_of
from .sink import BucketStreamWriter, BucketWriter
from .streaming import BucketStreamReader
from .write_options import WriteOptions, parse_write_options

if TYPE_CHECKING:
    import pyarrow as pa


class UrsulaSource(DataSource):
    """A bucket as a table."""

    @classmethod
    def name(cls) -> str:
        """What is written as the format."""
        return "ursula"

    def schema(self) -> StructType:
        """All columns; with a schema of his own, a reader asks for some of them."""
        return from_arrow_schema(schema_of(parse_shared_options(self.options)))

    def reader(self, schema: StructType) -> "BucketReader":
        """A batch read."""
        options = parse_read_options(self.options)
        return BucketReader(options, _columns(schema, self.schema()))

    def streamReader(self, schema: StructType) -> BucketStreamReader:
        """A read that follows the bucket."""
        options = parse_stream_options(self.options)
        return BucketStreamReader(options, _columns(schema, self.schema()))

    def writer(self, schema: StructType, overwrite: bool) -> BucketWriter:
        """A batch write."""
        return BucketWriter(self._write_options(overwrite), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> BucketStreamWriter:
        """A streaming write."""
        return BucketStreamWriter(self._write_options(overwrite), schema)

    def _write_options(self, overwrite: bool) -> WriteOptions:
        if overwrite:
            raise OptionError('streams are only ever appended to: write with mode("append")')
        return parse_write_options(self.options)


class BucketReader(DataSourceReader):
    """Reads what a bucket has up to one position."""

    def __init__(self, options: ReadOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """What each task reads; the position is taken here, once."""
        return tasks_of(self._options) or [Task("", -1, -1, [])]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The rows of a partition."""
        return read_task(self._options, partition, self._columns)


def _columns(asked: StructType, known: StructType) -> list[str]:
    types = {field.name: field.dataType for field in known.fields}
    for field in asked.fields:
        if field.name not in types:
            raise OptionError(f"there is no column {field.name}; there are {', '.join(types)}")
        if field.dataType != types[field.name]:
            wanted = types[field.name].simpleString()
            raise OptionError(f"the column {field.name} is a {wanted}, not a {field.dataType.simpleString()}")
    return list(asked.fieldNames())
