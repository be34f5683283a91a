"""`format("hbuf")`: what Spark asks for, and who answers. It decides nothing itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from hbuf.spark.sink import HbufStreamWriter, HbufWriter


class HbufSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "hbuf"

    def writer(self, schema: StructType, overwrite: bool) -> HbufWriter:
        from hbuf.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> HbufStreamWriter:  # noqa: N802
        from hbuf.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
