"""What each customer has paid, from the pipeline's last buffer."""

from pathlib import Path

from pyspark.sql.functions import expr, from_json

from hbuf.spark.session import local_session

named = Path(__file__).with_name("buffers") / "named"
spark = local_session("shop report")
messages = spark.read.format("hbuf").option("columns", "key,body").load(str(named))
orders = messages.select("key", from_json(messages.body.cast("string"), "name string, total int").alias("order"))
orders.groupBy("key", "order.name").agg(expr("sum(order.total) as paid")).orderBy("key").show()
spark.stop()
