"""Joins as of a moment, through the log, the state and the tick.

What it is: the histories of ``tests/compiler/past.py`` in a real app, with restarts between ticks; and what only an app
has: deletes with a time of their own, compaction, views that come later, rebuilds.
Invariants: after every tick the views are what plain Python makes of the records that have come, and what ``verify``
makes of the log.
Not here: many cases (``tests/compiler/test_as_of.py``).
Read next: ``tests/compiler/past.py``.
"""

from __future__ import annotations

import os
import runpy
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.errors import InvalidQuery
from headwater.log.home import Log
from headwater.log.maintenance.compaction import compact_partition
from headwater.testing.manual_clock import ManualClock
from headwater.views import thresholds
from tests.compiler.comparing import bag_difference
from tests.compiler.past import VIEWS, Order, Record, User, answers, delivered, histories, moment
from tests.spark.test_views_equal_batch import WAYS

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
few = settings(
    max_examples=THOROUGH,
    deadline=None,
    print_blob=True,
    phases=[Phase.explicit, Phase.generate],  # making a case smaller takes many Spark jobs; DuckDB is there for that
    suppress_health_check=list(HealthCheck),
)

TAXED = VIEWS["taxed"]
EXAMPLE = Path(__file__).parents[2] / "examples" / "tax_as_of_sale.py"
pytestmark = pytest.mark.usefixtures("spark")


def declare(home: Path | str, views: Sequence[str] = ("taxed",), **table: object) -> hw.App:
    """The shop, with a clock that is moved by hand."""
    app = hw.App("shop", home=home)
    app._log = Log(home, clock=ManualClock(now_us=int(moment(0).timestamp()) * 1_000_000), maintenance_interval=None)
    app.table("users", "id BIGINT, country STRING, since TIMESTAMP", key="id", event_time="since", **table)
    app.topic(
        "orders",
        "order_id BIGINT, user_id BIGINT, amount INT, at TIMESTAMP",
        key="order_id",
        event_time="at",
        partitions=2,
    )
    for name in views:
        app.view(name, VIEWS[name])
    return app


def put(app: hw.App, record: Record) -> None:
    """Append one record, users' at the time that the history says."""
    if isinstance(record, Order):
        orders = app.get_topic("orders")
        if record.deleted:
            orders.delete([{"order_id": record.order_id}])
        else:
            row = {"order_id": record.order_id, "user_id": record.user_id, "amount": record.amount}
            orders.append([{**row, "at": moment(record.at)}])
        return
    clock = app.log.clock
    assert isinstance(clock, ManualClock)
    clock.advance(max(0.0, moment(record.appended).timestamp() - clock.now_us() / 1e6))
    users = app.get_table("users")
    since = {} if record.since is None else {"since": moment(record.since)}
    if record.deleted:
        users.delete([{"id": record.id, **since}])
    else:
        users.upsert([{"id": record.id, "country": record.country, **since}])


def check(app: hw.App, seen: Sequence[Record]) -> None:
    expected = answers(seen)
    for view in app.views:
        found = [tuple(row.values()) for row in app.sql(f"SELECT * FROM {view.name}").to_pylist()]
        wrong = bag_difference(found, expected[view.name])
        assert not wrong, f"{view.name}:\n{wrong}"
        served = app._runtime.serving.query(f'SELECT count(*) AS n FROM "{view.name}"').to_pylist()[0]["n"]
        assert served == len(found)


@pytest.mark.timeout(600 * THOROUGH)  # minutes where other work takes the cores
@few
@given(histories(most=8), st.integers(0, 1000), st.sampled_from(WAYS), st.permutations(["first", "last", "between"]))
def test_each_order_meets_the_user_as_it_was_whatever_comes_when(
    history: tuple[list[User], list[Order]], seed: int, way: dict[str, int], hows: list[str]
) -> None:
    # One way to deliver for each case, unless there is time: the answer it is held against is the same for all.
    for how in hows if THOROUGH > 1 else hows[:1]:
        home, seen = tempfile.mkdtemp(), []
        with patch.dict(vars(thresholds), way):
            ticks = delivered(*history, how, seed)
            note(f"{how}: {ticks}")
            for number, tick in enumerate(ticks):
                # Restarts: nothing may live in the process alone.
                if number % 3 == 0:
                    app = declare(home, tuple(VIEWS))
                for record in tick:
                    put(app, record)
                app.tick()
                seen += tick
                check(app, seen)
                if number % 3 == 2 or number + 1 == len(ticks):
                    wrong = [found for found in app.verify() if not found.equal]
                    assert not wrong, f"{how}, tick {number}: {wrong}"
                    app.close()


def rows(app: hw.App, view: str = "taxed") -> list[dict[str, object]]:
    return app.sql(f"SELECT * FROM {view} ORDER BY order_id").to_pylist()


def countries(app: hw.App, view: str = "taxed") -> dict[object, object]:
    return {row["order_id"]: row["country"] for row in rows(app, view)}


def fill(app: hw.App) -> None:
    """One user who moved at hour 4, and an order for each hour from 1 to 6."""
    app.get_table("users").upsert([{"id": 7, "country": "DE", "since": moment(0)}])
    app.get_table("users").upsert([{"id": 7, "country": "FR", "since": moment(4)}])
    app.get_topic("orders").append(
        [{"order_id": hour, "user_id": 7, "amount": 1, "at": moment(hour)} for hour in range(1, 7)]
    )


def all_equal(app: hw.App) -> bool:
    return all(found.equal for found in app.verify())


def test_a_version_that_comes_late_corrects_the_orders_up_to_the_next_one(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        fill(app)
        app.tick()
        before = countries(app)

        app.get_table("users").upsert([{"id": 7, "country": "IT", "since": moment(2)}])
        report = app.tick()

        assert before == {1: "DE", 2: "DE", 3: "DE", 4: "FR", 5: "FR", 6: "FR"}
        assert countries(app) == {**before, 2: "IT", 3: "IT"}
        assert [view.changes for view in report.views] == [4]
        assert all_equal(app)


def test_a_delete_counts_from_the_time_that_it_gives_or_from_its_append(tmp_path: Path) -> None:
    with declare(tmp_path, ("taxed", "every")) as app:
        fill(app)
        app.get_table("users").delete([{"id": 7, "since": moment(5)}])
        app.tick()
        with_time = countries(app)
        app.log.clock.sleep(2.5 * 3600)  # by hand
        app.get_table("users").delete([{"id": 7}])
        app.tick()

        assert with_time == {1: "DE", 2: "DE", 3: "DE", 4: "FR"}
        assert countries(app) == {1: "DE", 2: "DE", 4: "FR"}  # gone since half past two, until the next version
        assert countries(app, "every") == {1: "DE", 2: "DE", 3: None, 4: "FR", 5: None, 6: None}
        app.get_table("users").upsert([{"id": 7, "country": "IT", "since": moment(1)}])
        app.tick()
        assert countries(app) == {1: "IT", 2: "IT", 4: "FR"}
        assert all_equal(app)


def test_a_table_is_what_it_was_when_its_deletes_give_a_time(tmp_path: Path) -> None:
    with declare(tmp_path, ("moved",)) as app:
        fill(app)
        app.view("now", "SELECT * FROM users")
        app.get_table("users").delete([{"id": 7, "country": "whatever", "since": moment(1)}])
        app.tick()

        assert app.sql("SELECT * FROM now").num_rows == 0
        assert app.sql("SELECT * FROM moved").num_rows == 0
        app.get_table("users").upsert([{"id": 7, "country": "FR", "since": moment(4)}])
        app.tick()
        assert app.sql("SELECT country FROM now").to_pylist() == [{"country": "FR"}]
        assert [row["order_id"] for row in rows(app, "moved")] == [4, 5, 6]
        assert all_equal(app)


def test_compaction_takes_nothing_from_views_that_have_seen_the_versions(tmp_path: Path) -> None:
    with declare(tmp_path, compact=True) as app:
        fill(app)
        app.tick()
        compact_partition(app.get_table("users").topic, 0, force=True)
        assert len(list(app.get_table("users").topic.rows())) == 1
        app.get_topic("orders").append([{"order_id": 9, "user_id": 7, "amount": 1, "at": moment(2)}])
        app.tick()

    with declare(tmp_path, compact=True) as app:
        app.get_table("users").upsert([{"id": 7, "country": "IT", "since": moment(3)}])
        app.tick()

        assert countries(app) == {1: "DE", 2: "DE", 3: "IT", 4: "FR", 5: "FR", 6: "FR", 9: "DE"}
        assert all_equal(app)
        app.rebuild("taxed")
        assert countries(app) == {1: "DE", 2: "DE", 3: "IT", 4: "FR", 5: "FR", 6: "FR", 9: "DE"}


def test_a_table_that_is_compacted_from_now_on_keeps_its_past_in_views(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        fill(app)
        app.tick()
    with Log(tmp_path, maintenance_interval=None) as log:
        schema = "id BIGINT, country STRING, since TIMESTAMP"
        topic = log.topic("users", schema, key="id", event_time="since", compact=True)
        compact_partition(topic, 0, force=True)

    with declare(tmp_path) as app:
        app.get_topic("orders").append([{"order_id": 9, "user_id": 7, "amount": 1, "at": moment(2)}])
        app.tick()

        assert countries(app)[9] == "DE"


def test_retention_takes_nothing_from_views_that_have_seen_the_versions(tmp_path: Path) -> None:
    with hw.App("shop", home=tmp_path) as app:
        app._log = Log(tmp_path, maintenance_interval=None)
        schema, bounds = "id BIGINT, country STRING, since TIMESTAMP", {"retention_bytes": 1, "segment_bytes_max": 1}
        users = app.topic("users", schema, key="id", event_time="since", **bounds)
        orders = app.topic("orders", "order_id BIGINT, user_id BIGINT, amount INT, at TIMESTAMP", key="order_id")
        app.view("taxed", TAXED)
        for hour, country in ((0, "DE"), (2, "IT"), (4, "FR")):
            users.append([{"id": 7, "country": country, "since": moment(hour)}])
        app.tick()
        app.log.maintain()
        assert users.start_offsets()[0] > 0
        orders.append([{"order_id": hour, "user_id": 7, "amount": 1, "at": moment(hour)} for hour in range(6)])
        app.tick()

        past = {0: "DE", 1: "DE", 2: "IT", 3: "IT", 4: "FR", 5: "FR"}
        assert countries(app) == past
        assert all_equal(app)
        app.view("now", "SELECT id AS order_id, country FROM users")  # of which the log has the latest
        app.tick()
        assert countries(app, "now") == {7: "FR"}
        assert countries(app) == past
        assert all_equal(app)


@pytest.mark.parametrize("first", ["now", "taxed"])
def test_a_table_that_views_read_one_way_can_be_read_the_other_way_later(tmp_path: Path, first: str) -> None:
    queries = {"taxed": TAXED, "now": "SELECT o.order_id, u.country FROM orders o JOIN users u ON o.user_id = u.id"}
    with declare(tmp_path, ()) as app:
        app.view(first, queries[first])
        fill(app)
        app.get_table("users").upsert([{"id": 8, "country": "DE", "since": moment(0)}])
        app.get_table("users").delete([{"id": 8, "since": moment(3)}])
        app.tick()
    with declare(tmp_path, ()) as app:
        for name in ("taxed", "now"):
            app.view(name, queries[name])
        app.get_topic("orders").append([{"order_id": 9, "user_id": 8, "amount": 1, "at": moment(2)}])
        app.tick()
        app.get_table("users").upsert([{"id": 7, "country": "IT", "since": moment(2)}])
        app.tick()

        past = {1: "DE", 2: "IT", 3: "IT", 4: "FR", 5: "FR", 6: "FR", 9: "DE"}
        assert countries(app) == past
        assert countries(app, "now") == dict.fromkeys(range(1, 7), "IT")
        assert all_equal(app)


def test_a_view_of_the_past_can_be_rebuilt_and_changed(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        fill(app)
        app.tick()

        report = app.rebuild("taxed")

        assert (report.changes, report.restarted) == ({"taxed": 0}, ())
    with declare(tmp_path, ()) as app:
        app.view("taxed", f"{TAXED} WHERE u.country = 'FR'")
        app.rebuild("taxed")
        assert countries(app) == {4: "FR", 5: "FR", 6: "FR"}
        assert all_equal(app)


def test_a_view_of_the_past_is_built_beside_views_that_know_the_present_only(tmp_path: Path) -> None:
    now = "SELECT o.order_id, u.country FROM orders o JOIN users u ON o.user_id = u.id"
    with declare(tmp_path, ()) as app:
        app.view("now", now)
        fill(app)
        app.tick()
    with declare(tmp_path, ()) as app:
        app.view("now", now)
        app.view("taxed", TAXED)
        app.get_table("users").upsert([{"id": 7, "country": "IT", "since": moment(2)}])

        report = app.rebuild("taxed")
        app.tick()

        assert report.restarted == ("taxed",)
        assert countries(app) == {1: "DE", 2: "IT", 3: "IT", 4: "FR", 5: "FR", 6: "FR"}
        assert countries(app, "now") == dict.fromkeys(range(1, 7), "IT")
        assert all_equal(app)


def test_a_column_that_is_added_to_the_table_is_null_in_its_past(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        fill(app)
        app.tick()
    with declare(tmp_path) as app:
        users = app.table(
            "users", "id BIGINT, country STRING, since TIMESTAMP, name STRING", key="id", event_time="since"
        )
        users.upsert([{"id": 7, "country": "IT", "since": moment(6), "name": "Ada"}])
        app.view("named", VIEWS["every"].replace("u.*", "u.country, u.name"))
        app.tick()

        assert countries(app)[6] == "IT"
        assert [row["name"] for row in rows(app, "named")] == [None] * 5 + ["Ada"]
        assert all_equal(app)


def test_what_runs_in_the_background_sees_the_past_change(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        fill(app)
        app.start()
        token = app.get_table("users").upsert([{"id": 7, "country": "IT", "since": moment(2)}])

        seen = app.sql("SELECT country FROM taxed WHERE order_id = 3", at_least=token, timeout=240).to_pylist()
        app.stop()

        assert seen == [{"country": "IT"}]
        assert sorted(app._runtime.manifests.current().frontier) == ["orders", "users"]


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP_NTZ"])
def test_an_event_time_may_be_a_day_or_a_time_of_the_clock(tmp_path: Path, kind: str) -> None:
    with declare(tmp_path, ()) as app:
        prices = app.table("prices", f"id BIGINT, price INT, since {kind}", key="id", event_time="since")
        app.view(
            "sold", "SELECT o.order_id, p.price FROM orders o JOIN prices FOR SYSTEM_TIME AS OF o.at AS p ON p.id = 1"
        )
        app.get_topic("orders").append(
            [{"order_id": hour, "user_id": 7, "amount": 1, "at": moment(hour)} for hour in (1, 5, 7)]
        )
        for price, hour in enumerate((0, 4)):
            since = moment(hour).date() if kind == "DATE" else moment(hour).replace(tzinfo=None)
            prices.upsert([{"id": 1, "price": price, "since": since}])
        app.log.clock.sleep(6 * 3600)  # by hand
        prices.delete([{"id": 1}])
        app.tick()

        assert rows(app, "sold") == [{"order_id": 1, "price": 0}, {"order_id": 5, "price": 1}]
        assert all_equal(app)


def test_a_query_is_told_to_ask_a_view(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        app.tick()

        with pytest.raises(InvalidQuery, match="AS OF can be asked in a view, not in a query"):
            app.sql(TAXED)


def test_the_example_taxes_each_order_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAX_HOME", str(tmp_path))
    made = runpy.run_path(str(EXAMPLE))
    with made["app"] as app:
        made["buyers"].upsert([{"id": 7, "country": "DE", "since": moment(0)}])
        made["rates"].upsert([{"country": "DE", "percent": Decimal(19), "since": moment(0).date()}])
        made["orders"].append(
            [{"order_id": hour, "buyer_id": 7, "amount": Decimal(100), "at": moment(hour)} for hour in (1, 5, 6)]
        )
        made["orders"].append([{"order_id": 9, "buyer_id": 8, "amount": Decimal(1), "at": moment(1)}])
        app.tick()
        made["rates"].upsert([{"country": "DE", "percent": Decimal(16), "since": moment(4).date()}])
        made["buyers"].upsert([{"id": 7, "country": "FR", "since": moment(6)}])
        app.tick()

        assert app.get_view("taxed").get(1)[0]["tax"] == Decimal(19)
        assert app.sql("SELECT country, day, tax, orders FROM tax_by_day ORDER BY day").to_pylist() == [
            {"country": "DE", "day": moment(1).date(), "tax": Decimal(19), "orders": 1},
            {"country": "DE", "day": moment(5).date(), "tax": Decimal(16), "orders": 1},
        ]
        assert app.sql("SELECT order_id, country FROM untaxed ORDER BY order_id").to_pylist() == [
            {"order_id": 6, "country": "FR"},
            {"order_id": 9, "country": None},
        ]
        assert all_equal(app)
