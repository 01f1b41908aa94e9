"""The app that the server's tests serve: small, without Spark until an engine runs it."""

import os

import headwater as hw

app = hw.App("shop", home=os.environ["SERVED_SHOP_HOME"], spark={"spark.master": "local[2]"})

orders = app.topic("orders", "order_id BIGINT, country STRING, amount BIGINT", key="order_id", partitions=2)
clicks = app.topic("clicks", "url STRING, at TIMESTAMP, price DECIMAL(10,2)", partitions=2)
basket = app.table("basket", "fruit STRING")
app.view("revenue", "SELECT country, sum(amount) AS total FROM orders GROUP BY country")
app.view("large", "SELECT order_id, country FROM orders", serve=False)
app.sink("revenue", hw.sinks.Search(f"{app.home}/../index", text=["country"]))
