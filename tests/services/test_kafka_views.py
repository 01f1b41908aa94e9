"""Views over a log on Kafka: what the queries give, with corrections and deletions, exactly once whoever is killed."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sqlite3
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import Fenced, HeadwaterError, OffsetOutOfRange, UnknownTopic
from headwater.log.contract import EventTopic
from headwater.log.event_time.watermarks import Watermark
from headwater.views import register
from headwater.views.event_time import tick_times
from headwater.views.event_time.progress import EventTimeProgress
from headwater.views.event_time.range_progress import progress_by_spark
from headwater.views.event_time.tick_times import TickTimes
from headwater.views.spark.topic_scan import read_range
from headwater.views.state.remote import store_manifests
from headwater.views.state.remote.store_manifests import StoreManifests
from headwater.views.tick import engine
from tests.app_process import running
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_view_runner import shop
from tests.services.sinks.receiver import Receiver
from tests.waiting import eventually

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

    seen = app.log.topic("seen", "at TIMESTAMP, n INT", event_time="at", partitions=2)
    seen.append([{"at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n % 7), "n": n} for n in range(50)])
    seen.append([{"at": datetime(2026, 1, 2, tzinfo=UTC), "n": 2}], producer="a", sequence=1)
    whole = dict.fromkeys(seen.end_offsets(), 0), seen.end_offsets()
    assert progress_by_spark(spark, seen, *whole) == seen.progress(*whole)
    # Tasks that read the rows for views tell of their times: nobody asks for them again.
    times = TickTimes(
        spark, EventTimeProgress(), [seen], *({"seen": each} for each in whole), by_tasks={"seen"}, needed=False
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tick_times, "progress_by_spark", None)
        assert read_range(spark, seen, *whole, ["n"], by_workers=True).count() == 51
        reached = times.after({}, {})
    assert reached.topics["seen"] == Watermark().moved(
        seen.progress(*whole), now_us=reached.now_us, settings=seen.settings
    )

    app.start()
    kafka.kill()
    kafka.start()
    last = model.change()
    eventually(lambda: _covers(app, last), "a tick after the broker came back")
    app.stop()
    assert shown(app) == model.views()
    app.close()


def test_a_view_stops_at_rows_that_kafka_dropped_until_they_are_given_up_and_at_a_topic_that_is_gone(
    kafka: KafkaBroker, address: str, tmp_path: Path
) -> None:
    app = hw.App("dropped", home=str(tmp_path), log=address)
    clicks, name = app.topic("clicks", "page STRING"), f"{address.partition('prefix=')[2]}clicks"
    app.view("pages", "SELECT page, count(*) AS clicks FROM clicks GROUP BY page")
    clicks.append([{"page": "home"}])
    app.tick()
    for page in ("cart", "cart", "paid"):
        start = clicks.end_offset(0)
        clicks.append([{"page": page}])
    app.close()

    kafka.drop_before(name, start)
    app = hw.App("dropped", home=str(tmp_path), log=address)
    app.topic("clicks", "page STRING")
    pages = app.view("pages", "SELECT page, count(*) AS clicks FROM clicks GROUP BY page")
    with pytest.raises(OffsetOutOfRange, match=r'of topic "clicks" has overtaken app "dropped"') as dropped:
        app.tick()
    stopped = list(pages.rows())
    app.tick(accept_loss=True)
    kafka.delete(name)
    eventually(lambda: not kafka.exists(name), "the topic is gone")
    eventually(lambda: isinstance(_error_of(app.tick), UnknownTopic), "the tick says so")

    assert "--accept-loss" in str(dropped.value.hint)
    assert stopped == [{"page": "home", "clicks": 1}]
    assert {row["page"]: row["clicks"] for row in pages.rows()} == {"home": 1, "paid": 1}
    app.close()


def _error_of(call: Callable[[], Any]) -> HeadwaterError | None:
    try:
        call()
    except HeadwaterError as error:
        return error
    return None


def test_killed_anywhere_the_views_go_on_exactly_once(address: str, tmp_path: Path) -> None:
    app = shop(str(tmp_path / "writer"), address)
    model, home = Model(app, seed=2), str(tmp_path / "home")
    model.change()

    for kill in range(KILLS + 1):
        with running("tests.services.kafka_view_runner", home, address) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("tick")
            for _ in range(model.random.randrange(1, 4)):
                model.change()  # ticks follow while we write; the kill comes in the middle of one, or between two
            if kill == KILLS:
                last = model.change()
                reader = shop(home, address)
                eventually(lambda reader=reader, last=last: _covers(reader, last), "the last tick")
                reader.close()
            process.send_signal(signal.SIGKILL)

    checked = shop(home, address)
    checked.tick()
    assert shown(checked) == model.views()
    assert all(not each.missing_count and not each.surplus_count for each in checked.verify())
    assert replayed(checked.get_topic("page_changes")) == model.views()["pages"]
    checked.close()
    app.close()


def test_a_zombie_that_wakes_after_take_over_and_after_garbage_collection_changes_nothing(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_manifests, "CHECKPOINT_COMMITS", 2)
    monkeypatch.setattr(engine, "TICKS_KEPT", 3)
    receiver = Receiver("s3cret")
    with ExitStack() as stack:
        stack.callback(receiver.stop)

        def machine(name: str) -> hw.App:
            app = shop(str(tmp_path / name), address, f"file://{tmp_path}/state")
            app.sink("revenue", hw.sinks.SQLite(tmp_path / "copy.db"))
            app.sink("pages", hw.sinks.Webhook(receiver.url, secret=receiver.secret))
            return stack.enter_context(app)

        zombie, other = machine("one"), machine("two")
        model = Model(zombie, seed=4)
        model.change()
        zombie.tick()
        model.change()
        zombie.tick(sinks=False)  # its sinks stall too, behind a tick that they have not delivered
        manifests = zombie._runtime.manifests
        assert isinstance(manifests, StoreManifests)
        append, commits = manifests.commits.append, manifests.commits.store.list

        def stalled(*given: Any, **more: Any) -> Any:
            """It stops just before its commit; meanwhile another machine takes over, ticks and collects."""
            before = {found.name for found in commits("commits/")}
            for _ in range(8):
                model.change()
                other.tick()
            other._runtime.engine.store._merger.submit(lambda: None).result()  # what runs beside the ticks is done
            assert before.isdisjoint(found.name for found in commits("commits/")), "all that it knew was collected"
            return append(*given, **more)

        monkeypatch.setattr(manifests.commits, "append", stalled)
        model.change()
        with pytest.raises(Fenced, match="another process runs app"):
            zombie.tick()
        monkeypatch.undo()

        with pytest.raises(Fenced):
            zombie.tick()
        zombie.sync_sinks()  # they wake up, and find that what they wanted to deliver was delivered
        model.change()
        other.tick(sinks=False)
        manifests.follow()
        stopped = {(str(status.state), (status.error or {}).get("code")) for status in zombie.sync_sinks()}
        assert stopped == {("stopped", "fenced")}, "a tick that nobody has delivered is not theirs to deliver"
        other.sync_sinks()

        assert shown(other) == model.views()
        assert all(not each.missing_count and not each.surplus_count for each in other.verify())
        with sqlite3.connect(tmp_path / "copy.db") as db:
            copied = Counter(db.execute("SELECT country, revenue, orders FROM revenue"))
        assert copied == model.views()["revenue"]
        received = {tuple(json.loads(row).values()): count for row, count in receiver.rows.items() if count}
        assert received == model.views()["pages"]
        assert set(receiver.seen.values()) == {1}, "nothing was sent twice"
        assert [each["change"] for each in receiver.requests].count("reset") == 1, "the other one goes on"


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
