"""Views and queries that name the metadata columns of a topic.

What it is: who wrote which rows, through appends, upserts, deletes, sealing, compaction, restarts and rebuilds.
Invariants: after every tick the views are what plain Python makes of the appends, and what ``verify`` makes of the log.
Not here: which texts are written out how (``tests/compiler/test_metadata_columns.py``).
Read next: ``src/headwater/views/compiler/frontend/metadata_columns.py``.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

import headwater as hw
from headwater.errors import InvalidQuery, InvalidView
from headwater.log.home import Log
from headwater.log.maintenance.compaction import compact_partition
from headwater.log.maintenance.sealing import seal_partition
from headwater.testing import ManualClock
from headwater.views import thresholds
from headwater.views.lifecycle.views_check import with_views
from tests.spark.test_views_equal_batch import WAYS
from tests.spark.timed_model import moment

pytestmark = pytest.mark.usefixtures("spark")

ACTORS = ("anna", "bob", None)


def said(actor: str | None, basket: str | None = None) -> hw.Metadata:
    return hw.Metadata(actor=actor, correlation_id=basket)


@pytest.fixture
def opened(tmp_path):
    apps = []

    def open_app() -> hw.App:
        for app in apps:
            app.close()
        app = hw.App("shop", home=tmp_path / "home")
        app._log = Log(tmp_path / "home", clock=ManualClock(), maintenance_interval=None)
        apps.append(app)
        return app

    yield open_app
    apps[-1].close()


def rows(app: hw.App, view: str) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in app.get_view(view).rows())


def test_a_view_counts_by_actor_what_was_appended(opened):
    app = opened()
    orders = app.topic("orders", "order_id BIGINT, item STRING", partitions=3)
    app.view("by_actor", "SELECT _actor, count(*) AS n FROM orders GROUP BY _actor")
    app.view("plain", "SELECT * FROM orders")
    app.view("annas", "SELECT *, o._correlation_id AS basket FROM orders o WHERE o._actor = 'anna'")

    for number in range(12):
        orders.append([{"order_id": number, "item": "cup"}], metadata=said(ACTORS[number % 3], f"b{number}"))
        if number % 4 == 3:
            app.tick()

    assert rows(app, "by_actor") == {("anna", 4): 1, ("bob", 4): 1, (None, 4): 1}
    assert rows(app, "plain") == {(number, "cup"): 1 for number in range(12)}
    assert rows(app, "annas") == {(number, "cup", f"b{number}"): 1 for number in range(0, 12, 3)}
    assert all(found.equal for found in app.verify())


def test_a_keyed_row_has_the_metadata_of_its_last_upsert(opened):
    app = opened()
    stock = app.table("stock", "item STRING, amount BIGINT", key="item")
    app.view("last", "SELECT item, amount, _actor, _offset AS at FROM stock")
    app.view("by_actor", "SELECT _actor, sum(amount) AS amount FROM stock GROUP BY _actor")
    app.view("plain", "SELECT item, amount FROM stock")

    stock.upsert([{"item": "cup", "amount": 1}, {"item": "pot", "amount": 5}], metadata=said("anna"))
    app.tick()
    stock.upsert([{"item": "cup", "amount": 1}], metadata=said("bob"))  # the same row, by another
    report = app.tick()

    assert rows(app, "last") == {("cup", 1, "bob", 2): 1, ("pot", 5, "anna", 1): 1}
    assert rows(app, "by_actor") == {("anna", 5): 1, ("bob", 1): 1}
    assert report.rows_in == 1
    stock.delete([{"item": "cup"}], metadata=said("carl"))
    app.tick()
    assert rows(app, "last") == {("pot", 5, "anna", 1): 1}
    assert rows(app, "plain") == {("pot", 5): 1}
    assert all(found.equal for found in app.verify())


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_random_writers_restarts_sealing_and_compaction_change_nothing(opened, way, monkeypatch):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(thresholds, name, value)
    chance = random.Random(way)
    latest: dict[int, tuple[str | None, str]] = {}
    events: list[tuple[int, str | None]] = []

    def declared() -> tuple[hw.App, hw.Table, hw.Topic]:
        app = opened()
        users = app.table("users", "id BIGINT, country STRING", key="id", compact=True, partitions=2)
        clicks = app.topic("clicks", "user_id BIGINT", partitions=2)
        app.view("editors", "SELECT country, _actor, count(*) AS n FROM users GROUP BY country, _actor")
        app.view(
            "seen",
            """SELECT u._actor AS editor, c._actor AS clicker, count(*) AS n
               FROM clicks c JOIN users u ON c.user_id = u.id GROUP BY u._actor, c._actor""",
        )
        return app, users, clicks

    for turn in range(3):
        app, users, clicks = declared()
        for _ in range(6):
            ids, actor = chance.sample(range(8), 3), chance.choice(ACTORS)
            country = chance.choice(["DE", "AT"])
            users.upsert([{"id": number, "country": country} for number in ids], metadata=said(actor))
            latest |= dict.fromkeys(ids, (actor, country))
            gone = chance.choice(ids)
            users.delete([{"id": gone}], metadata=said("deleter"))
            del latest[gone]
            clicker = chance.choice(ACTORS)
            clicks.append([{"user_id": number} for number in range(8)], metadata=said(clicker))
            events += [(number, clicker) for number in range(8)]
        if turn % 2:
            app.tick()
        for number in range(2):
            seal_partition(app.log.get_topic("clicks"), number)
            compact_partition(app.log.get_topic("users"), number, force=True)
        app.tick()

        editors = Counter((country, actor) for actor, country in latest.values())
        seen = Counter((latest[number][0], clicker) for number, clicker in events if number in latest)
        assert rows(app, "editors") == {(*group, n): 1 for group, n in editors.items()}
        assert rows(app, "seen") == {(*group, n): 1 for group, n in seen.items()}
        assert all(found.equal for found in app.verify())
    assert app.rebuild("seen").changes == {"seen": 0}


def test_a_query_names_them_too_and_a_star_does_not_show_them(opened):
    app = opened()
    orders = app.topic("orders", "order_id BIGINT")
    users = app.table("users", "id BIGINT", key="id")
    orders.append([{"order_id": 1}], metadata=said("anna"))
    orders.append([{"order_id": 2}])
    users.upsert([{"id": 1}], metadata=said("bob"))

    counted = app.sql("SELECT _actor, count(*) AS n FROM orders GROUP BY _actor ORDER BY _actor")
    assert counted.to_pylist() == [{"_actor": None, "n": 1}, {"_actor": "anna", "n": 1}]
    assert app.sql("SELECT * FROM orders WHERE _actor IS NULL").to_pylist() == [{"order_id": 2}]
    assert app.sql("SELECT * FROM orders").column_names == ["order_id"]
    assert app.sql("SELECT id, _actor FROM users").to_pylist() == [{"id": 1, "_actor": "bob"}]
    with pytest.raises(InvalidQuery, match='_actor may be that of "orders" or "users"'):
        app.sql("SELECT _actor FROM orders JOIN users ON order_id = id")


def test_a_timed_view_judges_rows_with_their_metadata(opened):
    app = opened()
    clicks = app.topic("clicks", "id BIGINT, at TIMESTAMP", event_time="at")
    app.view(
        "minutes",
        "SELECT window.start AS minute, _actor, count(*) AS n FROM clicks GROUP BY window(at, '1 minute'), _actor",
        late="drop",
    )
    clicks.append([{"id": 1, "at": moment(10)}], metadata=said("anna"))
    clicks.append([{"id": 2, "at": moment(200)}], metadata=said("bob"))
    app.tick()
    clicks.append([{"id": 3, "at": moment(11)}], metadata=said("anna"))
    clicks.append([{"id": 4, "at": moment(201)}], metadata=said("anna"))
    app.tick()

    found = Counter((row["_actor"], row["n"]) for row in app.get_view("minutes").rows())
    assert found == {("anna", 1): 2, ("bob", 1): 1}
    assert [row["id"] for row in app.log.get_topic("minutes.late").rows()] == [3]
    assert all(found.equal for found in app.verify())


def test_a_table_without_a_key_has_no_metadata_for_views(opened):
    app = opened()
    app.table("bag", "x BIGINT")

    with pytest.raises(InvalidView, match="_actor"):
        app.view("v", "SELECT _actor AS a, x FROM bag")


def test_the_columns_of_a_place_need_another_name_in_a_view(opened):
    app = opened()
    app.topic("orders", "order_id BIGINT")

    with pytest.raises(InvalidView, match='the column name "_offset" begins with an underscore') as refused:
        app.view("v", "SELECT order_id, _offset FROM orders")
    assert "$" not in str(refused.value)


def test_a_view_that_comes_later_is_filled_from_the_log_and_everything_checks(opened):
    app = opened()
    stock = app.table("stock", "item STRING, amount BIGINT", key="item")
    orders = app.topic("orders", "order_id BIGINT, item STRING", retention="30 days")
    plain = "SELECT item, count(*) AS n FROM orders GROUP BY item"
    app.view("plain", plain)
    app.view("amounts", "SELECT * FROM stock")
    for number in range(6):
        orders.append([{"order_id": number, "item": "cup"}], metadata=said(ACTORS[number % 3]))
        stock.upsert([{"item": f"i{number % 2}", "amount": number}], metadata=said(ACTORS[number % 3]))
    app.tick()

    app = opened()
    app.view("plain", plain)
    app.view("amounts", "SELECT * FROM stock")
    app.view("both", "SELECT o._actor AS a, s._actor AS b FROM orders o JOIN stock s ON o._actor <=> s._actor")
    app.get_topic("orders").append([{"order_id": 6, "item": "cup"}], metadata=said("bob"))
    app.tick()

    assert rows(app, "both") == {("bob", "bob"): 3, (None, None): 2}
    assert rows(app, "plain") == {("cup", 7): 1}
    assert all(found.equal for found in app.verify())
    assert with_views(app.log, app.log.check()).ok
