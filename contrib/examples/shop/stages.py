"""What the stages of shop.toml do: functions from DataFrames to a DataFrame of messages."""

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, expr, get_json_object


def parse(orders: DataFrame) -> DataFrame:
    """Orders that name a customer, who becomes their key."""
    customer = get_json_object(col("body").cast("string"), "$.customer")
    return orders.select(customer.alias("key"), "body").where("key is not null")


def name(parsed: DataFrame, customers: DataFrame) -> DataFrame:
    """Orders with the name that their customer has now; without one if nobody knows the customer."""
    names = customers.groupBy("key").agg(expr("get_json_object(max_by(string(body), seq), '$.name') as name"))
    totals = parsed.selectExpr("key", "int(get_json_object(string(body), '$.total')) as total")
    return totals.join(names, "key", "left").selectExpr("key", "to_json(struct(name, total)) as body")
