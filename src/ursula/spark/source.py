"""The data source "ursula": reads a bucket, follows it, writes to it."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from .options import OptionError
from .reads.batch_reader import BucketReader
from .reads.options import parse_read_options, parse_shared_options, parse_stream_options
from .reads.rows import schema_of
from .reads.stream_reader import BucketStreamReader
from .writes.options import WriteOptions, parse_write_options
from .writes.writers import BucketStreamWriter, BucketWriter


class UrsulaSource(DataSource):
    """A bucket as a table."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ursula"

    def schema(self) -> StructType:
        """All columns. A reader with a schema of its own asks for some of them."""
        return from_arrow_schema(schema_of(parse_shared_options(self.options)))

    def reader(self, schema: StructType) -> BucketReader:
        """A batch read."""
        options = parse_read_options(self.options)
        return BucketReader(options, _columns(schema, self.schema()))

    def streamReader(self, schema: StructType) -> BucketStreamReader:
        """A streaming read."""
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
            raise OptionError('streams can only be appended to: write with mode("append")')
        return parse_write_options(self.options)


def _columns(asked: StructType, known: StructType) -> list[str]:
    types = {field.name: field.dataType for field in known.fields}
    for field in asked.fields:
        if field.name not in types:
            raise OptionError(f"there is no column {field.name}; there are {', '.join(types)}")
        if field.dataType != types[field.name]:
            wanted = types[field.name].simpleString()
            raise OptionError(f"the column {field.name} is a {wanted}, not a {field.dataType.simpleString()}")
    return list(asked.fieldNames())
