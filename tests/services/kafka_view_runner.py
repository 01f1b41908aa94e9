"""A process that runs views over a log on Kafka until somebody kills it.

What it is: ``python -m tests.services.kafka_view_runner HOME ADDRESS``: the app of ``shop``, a line for each tick.
Invariants: a line is written after the tick was committed.
Not here: the killing (``test_kafka_views.py``).
Read next: ``test_kafka_views.py``.
"""

from __future__ import annotations

import sys

import headwater as hw
from headwater.views.spark import own_process
from headwater.views.tick.reports import TickReport


def shop(home: str, address: str, state: str | None = None) -> hw.App:
    """Orders that change and go, clicks that only come, views over both, and one of them as a topic."""
    app = hw.App("shop", home=home, log=address, state=state)
    app.table("users", "id BIGINT, country STRING", key="id")
    app.table("orders", "id BIGINT, user_id BIGINT, amount BIGINT", key="id", partitions=2)
    app.topic("clicks", "user_id BIGINT, page STRING", partitions=2)
    app.view(
        "revenue",
        """SELECT u.country, sum(o.amount) AS revenue, count(*) AS orders
           FROM orders o JOIN users u ON o.user_id = u.id GROUP BY u.country""",
    )
    app.view("pages", "SELECT page, count(*) AS clicks FROM clicks GROUP BY page")
    app.view("clicked", "SELECT c.page, u.country FROM clicks c JOIN users u ON c.user_id = u.id")
    app.sink("pages", hw.sinks.Topic("page_changes"))
    return app


def tell(report: TickReport) -> None:
    sys.stdout.write(f"tick {report.tick}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    own_process.claim()
    shop(sys.argv[1], sys.argv[2]).run(on_tick=tell)
