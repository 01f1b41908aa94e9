"""All rows of a view as dicts, Arrow or pandas: from the serving store, and what Spark reads is the same.

What it is: one app that ticks, and a second handle of it that only reads.
Invariants: reading a served view starts no Spark; a view that is not served is read by Spark.
Not here: queries (``test_views_read.py``), types in the store (``tests/unit/views/serving``).
Read next: ``views/view.py``.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import Misuse, NotYetCovered

pytestmark = pytest.mark.usefixtures("spark")
SCHEMA = "id BIGINT, at TIMESTAMP, day DATE, price DECIMAL(20,2), tags ARRAY<STRING>, sizes MAP<STRING, INT>, x DOUBLE"
ROWS = [
    {
        "id": 1,
        "at": dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC),
        "day": dt.date(2026, 1, 1),
        "price": Decimal("123456789012345678.90"),
        "tags": ["a", None],
        "sizes": {"s": 1},
        "x": 1.5,
    },
    {"id": 2, "at": None, "day": None, "price": None, "tags": None, "sizes": None, "x": None},
]


def declare(home: Path) -> hw.App:
    app = hw.App("shop", home=home)
    app.table("odd", SCHEMA, key="id")
    app.view("everything", "SELECT * FROM odd")
    app.view("hidden", "SELECT id FROM odd", serve=False)
    app.view("bag", "SELECT 1 AS one FROM odd")
    return app


def by_id(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: str(row["id"]))


def test_a_served_view_is_read_without_spark_and_as_spark_reads_it(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        token = app.get_table("odd").upsert(ROWS)
        app.tick()
        expected = app.sql("SELECT * FROM everything")

        with declare(tmp_path) as reader:
            view = reader.get_view("everything")
            table = view.to_arrow(at_least=str(token))

            assert by_id(list(view.rows(at_least=token))) == by_id(ROWS)
            assert table.schema.names == expected.schema.names
            assert table.schema.types == expected.schema.types
            assert by_id(table.to_pylist()) == by_id(expected.to_pylist())
            assert sorted(view.to_pandas()["id"]) == [1, 2]
            assert list(reader.get_view("bag").rows()) == [{"one": 1}, {"one": 1}]
            assert all(word in view._repr_html_() for word in ("DECIMAL(20,2)", ">tick<", ">2<"))
            assert reader._runtime.running_spark is None

            assert sorted(row["id"] for row in reader.get_view("hidden").rows(at_least=token)) == [1, 2]
            assert reader._runtime.running_spark is not None


def test_a_view_is_verified_by_itself(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        app.get_table("odd").upsert(ROWS)
        with pytest.raises(Misuse, match='view "bag" has nothing to verify'):
            app.get_view("bag").verify()
        app.tick()

        found = app.get_view("bag").verify()

        assert (found.view, found.equal, found.rows) == ("bag", True, 2)
        assert [each.view for each in app.verify()] == ["everything", "hidden", "bag"]


@pytest.mark.parametrize("name", ["everything", "hidden"])
def test_before_its_first_tick_a_view_has_no_rows_to_give(tmp_path: Path, name: str) -> None:
    with declare(tmp_path) as app:
        with pytest.raises(NotYetCovered, match=f'view "{name}" has no rows yet'):
            app.get_view(name).to_arrow()
        with pytest.raises(NotYetCovered, match=f'view "{name}" has no rows yet'):
            list(app.get_view(name).rows())
        token = app.get_table("odd").upsert(ROWS)
        with pytest.raises(NotYetCovered, match="have not reached"):
            app.get_view(name).to_arrow(at_least=token, timeout=0.05)


def test_a_function_view_is_the_name_it_decorates(tmp_path: Path) -> None:
    with declare(tmp_path) as app:

        @app.view_function(inputs=[app.get_table("odd")])
        def priced(odd):  # type: ignore[no-untyped-def]
            return odd.where("price IS NOT NULL").select("id")

        app.get_table("odd").upsert(ROWS)
        app.tick()

        assert (priced.name, list(priced.rows()), priced.columns) == ("priced", [{"id": 1}], ["id"])
