"""Sinks of a whole app, with Spark: led along by ``run`` in a process that is killed, and by ``tick``.

What it is: one app, four views, six sinks, one of which nobody answers.
Invariants: after ``kill -9`` and a restart every sink that answers holds what its view holds; the dead one delays none.
Not here: what one sink does (``test_conformance.py``).
Read next: ``app_with_sinks.py``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

import headwater as hw
from headwater.sinks.runner.sink_status import SinkState
from tests.app_process import running
from tests.crash.ledger import many
from tests.crash.view_shop import Shop, bag
from tests.services.sinks.app_with_sinks import declare
from tests.services.sinks.places import Servers
from tests.spark.conftest import spark
from tests.waiting import eventually

__all__ = ["spark"]
ROOT = Path(__file__).parents[3]
LIVING = ("revenue.postgres", "revenue.sqlite", "first_orders.sqlite", "pages.redis", "pages.kafka")


def contents(home: Path, servers: Servers) -> dict[str, Counter[Any]]:
    """What each of the living sinks holds."""
    with psycopg.connect(servers.postgres.dsn) as db:
        revenue = Counter(db.execute("SELECT country, revenue, orders FROM shop.revenue").fetchall())
    with sqlite3.connect(home / "copy.db") as file:
        copy = Counter(file.execute("SELECT country, revenue, orders FROM revenue").fetchall())
        orders = Counter(file.execute("SELECT id, least FROM first_orders").fetchall())
    with redis.Redis.from_url(servers.redis.url) as client:
        pages = [client.hgetall(key) for key in client.scan_iter("pages:*")]
    clicks = Counter((page[b"page"].decode(), int(page[b"clicks"])) for page in pages)
    records = [json.loads(row) for row in servers.kafka.latest("pages").values()]
    messages = Counter((page["page"], page["clicks"]) for page in records)
    return dict(zip(LIVING, (revenue, copy, orders, clicks, messages), strict=True))


def judge(app: hw.App, shop: Shop, home: Path, servers: Servers) -> None:
    expected = shop.expected()
    assert contents(home, servers) == {name: expected[name.split(".")[0]] for name in LIVING}
    statuses = {name: app.get_sink(name).status() for name in LIVING}
    assert {name: (status.state, status.lag.ticks) for name, status in statuses.items()} == dict.fromkeys(
        LIVING, (SinkState.FOLLOWING, 0)
    )


@pytest.mark.timeout(600)  # minutes where other work takes the cores
@pytest.mark.usefixtures("spark")
def test_sinks_are_right_after_the_process_that_led_them_was_killed(tmp_path: Path, servers: Servers) -> None:
    home, chance = tmp_path / "home", random.Random(5)
    with declare(home, servers.postgres.dsn, servers.redis.url, servers.kafka.servers) as app:
        shop = Shop(5)
        for _ in range(many(1)):
            shop.trade(app)
            with running(
                "tests.services.sinks.app_with_sinks",
                home,
                servers.postgres.dsn,
                servers.redis.url,
                servers.kafka.servers,
                stderr=subprocess.DEVNULL,
            ) as child:
                assert child.stdout is not None
                for _ in range(4):
                    assert child.stdout.readline().startswith("tick"), "the app ended by itself"
                    shop.trade(app)
                eventually(lambda: all(app.get_sink(name).status().tick > 0 for name in LIVING), "each is begun")
                shop.trade(app)
                time.sleep(chance.uniform(0, 0.3))  # the random moment itself, nothing waits for it
                os.killpg(child.pid, signal.SIGKILL)
                assert child.wait() == -signal.SIGKILL
        before = [app.get_sink(name).status() for name in LIVING]
        shop.trade(app)
        app.tick()
        judge(app, shop, home, servers)

        assert [status.tick > 0 for status in before] == [True] * len(LIVING), "the killed process brought nothing"
        dead = app.get_sink("pages.webhook").status()
        assert (dead.state, dead.tick, dead.lag.ticks) == (
            SinkState.RETRYING,
            0,
            app.get_sink("revenue.sqlite").status().tick,
        )
        assert dead.lag.changes is None or dead.lag.changes > 0

        ticked = app.tick(sinks=False).tick
        app.start()
        app._runtime.covering(shop.trade(app), 120)
        deadline = time.monotonic() + 60
        while any(app.get_sink(name).status().lag.ticks for name in LIVING) and time.monotonic() < deadline:
            time.sleep(0.02)  # until the threads have brought it; the judging below decides
        app.stop()
        judge(app, shop, home, servers)
        assert app.get_sink("pages.redis").status().tick > ticked


@pytest.mark.usefixtures("spark")
def test_a_view_that_is_redeclared_fills_its_sink_with_its_own_columns(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy.db"

    def app_with(query: str) -> hw.App:
        app = hw.App("shop", home=home)
        app.table("users", "id BIGINT, country STRING", key="id")
        app.view("countries", query, serve=False)
        app.sink("countries", hw.sinks.SQLite(copy), name="copy")
        return app

    with app_with("SELECT country, count(*) AS users FROM users GROUP BY country") as app:
        app.get_table("users").upsert(
            [{"id": 1, "country": "DE"}, {"id": 2, "country": "DE"}, {"id": 3, "country": None}]
        )
        app.tick()
        first = rows_of(copy)
    with app_with("SELECT country, count(*) AS users, max(id) AS last FROM users GROUP BY country") as app:
        app.tick()
        second = rows_of(copy)
        app.get_table("users").delete([{"id": 2}])
        app.tick()
        third, held = rows_of(copy), bag(app.sql("SELECT * FROM countries"))

    assert first == {("DE", 2), (None, 1)}
    assert second == {("DE", 2, 2), (None, 1, 3)}
    assert third == {("DE", 1, 1), (None, 1, 3)} == set(held)


def rows_of(path: Path) -> set[tuple[Any, ...]]:
    with sqlite3.connect(path) as db:
        return set(db.execute("SELECT * FROM countries").fetchall())
