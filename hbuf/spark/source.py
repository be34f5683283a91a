"""`format("hbuf")`: what Spark asks for, and who answers. It decides nothing itself."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class HbufSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "hbuf"
