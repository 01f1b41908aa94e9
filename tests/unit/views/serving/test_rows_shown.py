"""Rows that are told apart, in SQL over the serving store: a reader's answers are those of a store of its rows alone.

The oracle is a second store, which was given nothing but the reader's rows.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.errors import HeadwaterError, InvalidQuery
from headwater.views.privacy.hidden_columns import HiddenColumns, hidden_from_json
from headwater.views.privacy.row_rules import RowsShown
from headwater.views.serving.serving_queries import Bounds
from headwater.views.serving.serving_store import ServingStore

COLUMNS = [("id", "BIGINT"), ("tenant", "STRING"), ("team", "BIGINT"), ("note", "STRING"), ("true", "STRING")]
ROWS = [
    (1, "o'neill", 7, "first", "x"),
    (2, "marker", 7, "marker", "marker"),
    (3, "o'neill", 7, None, "y"),
    (4, None, 7, "marker", "marker"),
    (5, "o'neill", 8, "marker", "marker"),
]
SHOWN = RowsShown("orders", (("team", ("7", "9")), ("tenant", ("o'neill",))))
NO: frozenset[str] = frozenset()


def table(rows):
    names = [name for name, _ in COLUMNS]
    return pa.table(
        {name: [row[place] for row in rows] for place, name in enumerate(names)} | {"_weight": [1] * len(rows)}
    )


def filled(path, rows):
    store = ServingStore(path)
    store.declare("orders", COLUMNS, ("id",))
    store.declare("prices", [("id", "BIGINT"), ("cents", "BIGINT")], ("id",))
    prices = pa.table({"id": [1, 2], "cents": [10, 20], "_weight": [1, 1]})
    store.apply(1, 1, {}, {"orders": table(rows), "prices": prices})
    return store


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    own = [row for row in ROWS if row[1] == "o'neill" and row[2] == 7]
    return filled(folder / "all.sqlite", ROWS), filled(folder / "own.sqlite", own)


def bounds(hidden=NO, **more):
    seen = {"orders": HiddenColumns(frozenset(hidden), rows=SHOWN, **more)}
    return Bounds(100, hidden=hidden_from_json({name: each.to_json() for name, each in seen.items()}))


QUERIES = [
    "SELECT * FROM orders",
    "SELECT * FROM orders LIMIT 1",
    "SELECT * FROM orders ORDER BY id DESC",
    "SELECT count(*) AS n FROM orders",
    "SELECT 1 AS one FROM ORDERS WHERE note = 'marker'",
    "SELECT max(id) AS m, group_concat(note) AS g FROM orders",
    "SELECT a.id, b.note FROM orders a JOIN orders b USING (id)",
    "SELECT p.id, o.tenant FROM prices p LEFT JOIN orders o USING (id) ORDER BY p.id",
    "SELECT p.id FROM prices p WHERE EXISTS (SELECT 1 FROM orders o WHERE o.id = p.id)",
    "WITH x AS (SELECT * FROM orders) SELECT x.* FROM x, orders WHERE x.id = orders.id",
    "SELECT id FROM orders UNION ALL SELECT id FROM orders ORDER BY 1",
    'SELECT "true" FROM orders WHERE team IS 7',
    "SELECT id FROM orders WHERE tenant = 'marker' OR 1 ORDER BY note IS NULL, note",
    # An error that comes from a row of another would tell of it.
    "SELECT id FROM orders WHERE CASE WHEN note = 'marker' THEN abs(-9223372036854775807 - 1) ELSE 1 END",
    "SELECT id FROM orders WHERE json_extract(coalesce(note, '1'), '$') IS NOT NULL OR json('1') AND note IS NULL",
    # SQLite looks at what an index has before it reads the row.
    "SELECT id FROM orders WHERE id BETWEEN 0 AND 9 AND CASE WHEN id = 2 THEN abs(-9223372036854775807 - 1) ELSE 1 END",
    "SELECT id FROM orders JOIN prices USING (id) WHERE CASE WHEN note = 'marker' THEN json(note) ELSE 1 END",
    "SELECT id FROM orders ORDER BY CASE WHEN note = 'marker' THEN json(note) ELSE 1 END",
    "SELECT id, sum(id) OVER (ORDER BY id) AS s FROM orders",
]


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("hidden", [(), ("tenant", "note")], ids=["shown", "masked"])
def test_answers_are_those_of_a_store_of_the_rows_alone(stores, sql, hidden):
    every, own = stores

    def asked(store, within):
        try:
            return store.asked(sql, (), within)[1].to_pylist()
        except HeadwaterError as error:
            return error.message

    answer = asked(every, bounds(hidden))
    expected = asked(own, Bounds(100, hidden={"orders": HiddenColumns(frozenset(hidden))}))

    assert answer == expected


@pytest.mark.parametrize(
    "source",
    [
        "main.orders",
        'MAIN."orders"',
        "[main].[orders]",
        '"orders@1"',
        'main."orders@1"',
        "sqlite_temp_master",
        "temp.sqlite_temp_schema",
        '"_headwater_rows_"',
        "pragma_table_info('orders')",
        "(SELECT * FROM main.orders)",
        "orders JOIN main.orders USING (id)",
    ],
)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {}",
        "SELECT count(*) FROM {}",
        "SELECT 1 FROM {}",
        "WITH orders AS (SELECT * FROM {}) SELECT * FROM orders",
        "SELECT id FROM orders WHERE id IN (SELECT id FROM {})",
        "SELECT EXISTS (SELECT 1 FROM {} WHERE 1)",
        "SELECT (SELECT max(id) FROM {}) FROM orders",
    ],
)
def test_no_other_name_leads_to_the_other_rows(stores, source, query):
    with pytest.raises(HeadwaterError) as refused:
        stores[0].asked(query.format(source), (), bounds())

    assert "marker" not in str(refused.value)


def test_a_closed_view_is_refused_with_the_reason(stores):
    within = Bounds(100, hidden={"orders": HiddenColumns(NO, closed="its rows are of others")})

    for sql in ("SELECT * FROM orders", "SELECT count(*) FROM orders", 'SELECT 1 FROM main."orders@1"'):
        with pytest.raises(InvalidQuery, match=r'a query cannot read "orders.*": its rows are of others'):
            stores[0].asked(sql, (), within)
    assert stores[0].asked("SELECT id FROM prices", (), within)[1].num_rows == 2


def test_a_view_whose_rows_cannot_be_told_apart_is_closed_and_others_are_not(stores):
    within = Bounds(100, hidden={"prices": HiddenColumns(NO, rows=RowsShown("prices", (("tenant", ("a",)),)))})

    with pytest.raises(InvalidQuery, match='rows_by of "prices" names "tenant", which is not a column of it'):
        stores[0].asked("SELECT * FROM prices", (), within)
    assert stores[0].asked("SELECT * FROM orders", (), within)[1].num_rows == 5


def test_rows_by_key_and_first_rows(stores):
    every, own = stores

    for columns in ({"id": 1}, {"id": 2}, {"id": 5}, {"note": "marker"}, {"team": 7}, {"tenant": None}):
        assert every.found("orders", columns, bounds())[1].equals(own.found("orders", columns, Bounds(100))[1])
    assert every.first("orders", bounds())[1].equals(own.first("orders", Bounds(100))[1])


def test_the_next_reader_of_the_connection_sees_its_own_rows(stores):
    every, _ = stores
    sql = "SELECT id FROM orders ORDER BY id"

    seen = [
        every.asked(sql, (), within)[1].column("id").to_pylist()
        for within in (Bounds(100), bounds(), Bounds(100), bounds(("note",)), Bounds(100))
    ]

    assert seen == [[1, 2, 3, 4, 5], [1, 3], [1, 2, 3, 4, 5], [1, 3], [1, 2, 3, 4, 5]]
