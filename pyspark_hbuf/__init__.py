"""Found by Spark itself: it looks for a `DefaultSource` in every package whose name starts with `pyspark_`."""

from hbuf.spark.source import HbufSource as DefaultSource

__all__ = ["DefaultSource"]
