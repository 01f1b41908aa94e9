"""Reading views: what was just written, what was true before, what changed; and declarations that change.

What it is: one small app for each test, ticked by hand.
Invariants: a query is as of one tick that covers the token; history and changes are those of committed ticks; a view
whose query or whose inputs changed equals its new query over everything its inputs hold.
Not here: the serving store by itself (``tests/unit/views/serving``); repeated ticks (``test_views_replay.py``).
Read next: ``views/runtime.py``.
"""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import InvalidDeclaration, NotYetCovered, OffsetOutOfRange
from headwater.log.home import Log
from headwater.views import thresholds

pytestmark = pytest.mark.usefixtures("spark")
COUNTS = "SELECT country, count(*) AS users FROM users GROUP BY country"


def declare(home: Path, *, sql: str = COUNTS, schema: str = "id BIGINT, country STRING") -> hw.App:
    app = hw.App("shop", home=home)
    app.table("users", schema, key="id")
    app.view("countries", sql)
    return app


def move(app: hw.App, **countries: str) -> hw.Token:
    """Upsert users: their names are u1, u2, …"""
    return app.get_table("users").upsert([{"id": int(name[1:]), "country": there} for name, there in countries.items()])


def pairs(rows: Any) -> dict[Any, Any]:
    return dict(tuple(row.values()) for row in rows.to_pylist())


def equal_to_recomputation(app: hw.App) -> bool:
    return all(difference.equal for difference in app.verify())


def test_a_query_waits_for_the_tick_that_covers_its_token(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        move(app, u1="DE")
        app.tick()
        token = move(app, u2="FR")

        with pytest.raises(NotYetCovered) as caught:
            app.sql("SELECT * FROM countries", at_least=token, timeout=0.05)
        ticker = threading.Timer(0.05, app.tick)
        ticker.start()
        seen = app.sql("SELECT * FROM countries", at_least=str(token), timeout=240)
        ticker.join()

        assert "users:0=2" in caught.value.message
        assert pairs(seen) == {"DE": 1, "FR": 1}


def test_a_token_of_a_topic_that_only_a_new_view_reads_is_waited_for(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        app.tick()
        clicks = app.topic("clicks", "page STRING")
        app.view("pages", "SELECT page, count(*) AS clicks FROM clicks GROUP BY page")
        token = clicks.append([{"page": "a"}])

        with pytest.raises(NotYetCovered):
            app.sql("SELECT * FROM countries", at_least=token, timeout=0.05)
        app.tick()

        assert pairs(app.sql("SELECT * FROM pages", at_least=token)) == {"a": 1}


def test_history_and_changes_are_those_of_the_committed_ticks(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        view = app.get_view("countries")
        move(app, u1="DE", u2="DE")
        app.tick()
        committed_us = app._runtime.manifests.current().committed_us
        move(app, u2="FR")
        app.tick()
        moment = dt.datetime.fromtimestamp(committed_us / 1e6, dt.UTC)

        assert pairs(view.history(as_of=1)) == {"DE": 2}
        assert pairs(view.history(as_of=2)) == {"DE": 1, "FR": 1}
        assert pairs(view.history(as_of=moment)) == {"DE": 2}
        with pytest.raises(OffsetOutOfRange, match="not kept"):
            view.history(as_of=3)
        with pytest.raises(OffsetOutOfRange, match="not kept"):
            view.history(as_of=moment - dt.timedelta(days=1))

        second = list(view.changes(from_tick=2))
        assert [table.num_rows for table in view.changes()] == [1, 3]
        assert [(row["_change_type"], row["country"], row["users"]) for row in second[0].to_pylist()] == [
            ("update_preimage", "DE", 2),
            ("update_postimage", "DE", 1),
            ("insert", "FR", 1),
        ]
        assert list(view.changes(from_tick=3)) == []


def test_a_view_that_another_reads_cannot_be_dropped(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        app.view("large", "SELECT country FROM countries WHERE users > 1")
        move(app, u1="DE", u2="DE")
        app.tick()

        with pytest.raises(InvalidDeclaration, match="large reads it"):
            app.drop_view("countries")
        app.drop_view("large")
        move(app, u3="DE")
        app.tick()

        assert [view.name for view in app.views] == ["countries"]
        assert list(app._runtime.manifests.current().views) == ["countries"]
        assert list(app._runtime.serving.views()) == ["countries"]
        assert pairs(app.sql("SELECT * FROM countries")) == {"DE": 3}


def test_a_changed_query_is_noticed_and_filled_anew(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        app.view("many", "SELECT sum(users) AS many FROM countries")
        move(app, u1="DE", u2="FR")
        app.tick()
    formatted = COUNTS.replace("SELECT", "select  ").replace(" FROM", "\n-- of all\nfrom")
    with declare(tmp_path, sql=formatted) as app:
        app.view("many", "SELECT sum(users) AS many FROM countries")
        assert not app.tick().moved, "formatting is no change"

    with declare(tmp_path, sql=COUNTS.replace("count(*)", "count(*) * 10")) as app:
        app.view("many", "SELECT sum(users) AS many FROM countries")
        move(app, u2="DE")
        before = app._runtime.serving.get("countries", "FR")
        app.tick()

        assert before == [{"country": "FR", "users": 1}], "the old rows are served until the new ones are there"
        assert pairs(app.sql("SELECT * FROM countries")) == {"DE": 20}
        assert app.get_view("countries").get("DE") == [{"country": "DE", "users": 20}]
        assert app.get_view("countries").get("FR") == []
        assert app.get_view("many").get(many=20) == [{"many": 20}]
        assert equal_to_recomputation(app)
        with pytest.raises(OffsetOutOfRange, match="redeclared at tick 2") as caught:
            list(app.get_view("countries").changes(from_tick=2))
        assert "begin again without from_tick" in (caught.value.hint or "")
        fresh = list(app.get_view("countries").changes())
        assert [(row["_change_type"], row["users"]) for row in fresh[0].to_pylist()] == [("insert", 20)]


def test_a_view_keeps_the_rows_that_retention_took_from_its_topic(tmp_path: Path) -> None:
    with hw.App("shop", home=tmp_path) as app:
        app._log = Log(tmp_path, maintenance_interval=None)
        clicks = app.topic("clicks", "page STRING", retention_bytes=1, segment_bytes_max=1)
        app.view("pages", "SELECT page, count(*) AS clicks FROM clicks GROUP BY page")
        for page in "aab":
            clicks.append([{"page": page}])
        app.tick()
        app.log.maintain()
        assert clicks.start_offsets()[0] > 0
        clicks.append([{"page": "a"}])
        app.tick()

        assert pairs(app.sql("SELECT * FROM pages")) == {"a": 3, "b": 1}
        assert equal_to_recomputation(app)

        app.view("first_letters", "SELECT DISTINCT page FROM clicks")
        app.tick()
        assert sorted(app.sql("SELECT * FROM first_letters").to_pydict()["page"]) == ["a", "b"]
        assert equal_to_recomputation(app)


def test_an_app_that_retention_has_overtaken_says_so(tmp_path: Path) -> None:
    with hw.App("shop", home=tmp_path) as app:
        app._log = Log(tmp_path, maintenance_interval=None)
        clicks = app.topic("clicks", "page STRING", retention_bytes=1, segment_bytes_max=1)
        app.view("pages", "SELECT page, count(*) AS clicks FROM clicks GROUP BY page")
        clicks.append([{"page": "a"}])
        app.tick()
        for page in "bcd":
            clicks.append([{"page": page}])
        app.log.maintain()
        assert clicks.start_offsets()[0] > 1

        with pytest.raises(OffsetOutOfRange) as caught:
            app.tick()

        assert "clicks" in caught.value.message
        assert app._runtime.manifests.tick() == 1


def test_a_new_column_of_a_table_reaches_its_views_and_nothing_is_forgotten(tmp_path: Path) -> None:
    with declare(tmp_path, sql="SELECT * FROM users") as app:
        app.view("counts", COUNTS)
        move(app, u1="DE", u2="FR")
        app.tick()

    with declare(tmp_path, sql="SELECT * FROM users", schema="id BIGINT, country STRING, name STRING") as app:
        app.view("counts", COUNTS)
        app.get_table("users").upsert([{"id": 2, "country": "DE", "name": "Zoë"}])
        app.tick()

        assert sorted(app.sql("SELECT * FROM countries").to_pylist(), key=lambda row: row["id"]) == [
            {"id": 1, "country": "DE", "name": None},
            {"id": 2, "country": "DE", "name": "Zoë"},
        ]
        assert pairs(app.sql("SELECT * FROM counts")) == {"DE": 2}
        assert equal_to_recomputation(app)
        app.get_table("users").delete([{"id": 1}])
        app.tick()
        assert pairs(app.sql("SELECT * FROM counts")) == {"DE": 1}
        assert app.get_view("counts").get("DE") == [{"country": "DE", "users": 1}]


def test_a_new_column_while_the_app_runs_waits_for_its_next_start(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        clicks = app.topic("clicks", "page STRING")
        app.view("pages", "SELECT page, count(*) AS clicks FROM clicks GROUP BY page")
        move(app, u1="DE")
        clicks.append([{"page": "a"}])
        app.tick()

        with Log(tmp_path) as other:
            other.topic("users", "id BIGINT, country STRING, name STRING", key="id").append(
                [{"id": 1, "country": "FR", "name": "Zoë"}]
            )
            other.topic("clicks", "page STRING, by STRING").append([{"page": "a", "by": "Zoë"}])
        app.tick()

        assert pairs(app.sql("SELECT * FROM countries")) == {"FR": 1}
        assert pairs(app.sql("SELECT * FROM pages")) == {"a": 2}
        assert equal_to_recomputation(app)


def test_a_topic_that_was_deleted_and_made_again_is_another_one(tmp_path: Path) -> None:
    for row in ({"page": "a", "by": "Zoë"}, {"page": "b", "by": "Zoë"}):
        with declare(tmp_path) as app:
            clicks = app.topic("clicks", "page STRING, by STRING")
            people = app.table("people", "name STRING, country STRING", key="name")
            app.view("pages", "SELECT page, country FROM clicks JOIN people ON by = name")
            clicks.append([row])
            people.upsert([{"name": "Zoë", "country": row["page"]}])
            move(app, u1="DE")
            app.tick()
            shown = app.get_view("pages").get(page=row["page"])
            everything = app.sql("SELECT * FROM pages").num_rows
            equal = equal_to_recomputation(app)
            app.log.delete_topic("clicks")
            app.log.delete_topic("people")

        assert shown == [{"page": row["page"], "country": row["page"]}]
        assert everything == 1
        assert equal


def test_rows_that_retention_may_take_are_kept_however_many_come_in_one_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "TASK_ROWS_MAX", 2)
    with declare(tmp_path) as app:
        clicks = app.topic("clicks", "page STRING, user_id BIGINT", retention="1 hour")
        app.view("seen", "SELECT page, country FROM clicks JOIN users ON user_id = id")
        clicks.append([{"page": f"p{number}", "user_id": 1} for number in range(10)])
        app.tick()
        move(app, u1="DE")
        app.tick()

        assert app.sql("SELECT * FROM seen").num_rows == 10
        assert equal_to_recomputation(app)
