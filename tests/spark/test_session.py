from pyspark.sql import SparkSession


def test_a_session_counts(spark: SparkSession) -> None:
    assert spark.range(10).count() == 10
