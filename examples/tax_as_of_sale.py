"""Tax as of the sale: each order is taxed where its buyer lived then, at the rate of that day.

What it is: two joins AS OF the order's time, and sums over them. Buyers move and rates change; what was sold before
stays as it was. A move that is told late, or a rate that is corrected, corrects the orders between it and the next.
Invariants: running this file declares, and starts nothing; its home is TAX_HOME, else ``./tax-data``.
Not here: appending. Any process does that: see ``docs/joins.md``.
Read next: ``headwater plan examples/tax_as_of_sale.py``, then ``docs/joins.md``.
"""

import os

import headwater as hw

app = hw.App("tax", home=os.environ.get("TAX_HOME", "./tax-data"))

orders = app.topic(
    "orders", "order_id BIGINT, buyer_id BIGINT, amount DECIMAL(10,2), at TIMESTAMP", key="order_id", event_time="at"
)
buyers = app.table("buyers", "id BIGINT, country STRING, since TIMESTAMP", key="id", event_time="since")
rates = app.table("rates", "country STRING, percent DECIMAL(5,2), since DATE", key="country", event_time="since")

app.view(
    "taxed",
    """
    SELECT o.order_id, CAST(o.at AS DATE) AS day, b.country, o.amount,
           CAST(o.amount * r.percent / 100 AS DECIMAL(10,2)) AS tax
    FROM orders o
    JOIN buyers FOR SYSTEM_TIME AS OF o.at AS b ON b.id = o.buyer_id
    JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON r.country = b.country
    """,
)
app.view(
    "tax_by_day",
    """
    SELECT country, day, sum(amount) AS amount, sum(tax) AS tax, count(*) AS orders
    FROM taxed GROUP BY country, day
    """,
)
app.view(
    "untaxed",  # nobody knows where the buyer lived, or what the rate was
    """
    SELECT o.order_id, o.buyer_id, b.country
    FROM orders o
    LEFT JOIN buyers FOR SYSTEM_TIME AS OF o.at AS b ON b.id = o.buyer_id
    LEFT JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON r.country = b.country
    WHERE r.country IS NULL
    """,
)

if __name__ == "__main__":
    app.run()
