"""The serving store: whole ticks, once each, and what readers see of them."""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ClosedError, Corruption, Fenced, InvalidDeclaration, Misuse, Unavailable
from headwater.log.token import Token
from headwater.views.serving.serving_store import ServingStore

ROOT = Path(__file__).parents[4]
THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
REVENUE = [("country", "STRING"), ("total", "DOUBLE")]
SCHEMA = pa.schema([("country", pa.string()), ("total", pa.float64()), ("_weight", pa.int64())])

Row = tuple[Any, ...]


def changes(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def contents(store: ServingStore, view: str = "revenue") -> list[Row]:
    return sorted((tuple(row.values()) for row in store.query(f"SELECT * FROM {view}").to_pylist()), key=repr)


@pytest.fixture
def store(tmp_path: Path):
    with ServingStore(tmp_path / "serving.sqlite") as store:
        yield store


@pytest.fixture(params=[("country",), ()], ids=["with a key", "a bag"])
def revenue(request: pytest.FixtureRequest, store: ServingStore) -> ServingStore:
    assert store.declare("revenue", REVENUE, request.param, "first")
    store.apply(1, 1, {"orders": {0: 10}}, {"revenue": changes(("DE", 1.0, 1), ("FR", 2.0, 1), (None, 0.5, 1))})
    return store


@pytest.mark.parametrize("key", [("TRUE",), ()], ids=["with a key", "a bag"])
def test_columns_named_true_and_false_are_read_by_their_names(store: ServingStore, key: tuple[str, ...]) -> None:
    store.declare("odd", [("TRUE", "BIGINT"), ("false", "DATE")], key)
    store.declare("plain", [("said", "STRING")], ())
    rows = pa.table({"TRUE": [7, 8], "false": pa.array([0, 1], pa.date32()), "_weight": [1, 1]})
    store.apply(1, 1, {}, {"odd": rows, "plain": pa.table({"said": ["true"], "_weight": [1]})})
    store.apply(2, 1, {}, {"odd": rows.slice(1).set_column(2, "_weight", pa.array([-1]))})
    row = {"TRUE": 7, "false": dt.date(1970, 1, 1)}

    assert store.query("SELECT * FROM odd").to_pylist() == [row] == store.get("odd", TRUE=7)
    asked = """SELECT "true", o.[FALSE] AS d, '"true"' AS t, true AS yes FROM odd o WHERE `True` = 7 -- "false" """
    assert store.query(asked).to_pylist() == [{"TRUE": 7, "d": dt.date(1970, 1, 1), "t": '"true"', "yes": 1}]
    nested = 'WITH x AS (SELECT "true" + 1 AS "false" FROM odd) SELECT "false" FROM x'
    assert store.query(nested).to_pylist() == [{"false": 8}]
    # Where no view has such a column, SQLite takes the name for a text, as always.
    assert store.query('SELECT said = "true" AS same FROM plain').to_pylist() == [{"same": 1}]


def test_a_tick_changes_adds_and_takes_away(revenue: ServingStore) -> None:
    tick = changes(("DE", 1.0, -1), ("DE", 4.0, 1), (None, 0.5, -1), ("AT", 3.0, 1))

    assert revenue.apply(2, 1, {"orders": {0: 12}}, {"revenue": tick})

    assert contents(revenue) == [("AT", 3.0), ("DE", 4.0), ("FR", 2.0)]
    assert (revenue.tick, str(revenue.frontier)) == (2, "orders:0=12")


def test_a_tick_that_is_applied_again_changes_nothing(revenue: ServingStore) -> None:
    assert revenue.apply(1, 1, {}, {"revenue": changes(("DE", 9.0, 1))}) is False
    assert revenue.apply(0, 2, {}, {"revenue": changes(("DE", 9.0, 1))}) is False

    assert len(contents(revenue)) == 3
    assert str(revenue.frontier) == "orders:0=10"


def test_a_gap_between_ticks_is_refused(revenue: ServingStore) -> None:
    with pytest.raises(Misuse, match="tick 3 cannot follow tick 1"):
        revenue.apply(3, 1, {}, {})

    assert revenue.tick == 1


def test_an_older_epoch_is_shut_out(revenue: ServingStore) -> None:
    revenue.apply(2, 5, {}, {})

    with pytest.raises(Fenced, match="epoch 5, this one 4"):
        revenue.apply(3, 4, {}, {"revenue": changes(("XX", 0.0, 1))})
    with pytest.raises(Fenced):
        revenue.apply(2, 4, {}, {})

    assert revenue.apply(3, 5, {}, {})
    assert revenue.progress.epoch == 5


@pytest.mark.parametrize(
    "wrong",
    [
        [("XX", 1.0, -1)],
        [("DE", 1.5, -1)],  # the key is there, the row is not
        [("DE", 1.0, -2)],
        [("DE", 1.5, -1), ("DE", 2.0, 1)],
    ],
    ids=["no such key", "another row", "twice", "an update of another row"],
)
def test_a_row_that_leaves_without_being_there_is_corruption(revenue: ServingStore, wrong: list[Row]) -> None:
    before = contents(revenue)

    with pytest.raises(Corruption, match='leaves view "revenue" is not in the serving store'):
        revenue.apply(2, 1, {}, {"revenue": changes(("FR", 2.0, -1), *wrong)})

    assert contents(revenue) == before
    assert revenue.tick == 1


def test_a_key_that_comes_twice_is_corruption(store: ServingStore) -> None:
    store.declare("revenue", REVENUE, ("country",))
    store.apply(1, 1, {}, {"revenue": changes(("DE", 1.0, 1))})

    with pytest.raises(Corruption, match=r"have the same key \(country\)"):
        store.apply(2, 1, {}, {"revenue": changes(("DE", 2.0, 1))})

    assert contents(store) == [("DE", 1.0)]


def test_views_move_together_or_not_at_all(revenue: ServingStore) -> None:
    revenue.declare("other", REVENUE, ("country",), "other")

    with pytest.raises(Corruption):
        revenue.apply(2, 1, {}, {"revenue": changes(("IT", 1.0, 1)), "other": changes(("IT", 1.0, -1))})

    assert ("IT", 1.0) not in contents(revenue)


def test_a_bag_holds_equal_rows_several_times(store: ServingStore) -> None:
    store.declare("revenue", REVENUE)

    store.apply(1, 1, {}, {"revenue": changes(("DE", float("nan"), 3), (None, -0.0, 2))})
    store.apply(2, 1, {}, {"revenue": changes(("DE", float("nan"), -2), (None, 0.0, -1))})

    assert str(contents(store)) == "[('DE', nan), (None, 0.0)]"


STEPS = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=5), max_size=8)


@settings(max_examples=25 * THOROUGH, deadline=None)
@given(states=STEPS, keyed=st.booleans())
def test_the_store_follows_a_model(tmp_path_factory: pytest.TempPathFactory, states: Any, keyed: bool) -> None:
    with ServingStore(tmp_path_factory.mktemp("store") / "serving.sqlite") as store:
        store.declare("revenue", REVENUE, ("country",) if keyed else ())
        before: Counter[Row] = Counter()
        for tick, rows in enumerate(states):
            after = Counter(dict(rows).items()) if keyed else Counter(rows)
            moved = Counter(after)
            moved.subtract(before)
            store.apply(tick, 1, {}, {"revenue": changes(*((*row, many) for row, many in moved.items() if many))})
            before = after

        assert contents(store) == sorted(((name, float(total)) for name, total in before.elements()), key=repr)


# Filling in bulk, and another query under the same name


def test_a_reset_replaces_all_rows(revenue: ServingStore) -> None:
    rows = changes(("DE", 7.0, 1), ("IT", 8.0, 1)).drop_columns("_weight")

    revenue.reset("revenue", rows.to_reader(max_chunksize=1))
    revenue.apply(2, 1, {}, {"revenue": changes(("IT", 8.0, -1))})

    assert contents(revenue) == [("DE", 7.0)]


def test_a_reset_that_fails_leaves_the_old_rows(revenue: ServingStore) -> None:
    before = contents(revenue)
    batch = changes(("DE", 7.0, 1)).drop_columns("_weight").to_batches()[0]

    def broken() -> Any:
        yield batch
        raise RuntimeError("the disk went away")

    with pytest.raises(RuntimeError):
        revenue.reset("revenue", pa.RecordBatchReader.from_batches(batch.schema, broken()))

    assert contents(revenue) == before
    with closing(sqlite3.connect(revenue.path)) as db:
        assert db.execute("SELECT count(*) FROM _headwater_tables").fetchone() == (1,)


def test_rows_of_a_later_tick_are_not_changed_by_earlier_ones(revenue: ServingStore) -> None:
    rows = changes(("DE", 7.0, 1)).drop_columns("_weight")

    revenue.reset("revenue", rows.to_reader(), tick=3)
    for tick in (2, 3):
        revenue.apply(tick, 1, {}, {"revenue": changes(("gone", 1.0, -1))})
    revenue.apply(4, 1, {}, {"revenue": changes(("IT", 1.0, 1))})

    assert contents(revenue) == [("DE", 7.0), ("IT", 1.0)]


def test_an_empty_store_begins_with_the_first_tick_or_where_it_is_told(store: ServingStore) -> None:
    store.declare("revenue", REVENUE, ("country",))

    with pytest.raises(Misuse, match="tick 500 cannot follow"):
        store.apply(500, 3, {}, {})
    store.reset("revenue", changes(("DE", 7.0, 1)).drop_columns("_weight").to_reader())
    store.set_progress(499, 3, {"orders": {0: 7}})
    store.apply(500, 3, {"orders": {0: 8}}, {"revenue": changes(("DE", 7.0, -1))})

    assert contents(store) == []
    with pytest.raises(Fenced):
        store.set_progress(1, 2, {})


def test_another_fingerprint_is_filled_beside_and_swapped_in(revenue: ServingStore) -> None:
    before = contents(revenue)

    assert revenue.declare("revenue", [("country", "STRING"), ("orders", "BIGINT")], (), "second")
    table = pa.table({"country": ["DE"], "orders": [3]})
    revenue.reset("revenue", table.to_reader())
    revenue.apply(2, 1, {}, {"revenue": table.append_column("_weight", pa.array([1]))})
    still = contents(revenue)
    swapped = revenue.swap("revenue"), revenue.swap("revenue")

    assert still == before
    assert swapped == (True, False)
    assert contents(revenue) == [("DE", 3), ("DE", 3)]
    assert revenue.views()["revenue"].fingerprint == "second"


def test_a_swap_can_be_part_of_a_tick(revenue: ServingStore) -> None:
    key = revenue.views()["revenue"].key
    revenue.declare("revenue", REVENUE, key, "second")

    with pytest.raises(Corruption):
        revenue.apply(2, 1, {}, {"revenue": changes(("DE", 1.0, -1))}, swap=["revenue"])
    refused = contents(revenue)
    revenue.apply(2, 1, {}, {"revenue": changes(("DE", 9.0, 1))}, swap=["revenue"])

    assert len(refused) == 3
    assert contents(revenue) == [("DE", 9.0)]


def test_rows_that_come_and_go_in_one_tick_leave_no_trace(revenue: ServingStore) -> None:
    before = contents(revenue)

    revenue.apply(2, 1, {}, {"revenue": changes(("IT", 1.0, 1), ("IT", 1.0, -1), ("DE", 1.0, -1), ("DE", 1.0, 1))})

    assert contents(revenue) == before


def test_declaring_again_makes_nothing_anew(revenue: ServingStore) -> None:
    key = revenue.views()["revenue"].key
    rows = contents(revenue)

    again = revenue.declare("revenue", REVENUE, key, "first")
    other = revenue.declare("revenue", REVENUE, key, "second"), revenue.declare("revenue", REVENUE, key, "second")
    back = revenue.declare("revenue", REVENUE, key, "first")

    assert (again, other, back) == (False, (True, False), False)
    assert revenue.swap("revenue") is False
    assert contents(revenue) == rows


def test_a_view_can_be_dropped(revenue: ServingStore) -> None:
    revenue.drop("revenue")

    assert revenue.views() == {}
    with pytest.raises(InvalidDeclaration, match='no view "revenue"'):
        revenue.get("revenue", country="DE")


# Reading


def test_a_point_read_gives_sparks_types(store: ServingStore) -> None:
    columns = [("id", "BIGINT"), ("price", "DECIMAL(20,2)"), ("day", "DATE"), ("tags", "ARRAY<STRING>")]
    store.declare("items", columns, ("id", "day"))
    row = {"id": 1, "price": Decimal("9.50"), "day": dt.date(2026, 1, 31), "tags": ["a", None]}
    store.apply(0, 1, {}, {"items": pa.Table.from_pylist([{**row, "_weight": 1}])})

    assert store.get("items", 1, dt.date(2026, 1, 31)) == [row]
    assert store.get("items", price=Decimal("9.5")) == [row]
    assert store.get("items", 2, dt.date(2026, 1, 31)) == []


@pytest.mark.parametrize(
    ("arguments", "columns", "words"),
    [
        (("revenu", "DE"), {}, 'Did you mean "revenue"?'),
        (("revenue",), {}, "needs a key"),
        (("revenue", "DE", 1), {}, "values were given"),
        (("revenue",), {"county": "DE"}, 'has no column "county"'),
        (("revenue",), {"total": "much"}, "expected DOUBLE"),
    ],
)
def test_a_wrong_point_read_is_told(revenue: ServingStore, arguments: Any, columns: Any, words: str) -> None:
    with pytest.raises(Misuse) as refused:
        revenue.get(*arguments, **columns)

    assert words in str(refused.value)


def test_a_query_restores_the_types_of_columns_through_joins_and_subqueries(store: ServingStore) -> None:
    store.declare("items", [("id", "INT"), ("price", "DECIMAL(20,2)"), ("at", "TIMESTAMP")], ("id",))
    price, at = pa.array([Decimal("9.50")], pa.decimal128(20, 2)), pa.array([0], pa.timestamp("us", "UTC"))
    ids = pa.array([1], pa.int32())
    store.apply(0, 1, {}, {"items": pa.table({"id": ids, "price": price, "at": at, "_weight": [1]})})

    answer = store.query(
        "WITH x AS (SELECT * FROM items) SELECT x.*, y.price AS other, x.id + ? AS n, '?' AS mark "
        "FROM x JOIN items y ON x.id = y.id WHERE x.id = ?2",
        [5, 1],
    )
    empty = store.query("SELECT id, price FROM items WHERE id = ?", [2])

    assert answer.schema.types == [
        pa.int32(),
        pa.decimal128(20, 2),
        pa.timestamp("us", "UTC"),
        pa.decimal128(20, 2),
        pa.int64(),
        pa.string(),
    ]
    assert (answer["n"][0].as_py(), answer["mark"][0].as_py()) == (6, "?")
    assert empty.schema.types == [pa.int32(), pa.decimal128(20, 2)]


def test_long_decimals_compare_as_numbers(store: ServingStore) -> None:
    store.declare("items", [("price", "DECIMAL(30,2)")])
    prices = pa.array([Decimal("9.50"), Decimal("100.00"), Decimal("-3.00")], pa.decimal128(30, 2))
    store.apply(0, 1, {}, {"items": pa.table({"price": prices, "_weight": [1, 1, 1]})})

    above = store.query("SELECT price FROM items WHERE price > 9 ORDER BY price DESC")

    assert above["price"].to_pylist() == [Decimal("100.00"), Decimal("9.50")]


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM revenue",
        "SELECT 1; DROP VIEW revenue",
        "ATTACH 'other.sqlite' AS other",
        "PRAGMA journal_mode = DELETE",
        "SELECT * FROM revenu",
        "SELECT nothing FROM revenue",
        "SELECT * FROM revenue WHERE total = ?",
        "",
    ],
)
def test_a_query_that_is_no_select_or_is_wrong_is_told_and_changes_nothing(revenue: ServingStore, sql: str) -> None:
    with pytest.raises(Misuse, match="the query cannot be run"):
        revenue.query(sql)

    assert len(contents(revenue)) == 3


def test_a_store_that_is_not_there_yet_is_told(tmp_path: Path) -> None:
    store = ServingStore(tmp_path / "serving.sqlite")

    assert store.tick == -1
    assert store.wait(0, timeout=0) is False
    with pytest.raises(Unavailable, match="there is no serving store"):
        store.query("SELECT 1")


def test_a_closed_store_is_told(store: ServingStore) -> None:
    store.close()

    with pytest.raises(ClosedError):
        store.declare("revenue", REVENUE)


@pytest.mark.parametrize("name", ["sqlite_x", "_headwater_progress", "a@1"])
def test_names_that_sqlite_or_the_store_needs_are_refused(store: ServingStore, name: str) -> None:
    with pytest.raises(InvalidDeclaration, match="cannot be served"):
        store.declare(name, REVENUE)


def test_a_waiter_is_woken_by_a_tick_or_a_frontier(revenue: ServingStore, tmp_path: Path) -> None:
    found: dict[str, bool] = {}
    with ServingStore(tmp_path / "serving.sqlite") as one, ServingStore(tmp_path / "serving.sqlite") as other:
        waiters = [
            threading.Thread(target=lambda: found.update(tick=one.wait(2, timeout=60))),
            threading.Thread(target=lambda: found.update(token=other.wait(Token({"orders": {0: 15}}), timeout=60))),
        ]
        for waiter in waiters:
            waiter.start()

        revenue.apply(2, 1, {"orders": {0: 20}}, {})
        for waiter in waiters:
            waiter.join()

    assert found == {"tick": True, "token": True}
    assert revenue.wait(3, timeout=0.01) is False


READER = """
import sys
from headwater.views.serving.serving_store import ServingStore
store = ServingStore(sys.argv[1])
print(store.get("revenue", country="DE"), store.tick)
assert store.wait(2, timeout=60)
print(store.get("revenue", country="DE"), store.tick)
print({"pyspark", "py4j", "typer"} & set(sys.modules))
"""


def test_another_process_reads_and_waits_without_spark(revenue: ServingStore) -> None:
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(revenue.path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert reader.stdout is not None
    first = reader.stdout.readline()

    revenue.apply(2, 1, {}, {"revenue": changes(("DE", 1.0, -1), ("DE", 5.0, 1))})
    rest, _ = reader.communicate(timeout=60)

    assert first == "[{'country': 'DE', 'total': 1.0}] 1\n"
    assert rest.splitlines() == ["[{'country': 'DE', 'total': 5.0}] 2", "set()"]


def test_a_store_that_is_just_being_made_has_no_views_yet(tmp_path: Path) -> None:
    path = tmp_path / "serving.sqlite"
    sqlite3.connect(path).execute("PRAGMA journal_mode = WAL")

    with ServingStore(path) as store:
        assert (store.views(), store.tick) == ({}, -1)
        with pytest.raises(Misuse, match="no such table: revenue"):
            store.query("SELECT * FROM revenue")
        with pytest.raises(InvalidDeclaration, match='no view "revenue"'):
            store.get("revenue", 1)
        with ServingStore(path) as writer:
            writer.declare("revenue", [("country", "STRING")], ["country"])
        assert list(store.views()) == ["revenue"]
