"""Buffers on Spark: the data source, the sink, pipelines. pyspark is imported only here."""
