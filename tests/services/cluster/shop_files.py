"""The files of a shop that runs on a Spark cluster: its app, and a module beside it that tasks import.

What it is: ``write_shop``; every stage of its views is a job on the executors, however few rows there are.
Not here: who runs it (``test_views_on_a_cluster.py``).
"""

from __future__ import annotations

from pathlib import Path

APP = '''
import headwater as hw
import prices
from headwater.views import thresholds
from headwater.views.spark import topic_scan

topic_scan.LOCAL_OFFSETS_MAX = 0  # what verify reads of a log on Kafka is read by executors
thresholds.LOCAL_ROWS_MAX = thresholds.TASK_ROWS_MAX = thresholds.SETTLED_ROWS_MAX = 0  # every stage is large

app = hw.App("shop", home={home!r}, **{settings!r}, spark={{
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
}})
users = app.table("users", "id BIGINT, country STRING", key="id")
orders = app.table("orders", "id BIGINT, user_id BIGINT, cents BIGINT", key="id")
clicks = app.topic("clicks", "user_id BIGINT, n BIGINT")
app.view(
    "revenue",
    """SELECT u.country, sum(o.cents) AS cents, count(*) AS orders
       FROM orders o JOIN users u ON o.user_id = u.id GROUP BY u.country""",
)
app.view("most_clicks", "SELECT user_id, max(n) AS n, count(*) AS clicks FROM clicks GROUP BY user_id")


@app.view_function(inputs=["orders"])
def taxed(orders):
    from pyspark.sql.functions import udf

    return orders.select("id", udf(prices.with_tax, "bigint")("cents").alias("cents"))
'''
PRICES = """
def with_tax(cents):
    import pyarrow  # the executors' own Python has none

    return None if cents is None else cents * 119 // 100
"""


def write_shop(folder: Path, **settings: str) -> Path:
    """The app's file, its home beside it; ``settings`` are other ones of the app."""
    folder.mkdir()
    (folder / "prices.py").write_text(PRICES)
    file = folder / "shop.py"
    file.write_text(APP.format(home=str(folder / "home"), settings=settings))
    return file
