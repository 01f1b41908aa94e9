"""The demo's example: what is told of it is what it declares."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

from headwater.demo.audit import COPIES, IN_THE_DATABASE
from headwater.demo.example import FIRST_MINUTES, QUIET_COUNTRY, example_file, furnish
from headwater.demo.headlines import SAYING
from headwater.testing.postgres_server import PostgresServer

ROOT = Path(__file__).parents[3]


def views() -> list[str]:
    return re.findall(r'app\.(?:view|searches)\(\s*"(\w+)"', example_file().read_text(encoding="utf-8"))


def test_every_view_has_a_headline_and_a_line_in_the_docs() -> None:
    page = (ROOT / "docs" / "demo.md").read_text(encoding="utf-8")

    assert sorted(SAYING) == sorted(views())
    assert [view for view in views() if f"| `{view}` |" not in page] == []
    assert {*IN_THE_DATABASE, *COPIES} <= set(views())


def test_the_first_minutes_have_orders_of_the_quiet_country_in_each() -> None:
    now = dt.datetime.now(dt.UTC)
    with PostgresServer() as server, server.connect() as connection:
        rows = furnish(connection, now)
        minutes = server.execute(
            "SELECT count(DISTINCT date_trunc('minute', o.at)), min(o.at), max(o.at) FROM orders o"
            " JOIN customers c ON c.id = o.customer_id WHERE c.country = %s",
            [QUIET_COUNTRY],
        )
        counted = sum(
            server.execute(f"SELECT count(*) FROM {table}")[0][0]
            for table in ("customers", "products", "stock", "prices", "orders", "payments")
        )

    assert rows == counted
    ((different, first, last),) = minutes
    assert different >= FIRST_MINUTES
    assert now - dt.timedelta(minutes=FIRST_MINUTES) < first < last < now
