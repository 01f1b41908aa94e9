"""Views that fail and are paused.

What it is: poison rows, pauses, restarts, resuming, diagnosing, setting aside, damage in the serving store.
Invariants: a paused view and its readers are Spark's own answer over the rows of the last good tick, the others over
all rows; after a pause nothing is lost. What is expected is computed by Spark, or by hand, from what was sent.
Not here: crashes (``tests/crash/test_views_pause_killed.py``).
Read next: ``views/tick/pausing.py``.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import headwater as hw
from headwater.cli.main import app as command_line
from headwater.errors import Corruption, InvalidDeclaration, Misuse, ViewFailed, ViewPaused
from headwater.log.maintenance.alerts import ALERTS_TOPIC, lasting
from headwater.testing import ListSink
from headwater.views.lifecycle import migration
from headwater.views.lifecycle.rebuild import Rebuild
from headwater.views.lifecycle.set_aside import RecordPlace
from headwater.views.serving.publish import Publisher

pytestmark = pytest.mark.usefixtures("spark")
SHARE = "SELECT id, country, amount / parts AS share FROM orders"
PER_COUNTRY = "SELECT country, sum(share) AS shares FROM share GROUP BY country"
COUNTS = "SELECT country, count(*) AS orders FROM orders GROUP BY country"
SCHEMA = "id BIGINT, country STRING, amount BIGINT, parts BIGINT"
Row = dict[str, Any]


def declare(home: Path, *, on_error: str = "pause", share: str = SHARE, key: str | None = None) -> hw.App:
    """A view that divides, one that reads it, and one that has nothing to do with either."""
    app = hw.App("shop", home=home, on_error=on_error)
    app.topic("orders", SCHEMA, **({"key": key} if key else {}))
    app.view("share", share)
    app.view("per_country", PER_COUNTRY)
    app.view("counts", COUNTS)
    return app


def order(number: int, parts: int = 2) -> Row:
    return {"id": number, "country": "DE" if number % 2 else "FR", "amount": 10 * number, "parts": parts}


def answers(spark: SparkSession, rows: list[Row]) -> dict[str, list[Row]]:
    """What Spark gives for the three queries over these rows."""
    session = spark.newSession()
    session.createDataFrame([tuple(row.values()) for row in rows], SCHEMA).createOrReplaceTempView("orders")
    session.sql(SHARE).createOrReplaceTempView("share")
    queries = {"share": SHARE, "per_country": PER_COUNTRY, "counts": COUNTS}
    return {name: ordered(session.sql(sql).toArrow()) for name, sql in queries.items()}


def ordered(table: pa.Table) -> list[Row]:
    return sorted(table.to_pylist(), key=repr)


def shown(app: hw.App, view: str) -> list[Row]:
    """A view's rows, which its state, its serving table and its change feed agree on."""
    rows = ordered(app.sql(f"SELECT * FROM {view}"))
    assert ordered(app._runtime.serving.query(f'SELECT * FROM "{view}"')) == rows
    held: list[Row] = []
    for table in app.get_view(view).changes():
        for row in table.to_pylist():
            values = {name: value for name, value in row.items() if not name.startswith("_")}
            came = row["_change_type"] in ("insert", "update_postimage")
            held.append(values) if came else held.remove(values)
    assert sorted(held, key=repr) == rows
    return rows


def poisoned(home: Path, **options: Any) -> tuple[hw.App, list[Row], list[Row]]:
    """A shop whose second tick had a row to divide by zero, with the rows of the good tick, and all of them."""
    app = declare(home, **options)
    good = [order(number) for number in range(1, 6)]
    app.get_topic("orders").append(good)
    app.tick()
    bad = [order(6), order(7, parts=0), order(8)]
    app.get_topic("orders").append(bad)
    app.tick()
    return app, good, good + bad


def test_a_view_that_fails_stands_still_with_its_readers_and_the_others_go_on(
    tmp_path: Path, spark: SparkSession
) -> None:
    app, good, _ = poisoned(tmp_path)
    with app:
        token = app.get_topic("orders").append([order(9)])
        report = app.tick()

        before = answers(spark, good)
        assert report.tick == 3
        assert [each.view for each in report.views] == ["counts"]
        assert shown(app, "share") == before["share"]
        assert shown(app, "per_country") == before["per_country"]
        assert shown(app, "counts") == [{"country": "DE", "orders": 5}, {"country": "FR", "orders": 4}]
        paused = app.get_view("per_country").paused
        assert paused is not None
        assert (paused["tick"], paused["because"], paused["frontier"]) == (1, ["share"], "orders:0=5")
        assert "DIVIDE_BY_ZERO" in paused["reason"]
        assert all(found.equal for found in app.verify())
        assert {found.view: found.tick for found in app.verify()} == {"share": 1, "per_country": 1, "counts": 3}
        with pytest.raises(ViewPaused) as refused:
            app.sql("SELECT * FROM per_country", at_least=token)
        assert 'view "per_country" is paused since ' in refused.value.message
        assert "orders:0=9" in refused.value.message
        assert refused.value.hint is not None
        assert refused.value.hint.endswith("headwater view resume APP.py share")
        assert app.sql("SELECT sum(orders) AS n FROM counts", at_least=token).to_pylist() == [{"n": 9}]
        assert [alert.kind for alert in lasting(app.log)] == ["view_paused"]


def test_without_the_policy_the_tick_fails_as_a_whole_and_says_how_to_pause(tmp_path: Path) -> None:
    with declare(tmp_path, on_error="stop") as app:
        app.get_topic("orders").append([order(1, parts=0)])

        with pytest.raises(ViewFailed) as caught:
            app.tick()

        assert app._runtime.manifests.tick() == 0
        assert caught.value.hint is not None
        assert caught.value.hint.endswith('To let other views go on meanwhile: on_error="pause".')
    with pytest.raises(InvalidDeclaration, match="on_error cannot be 'ignore'"):
        hw.App("shop", home=tmp_path, on_error="ignore")


def test_a_view_s_policy_goes_before_the_app_s(tmp_path: Path) -> None:
    with hw.App("shop", home=tmp_path, on_error="pause") as app:
        orders = app.topic("orders", SCHEMA)
        app.view("strict", "SELECT id, amount % parts AS rest FROM orders", on_error="stop")
        orders.append([order(1, parts=0)])

        with pytest.raises(ViewFailed):
            app.tick()


def test_a_pause_outlives_a_restart_and_ends_by_resuming_once_the_row_was_corrected(
    tmp_path: Path, spark: SparkSession
) -> None:
    app, good, every = poisoned(tmp_path, key="id")
    app.close()
    with declare(tmp_path, key="id") as app:
        app.get_topic("orders").append([order(9)])
        app.tick()
        assert shown(app, "share") == answers(spark, good)["share"]
        with pytest.raises(ViewFailed):
            app.get_view("share").resume()
        assert app.get_view("share").paused is not None
        app.get_topic("orders").append([order(7, parts=5)])
        app.tick()

        report = app.get_view("per_country").resume()  # with what it reads

        corrected = [row for row in every if row["parts"]] + [order(9), order(7, parts=5)]
        assert set(report.views) == {"share", "per_country"}
        for view, expected in answers(spark, corrected).items():
            assert shown(app, view) == expected
            assert app.get_view(view).paused is None
        assert lasting(app.log) == []
        app.get_topic("orders").append([order(11)])
        app.tick()
        assert shown(app, "share") == answers(spark, [*corrected, order(11)])["share"]
        with pytest.raises(Misuse, match='view "share" is not paused'):
            app.get_view("share").resume()


def test_a_changed_query_ends_the_pause_and_one_that_fails_again_keeps_what_was_shown(
    tmp_path: Path, spark: SparkSession
) -> None:
    app, good, every = poisoned(tmp_path)
    app.close()
    with declare(tmp_path, share=SHARE.replace("amount /", "(amount + 0) /")) as app:  # no better
        app.get_topic("orders").append([order(9)])
        app.tick()
        assert ordered(app.sql("SELECT * FROM share")) == answers(spark, good)["share"]
        assert app.get_view("share").paused is not None
    with declare(tmp_path, share=SHARE.replace("amount / parts", "try_divide(amount, parts)")) as app:
        app.tick()

        expected = [
            {
                "id": row["id"],
                "country": row["country"],
                "share": row["amount"] / row["parts"] if row["parts"] else None,
            }
            for row in [*every, order(9)]
        ]
        assert ordered(app.sql("SELECT * FROM share")) == sorted(expected, key=repr)
        assert all(found.equal for found in app.verify())
        assert app.get_view("per_country").paused is None


def test_going_back_to_the_query_of_before_fills_it_anew(tmp_path: Path, spark: SparkSession) -> None:
    good = [order(number) for number in range(1, 4)]
    with declare(tmp_path) as app:
        app.get_topic("orders").append(good)
        app.tick()
    with declare(tmp_path, share=SHARE.replace("parts", "(parts - 2)")) as app:
        app.get_topic("orders").append([order(4)])
        app.tick()
        assert app.get_view("share").paused is not None
    with declare(tmp_path) as app:
        app.get_topic("orders").append([order(5)])
        app.tick()

        assert {view.name: view.paused for view in app.views} == dict.fromkeys(("share", "per_country", "counts"))
        for view, expected in answers(spark, [*good, order(4), order(5)]).items():
            assert ordered(app.sql(f"SELECT * FROM {view}")) == expected


def test_a_new_query_that_cannot_be_filled_beside_the_old_one_is_paused(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "BESIDE_ROWS_MIN", 0)
    good = [order(number) for number in range(1, 4)]
    with declare(tmp_path) as app:
        app.get_topic("orders").append(good)
        app.tick()
    with declare(tmp_path, share=SHARE.replace("parts", "(parts - 2)")) as app:
        app.start()
        assert app._runtime._migration is not None
        with pytest.raises(ViewFailed):
            app._runtime._migration.wait()
        token = app.get_topic("orders").append([order(4)])

        assert app.sql("SELECT sum(orders) AS n FROM counts", at_least=token).to_pylist() == [{"n": 4}]
        assert [view.name for view in app.views if view.paused is not None] == ["share", "per_country"]
        assert ordered(app.sql("SELECT * FROM per_country")) == answers(spark, good)["per_country"]


def test_a_rebuild_whose_input_is_paused_meanwhile_comes_to_nothing(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with declare(tmp_path) as app:
        app.get_topic("orders").append([order(1)])
        app.tick()
        fill = Rebuild._fill

        def fill_and_fail(rebuild: Rebuild) -> None:
            fill(rebuild)
            app.get_topic("orders").append([order(2, parts=0)])
            rebuild.engine.tick()

        monkeypatch.setattr(Rebuild, "_fill", fill_and_fail)
        with pytest.raises(ViewPaused, match='view "share" is paused'):
            app.rebuild("per_country")

        assert [view.name for view in app.views if view.paused is not None] == ["share", "per_country"]
        assert shown(app, "per_country") == answers(spark, [order(1)])["per_country"]


def test_two_views_pause_for_reasons_of_their_own_and_a_reader_of_both_waits_for_both(tmp_path: Path) -> None:
    with hw.App("shop", home=tmp_path, on_error="pause") as app:
        texts = app.table("texts", "id BIGINT, number STRING, divisor BIGINT", key="id")
        app.view("numbers", "SELECT id, CAST(number AS INT) AS number FROM texts")
        app.view("shares", "SELECT id, 1 / divisor AS share FROM texts")
        app.view("both", "SELECT n.id, number, share FROM numbers n JOIN shares s ON n.id = s.id")
        texts.upsert([{"id": 1, "number": "7", "divisor": 4}])
        app.tick()
        texts.upsert([{"id": 2, "number": "seven", "divisor": 0}])
        app.tick()
        assert app.get_view("both").paused is not None
        assert app.get_view("both").paused["because"] == ["numbers", "shares"]

        texts.upsert([{"id": 2, "number": "7", "divisor": 0}])
        app.tick()
        app.get_view("numbers").resume()
        assert [view.name for view in app.views if view.paused is not None] == ["shares", "both"]
        texts.upsert([{"id": 2, "number": "7", "divisor": 2}])
        app.tick()
        app.get_view("shares").resume()

        assert shown(app, "both") == [{"id": 1, "number": 7, "share": 0.25}, {"id": 2, "number": 7, "share": 0.5}]


def test_a_sink_stands_still_with_its_view_and_goes_on_with_it(tmp_path: Path) -> None:
    with declare(tmp_path, key="id") as app:
        share, counts = ListSink(), ListSink()
        app.sink("share", share, name="share")
        app.sink("counts", counts, name="counts")
        app.get_topic("orders").append([order(1)])
        app.tick()
        app.get_topic("orders").append([order(2, parts=0)])
        app.tick()

        assert app.get_sink("share").status().tick == 1
        assert app.get_sink("counts").status().tick == 2
        assert [row["id"] for row in share.rows] == [1]

        app.get_topic("orders").append([order(2)])
        app.tick()
        report = app.get_view("share").resume()
        app.sync_sinks()

        assert app.get_sink("share").status().tick == report.tick
        assert sorted(row["id"] for row in share.rows) == [1, 2]


def test_the_row_is_found_among_thousands_set_aside_and_left_out_by_every_view(
    tmp_path: Path, spark: SparkSession
) -> None:
    home = tmp_path / "home"
    with declare(home) as app:
        app.get_topic("orders").append([order(number) for number in range(1, 50)])
        app.tick()
        rows = [order(number, parts=0 if number == 2617 else 4) for number in range(50, 4050)]
        app.get_topic("orders").append(rows)
        app.tick()

        findings = app.get_view("share").diagnose()

        (culprit,) = findings.culprits
        ((place, row),) = culprit.records
        assert (str(place), row["id"]) == ("orders[0]@2616", 2617)
        assert culprit.error.data["condition"] == "DIVIDE_BY_ZERO"
        assert (findings.tried, findings.others_fail) == (4000, False)
        assert findings.runs < 40  # and not thousands

        app._runtime.set_aside([place], reason="no parts", by="ada")
        assert app.get_view("share").paused is not None  # it is for its user to resume
        app.get_view("share").resume()

        left = [row for row in [*(order(n) for n in range(1, 50)), *rows] if row["parts"]]
        for view, expected in answers(spark, left).items():
            assert shown(app, view) == expected
        assert all(found.equal for found in app.verify())
        (letter,) = [row for batch in app.get_topic("orders.shop.views.dead").read() for row in batch.to_pylist()]
        assert (letter["offset"], letter["reason"], letter["worker"]) == (2616, "no parts", "ada")
        assert json.loads(letter["row"])["id"] == 2617
        told = [row for batch in app.log.get_topic(ALERTS_TOPIC).read() for row in batch.to_pylist()]
        assert [(row["kind"], row["state"]) for row in told] == [
            ("view_paused", "begin"),
            ("set_aside", "once"),
            ("view_paused", "end"),
        ]
    with declare(home) as app:  # and after a restart
        app.get_topic("orders").append([order(5000)])
        app.tick()
        app.rebuild("counts")
        assert shown(app, "counts") == answers(spark, [*left, order(5000)])["counts"]


@pytest.mark.parametrize("kind", ["table", "bag", "bounded", "log"])
def test_a_record_set_aside_is_gone_from_the_state_of_every_kind_of_topic(tmp_path: Path, kind: str) -> None:
    with hw.App("shop", home=tmp_path) as app:
        kinds: dict[str, dict[str, Any]] = {"bounded": {"retention": 10**6}, "table": {"key": "id"}}
        settings = kinds.get(kind, {})
        schema = "id BIGINT, n BIGINT"
        rows = app.topic("numbers", schema, **settings) if kind != "bag" else None
        add = rows.append if rows is not None else app.table("numbers", schema).insert
        app.view("sums", "SELECT id, sum(n) AS n, count(*) AS many FROM numbers GROUP BY id")
        app.view("most", "SELECT max(n) AS n FROM numbers")
        add([{"id": 1, "n": 5}, {"id": 2, "n": 7}])
        app.tick()
        add([{"id": 1, "n": 9}])
        app.tick()

        app._runtime.set_aside([RecordPlace("numbers", 0, 2)])

        assert shown(app, "sums") == [{"id": 1, "n": 5, "many": 1}, {"id": 2, "n": 7, "many": 1}]
        assert shown(app, "most") == [{"n": 7}]
        add([{"id": 1, "n": 6}])
        app.tick()
        assert all(found.equal for found in app.verify())
        assert shown(app, "most") == [{"n": 7}]


def test_two_rows_that_fail_together_are_found_together(tmp_path: Path) -> None:
    with hw.App("shop", home=tmp_path, on_error="pause") as app:
        left = app.table("lefts", "id BIGINT, a BIGINT", key="id")
        right = app.table("rights", "id BIGINT, b BIGINT", key="id")
        app.view("quotients", "SELECT l.id, 1 / (a - b) AS q FROM lefts l JOIN rights r ON l.id = r.id")
        left.upsert([{"id": n, "a": n} for n in range(40)])
        right.upsert([{"id": n, "b": n if n == 17 else 0} for n in range(1, 40)])
        app.tick()

        (culprit,) = app.get_view("quotients").diagnose().culprits

        assert [str(place) for place, _ in culprit.records] == ["lefts[0]@17", "rights[0]@16"]


def test_the_command_line_shows_finds_sets_aside_and_resumes(tmp_path: Path) -> None:
    app, _, every = poisoned(tmp_path / "home")
    app.close()
    file = tmp_path / "shop.py"
    file.write_text(
        "import headwater as hw\n"
        f"app = hw.App('shop', home={str(tmp_path / 'home')!r}, on_error='pause')\n"
        f"app.topic('orders', {SCHEMA!r})\n"
        f"app.view('share', {SHARE!r})\napp.view('per_country', {PER_COUNTRY!r})\napp.view('counts', {COUNTS!r})\n"
    )

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(command_line, list(arguments))

    listed = json.loads(run("view", "ls", "--home", str(tmp_path / "home"), "--json").stdout)
    assert {each["view"]: each["state"] for each in listed} == {
        "share": "paused",
        "per_country": "paused",
        "counts": "live",
    }
    told = run("view", "describe", "share", "--home", str(tmp_path / "home")).stdout
    assert "with the contents of tick 1" in told
    found = run("view", "diagnose", str(file), "share")
    assert found.exit_code == 1
    assert "orders[0]@6: {'id': 7" in found.stdout
    done = run("view", "diagnose", str(file), "share", "--set-aside", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["set_aside_with_tick"] == 3
    assert run("view", "resume", str(file), "share").exit_code == 0
    checked = run("verify", str(file), "--json")
    assert [each["equal"] for each in json.loads(checked.stdout)] == [True, True, True]
    assert {each["view"]: each["rows"] for each in json.loads(checked.stdout)}["share"] == len(every) - 1


# Damage in the serving store


def damage(app: hw.App, statement: str) -> None:
    path = app._runtime.folder / "serving.sqlite"
    with sqlite3.connect(path) as db:
        (table,) = db.execute("SELECT view || '@' || number FROM _headwater_tables WHERE view = 'counts'").fetchone()
        db.execute(statement.format(table=f'"{table}"'))
    db.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {table} WHERE country = 'DE'",  # a row that is to leave is not there
        "INSERT INTO {table} (country, orders) VALUES ('IT', 3)",  # a row that is to come is there
    ],
)
def test_a_damaged_serving_table_is_filled_anew_and_fails_no_tick(
    tmp_path: Path, spark: SparkSession, statement: str
) -> None:
    with declare(tmp_path, on_error="stop") as app:
        rows = [order(number) for number in range(1, 4)]
        app.get_topic("orders").append(rows)
        app.tick()
        damage(app, statement)

        more = [order(5), {**order(7), "country": "IT"}]
        app.get_topic("orders").append(more)
        assert app.tick().tick == 2

        for view, expected in answers(spark, rows + more).items():
            assert shown(app, view) == expected


def test_a_view_that_cannot_be_served_is_paused_and_the_others_are_served(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with declare(tmp_path) as app:
        app.get_topic("orders").append([order(1), order(2)])
        app.tick()
        damage(app, "DELETE FROM {table}")

        def refill(_: Publisher, name: str, *__: Any) -> None:
            raise Corruption(f'two rows of view "{name}" have the same key (country)')

        with monkeypatch.context() as patched:
            patched.setattr(Publisher, "_refill", refill)
            app.get_topic("orders").append([order(3)])
            assert app.tick().paused == ("counts",)
            app.get_topic("orders").append([order(4)])
            app.tick()

        assert shown(app, "share") == answers(spark, [order(n) for n in range(1, 5)])["share"]
        assert app.get_view("counts").paused is not None
        assert "have the same key" in app.get_view("counts").paused["reason"]
        app.get_view("counts").resume()
        assert ordered(app._runtime.serving.query("SELECT * FROM counts")) == ordered(app.sql("SELECT * FROM counts"))
        assert ordered(app.sql("SELECT * FROM counts")) == answers(spark, [order(n) for n in range(1, 5)])["counts"]
