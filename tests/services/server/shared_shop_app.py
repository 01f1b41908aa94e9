"""The app that several machines run by turns: its log is on Kafka, its state on a store, and its home a folder."""

import os

import headwater as hw

app = hw.App(
    "shop",
    home=os.environ["SHARED_SHOP_HOME"],
    log=os.environ["SHARED_SHOP_LOG"],
    state=os.environ["SHARED_SHOP_STATE"],
    serve=os.environ["SHARED_SHOP_SERVE"],
    spark={"spark.master": "local[2]"},
)

app.table("orders", "order_id BIGINT, country STRING, amount BIGINT", key="order_id", partitions=2)
app.topic("clicks", "url STRING", partitions=2)
app.view("revenue", "SELECT country, sum(amount) AS total FROM orders GROUP BY country")
app.view("pages", "SELECT url, count(*) AS clicks FROM clicks GROUP BY url")
app.sink("revenue", hw.sinks.SQLite(os.environ["SHARED_SHOP_SINK"]))
