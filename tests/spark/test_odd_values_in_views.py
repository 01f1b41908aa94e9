"""Odd values in views: far times, intervals, VOID, maps, odd names, thousands of millions of equal rows.

What it is: one app with a view for each kind of trouble, over a few ticks.
Invariants: the oracle is arithmetic in Python: Python's own dates end with the year 9999.
Not here: SQL that is refused (``tests/unit/views/test_declaring_views.py``).
Read next: ``test_views_equal_batch.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import InvalidDeclaration, InvalidView

EQUAL_ROWS = 50_000  # joined with themselves they meet more often than 2^31 times
LAST_US = 253_402_300_799_000_000  # 9999-12-31 23:59:59
VIEWS = {
    "hours": "SELECT window.end AS ends, count(*) AS n FROM far GROUP BY window(at, '1 hour')",
    "days": "SELECT d, array(at) AS list, count(*) AS n FROM far GROUP BY d, array(at)",
    "spans": "SELECT at - TIMESTAMP'2020-01-01 00:00:00' AS span, NULL AS nothing, count(*) AS n FROM far GROUP BY 1",
    "zipped": "SELECT arrays_zip(array(1, 2), array(3, 4)) AS z, count(*) AS n FROM far",
    "maps": "SELECT m, count(*) AS n, sum(v) AS s FROM mapped GROUP BY m",
    "bytes": "SELECT CAST(X'FF41' AS STRING) AS s, array(CAST(X'FE' AS STRING)) AS l, count(*) AS n FROM far",
    "alone": "WITH single AS (SELECT k + 1 AS k FROM single) SELECT k, count(*) AS n FROM single GROUP BY k",
    "odd": 'SELECT `a``b` AS `x``y`, `c.d` AS `select "q"`, count(*) AS `ü n` FROM named GROUP BY 1, 2',
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hw.App]:
    app = hw.App("odd", home=tmp_path_factory.mktemp("odd") / "home")
    app.table("far", "at TIMESTAMP, d DATE")
    app.table("mapped", "m MAP<STRING, INT>, v INT")
    app.table("named", "`a``b` INT, `c.d` STRING")
    app.table("single", "k INT")
    for name, sql in VIEWS.items():
        app.view(name, sql)
    far = pa.table(
        {
            "at": pa.array([0, LAST_US, 2**61, -(2**61)], pa.timestamp("us", "UTC")),
            "d": pa.array([0, 1, 3_000_000, -3_000_000], pa.date32()),
        }
    )
    app.get_table("far").insert(far)
    app.get_table("mapped").insert([{"m": {"p": 1, "q": 2}, "v": 1}, {"m": {"q": 2, "p": 1}, "v": 2}])
    app.get_table("named").insert([{"a`b": 1, "c.d": "x"}, {"a`b": 1, "c.d": "x"}])
    app.get_table("single").insert([{"k": 1}, {"k": 1}])
    app.tick()
    yield app
    app.close()


def test_times_outside_of_pythons_calendar_are_grouped_served_and_found(app: hw.App) -> None:
    hour = 3_600_000_000
    ends = sorted((us // hour + 1) * hour for us in (0, LAST_US, 2**61, -(2**61)))

    table = app.sql("SELECT ends FROM hours")

    assert sorted(table.column("ends").cast(pa.int64()).to_pylist()) == ends
    assert app.get_view("hours").get(ends[-1]) == [{"ends": ends[-1], "n": 1}]
    assert [row["list"] for row in app.get_view("days").get(d=3_000_000)] == [[2**61]]


def test_intervals_void_and_oddly_named_structs_are_held(app: hw.App) -> None:
    start = dt.datetime(2020, 1, 1)

    rows = app.sql("SELECT span, nothing FROM spans ORDER BY span").to_pylist()

    assert {"span": dt.datetime(1970, 1, 1) - start, "nothing": None} in rows
    assert app.get_view("zipped").get(n=4) == [{"z": [{"0": 1, "1": 3}, {"0": 2, "1": 4}], "n": 4}]


def test_maps_are_grouped_whatever_the_order_of_their_entries(app: hw.App) -> None:
    maps = app.get_table("mapped")
    maps.insert([{"m": {"q": 2, "p": 1}, "v": 4}])
    maps.delete([{"m": {"q": 2, "p": 1}, "v": 1}])
    app.tick()

    assert app.get_view("maps").get(m={"q": 2, "p": 1}) == [{"m": {"p": 1, "q": 2}, "n": 2, "s": 6}]


def test_odd_names_pass_right_through(app: hw.App) -> None:
    row = {"x`y": 1, 'select "q"': "x", "ü n": 2}

    assert app.sql("SELECT * FROM odd").to_pylist() == [row] == app.get_view("odd").get(1, "x")


def test_a_with_query_may_have_the_name_of_the_table_that_no_other_view_reads(app: hw.App) -> None:
    assert app.get_view("alone").get(2) == [{"k": 2, "n": 2}]


def test_equal_rows_that_meet_thousands_of_millions_of_times_are_summed(tmp_path: Path) -> None:
    with hw.App("many", home=tmp_path / "home") as app:  # of its own: Spark would have to make all these rows to verify
        debts = app.table("debts", "v BIGINT")
        many = app.view("many", "SELECT sum(a.v) AS s, count(*) AS n FROM debts a CROSS JOIN debts b")
        debts.insert(pa.table({"v": pa.array([-1] * EQUAL_ROWS, pa.int64())}))
        app.tick()

        assert many.get(n=EQUAL_ROWS**2) == [{"s": -(EQUAL_ROWS**2), "n": EQUAL_ROWS**2}]


def test_the_column_of_a_third_table_after_using_is_not_lost(tmp_path: Path) -> None:
    with hw.App("using", home=tmp_path / "home") as app:
        for name in "abc":
            app.table(name, f"k INT, {name} INT")
        app.view("v", "SELECT * FROM a JOIN b USING (k) JOIN c ON a.k < c.k")

        with pytest.raises(InvalidView, match='two columns are named "k"'):
            app.tick()


def test_text_that_is_no_utf8_is_shown_with_marks_and_verified(app: hw.App) -> None:
    assert app.get_view("bytes").get(n=4) == [{"s": "\ufffdA", "l": ["\ufffd"], "n": 4}]
    assert [each.view for each in app.verify() if not each.equal] == []


@pytest.mark.parametrize(
    ("what", "hint"),
    [
        ("'a' COLLATE UTF8_LCASE", "COLLATE UTF8_BINARY"),
        ("d - DATE'2020-01-01'", "CAST(… AS INTERVAL DAY TO SECOND)"),
        ("INTERVAL '1' YEAR", "extract(YEAR FROM …)"),
    ],
)
def test_a_type_that_cannot_be_held_is_refused_by_name(tmp_path: Path, what: str, hint: str) -> None:
    with hw.App("refused", home=tmp_path / "home") as app:
        app.table("t", "d DATE")
        app.view("v", f"SELECT array({what}) AS x FROM t")

        with pytest.raises(InvalidDeclaration, match='column "x" has type') as refused:
            app.tick()

    assert hint in str(refused.value)
