"""Views over a log on Kafka: what the queries give, with corrections and deletions, exactly once whoever is killed."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.log.contract import EventTopic
from headwater.views import register
from headwater.views.spark.topic_scan import read_range
from tests.services.kafka_broker import KafkaBroker, eventually
from tests.services.kafka_view_runner import shop

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("HEADWATER_THOROUGH", "1"))


@pytest.fixture
def address(kafka: KafkaBroker) -> str:
    return f"kafka://{kafka.servers}?prefix={uuid.uuid4().hex[:8]}."


class Model:
    """What the tables and the topic hold, and what the views over them are: in Python."""

    def __init__(self, app: hw.App, seed: int) -> None:
        self.users, self.orders, self.clicks = app.get_table("users"), app.get_table("orders"), app.get_topic("clicks")
        self.random = random.Random(seed)
        self.country: dict[int, str] = {}
        self.order: dict[int, tuple[int, int]] = {}
        self.clicked: list[tuple[int, str]] = []

    def change(self) -> hw.Token:
        """A few changes of each kind."""
        draw = self.random
        moved = {draw.randrange(6): draw.choice(["DE", "AT", "FR"]) for _ in range(2)}
        self.country |= moved
        self.users.upsert([{"id": n, "country": country} for n, country in moved.items()])
        placed = {draw.randrange(40): (draw.randrange(6), draw.randrange(100)) for _ in range(8)}
        self.order |= placed
        self.orders.upsert([{"id": n, "user_id": u, "amount": a} for n, (u, a) in placed.items()])
        gone = draw.sample(sorted(self.order), 2)
        for n in gone:
            del self.order[n]
        self.orders.delete([{"id": n} for n in gone])
        came = [(draw.randrange(6), f"p{draw.randrange(3)}") for _ in range(draw.choice([1, 1500]))]
        self.clicked += came
        return self.clicks.append([{"user_id": user, "page": page} for user, page in came])

    def views(self) -> dict[str, Counter[tuple[Any, ...]]]:
        sums: dict[str, list[int]] = {}
        for user, amount in self.order.values():
            if user in self.country:
                found = sums.setdefault(self.country[user], [0, 0])
                found[0], found[1] = found[0] + amount, found[1] + 1
        return {
            "revenue": Counter((country, *found) for country, found in sums.items()),
            "pages": Counter(Counter(page for _, page in self.clicked).items()),
            "clicked": Counter((page, self.country[user]) for user, page in self.clicked if user in self.country),
        }


def shown(app: hw.App) -> dict[str, Counter[tuple[Any, ...]]]:
    return {
        view.name: Counter(tuple(row.values()) for row in view.to_arrow().to_pylist())
        for view in (app.get_view(name) for name in ("revenue", "pages", "clicked"))
    }


def test_the_readmes_app_runs_unchanged(address: str, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    moved = code.replace('home="./shop-data")', f"home={str(tmp_path)!r}, log={address!r})")
    assert moved != code

    found: dict[str, Any] = {}
    exec(moved, found)

    app = found["app"]
    assert found["revenue"].get("DE") == []
    assert all(not each.missing_count and not each.surplus_count for each in app.verify())
    app.close()


def test_views_are_what_the_model_says_after_each_tick_and_after_the_broker_was_away(
    kafka: KafkaBroker, address: str, tmp_path: Path
) -> None:
    app = shop(str(tmp_path), address)
    model = Model(app, seed=1)

    for _ in range(4):
        model.change()
        report = app.tick()
        assert shown(app) == model.views()
    assert report.rows_in < 2000  # rows, and not offsets: markers of transactions are none
    assert app.tick().moved is False

    assert all(not each.missing_count and not each.surplus_count for each in app.verify())
    spark, clicks = app._runtime.spark, app.get_topic("clicks")
    exact = read_range(spark, clicks, clicks.start_offsets(), clicks.end_offsets())
    register(spark)
    frame = spark.read.format("headwater").option("home", address).option("topic", "clicks").load()
    pages = {row["page"]: row["count"] for row in frame.groupBy("page").count().collect()}
    assert (exact.count(), pages) == (len(model.clicked), dict(Counter(page for _, page in model.clicked)))

    app.start()
    kafka.kill()
    kafka.start()
    last = model.change()
    eventually(lambda: _covers(app, last), "a tick after the broker came back")
    app.stop()
    assert shown(app) == model.views()
    app.close()


def test_killed_anywhere_the_views_go_on_exactly_once(address: str, tmp_path: Path) -> None:
    app = shop(str(tmp_path / "writer"), address)
    model, home = Model(app, seed=2), str(tmp_path / "home")
    model.change()

    for kill in range(KILLS + 1):
        with subprocess.Popen(
            [sys.executable, "-m", "tests.services.kafka_view_runner", home, address],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        ) as running:
            assert running.stdout is not None
            assert running.stdout.readline().startswith("tick")
            for _ in range(model.random.randrange(1, 4)):
                model.change()  # ticks follow while we write; the kill comes in the middle of one, or between two
            if kill == KILLS:
                last = model.change()
                reader = shop(home, address)
                eventually(lambda reader=reader, last=last: _covers(reader, last), "the last tick")
                reader.close()
            running.send_signal(signal.SIGKILL)

    checked = shop(home, address)
    checked.tick()
    assert shown(checked) == model.views()
    assert all(not each.missing_count and not each.surplus_count for each in checked.verify())
    assert replayed(checked.get_topic("page_changes")) == model.views()["pages"]
    checked.close()
    app.close()


def replayed(topic: EventTopic) -> Counter[tuple[Any, ...]]:
    """The view that its changes give; no tick is there twice, and none is half."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in topic.rows():
        if row["change"] == "reset":
            found.clear()
            continue
        found[row["page"], row["clicks"]] += 1 if row["change"] == "insert" else -1
        assert found[row["page"], row["clicks"]] in (0, 1)
    return +found


def _covers(app: hw.App, token: hw.Token) -> bool:
    frontier = app._runtime.manifests.current().frontier
    return all(
        frontier.get(topic, {}).get(number, 0) >= offset
        for topic, of in token.frontier.items()
        for number, offset in of.items()
    )
