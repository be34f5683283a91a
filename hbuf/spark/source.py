"""`format("hbuf")`: what Spark asks for, and who answers. It decides nothing itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from hbuf.errors import UsageError
from hbuf.spark.options import TYPES, parse_read_options
from hbuf.spark.telling import telling

if TYPE_CHECKING:
    from hbuf.spark.sink import HbufStreamWriter, HbufWriter


class HbufSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "hbuf"

    @telling()
    def schema(self) -> str:
        return parse_read_options(self.options).ddl

    @telling()
    def reader(self, schema: StructType) -> DataSourceReader:
        from hbuf.spark.batch import reader_class

        options = parse_read_options(self.options)
        return reader_class(options)(_columns(schema), options)

    @telling()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        from hbuf.spark.stream import StreamReader

        return StreamReader(_columns(schema), parse_read_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> HbufWriter:
        from hbuf.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> HbufStreamWriter:  # noqa: N802
        from hbuf.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


def _columns(schema: StructType) -> list[str]:
    """The columns of a schema, which may be one that the user gave: some of ours, in any order."""
    for field in schema.fields:
        if TYPES.get(field.name) != field.dataType.simpleString():
            known = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
            raise UsageError(
                f"there is no column '{field.name} {field.dataType.simpleString()}'", hint=f"there are {known}"
            )
    return [field.name for field in schema.fields]
