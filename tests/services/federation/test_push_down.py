"""Push-down changes no answer: with it and without it, a query gives the same rows, for every store.

What it is: random predicates and joins over odd rows, answered both ways by one Spark.
Invariants: a store returns at least the rows that Spark lets pass (most predicates are tried on this, for it needs one
query of Spark for many of them). Each kind of store is asked something and leaves rows out.
Not here: what is pushed in detail (``tests/unit/federation/test_table_references.py``).
Read next: ``odd_rows.py``, ``predicates.py``.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.federation.stores import Stores, described
from headwater.federation.table_references import needs, separate
from headwater.views.compiler.frontend.parse import trees
from headwater.views.compiler.sql.dialect import text
from headwater.views.serving.snapshot import QueryReply
from tests.services.federation.odd_rows import POOLS
from tests.services.federation.predicates import predicates

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
TABLES = {
    "postgres": "pg.public.odd",
    "mysql": "maria.odd",
    "sqlite": "lite.odd",
    "parquet": "odd_parquet",
    "csv": "odd_csv",
    "delta": "odd_delta",
}
COLUMNS = ["id", *POOLS]
# What a store has otherwise than the others: a truth is a number in MariaDB, SQLite has no types for some.
MISSING = {"mysql": {"active"}, "sqlite": {"small", "price"}, "csv": {"at"}}
# No shrinking: each try is two queries of Spark, and a failing predicate names itself.
QUICK = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    database=None,
)


def columns_of(kind: str) -> list[str]:
    return [name for name in COLUMNS if name not in MISSING.get(kind, ())]


def chosen(many: int) -> st.SearchStrategy[dict[str, list[str]]]:
    """So many predicates for each kind of store."""
    return st.fixed_dictionaries(
        {kind: st.lists(predicates(columns_of(kind)), min_size=many, max_size=many) for kind in TABLES}
    )


def fetched_ids(stores: Stores, single: dict[str, bool], sql: str) -> tuple[set[int], bool]:
    """The ids that a store returns for a query, before Spark sees them; and whether it was asked to filter."""
    tree, mentions = separate(trees(sql)[0], single, ())
    shapes = described(stores, mentions)
    (need,) = needs(tree, shapes, {}, written=text, sql=sql)
    rows, report = stores.fetch(mentions[0], shapes[0], need)
    return set(rows.column("id").to_pylist()), bool(report.asked)


def test_a_store_returns_every_row_that_passes_in_spark(shop: hw.App) -> None:
    seen: Counter[str] = Counter()
    attached = dict(shop.attachments)
    single = {name: each.address.is_one_table for name, each in attached.items()}

    @settings(QUICK, max_examples=3 * THOROUGH)
    @given(found=chosen(25))
    def none_is_missing(found: dict[str, list[str]]) -> None:
        for kind, wheres in found.items():
            truths = ", ".join(f"({where}) AS b{number}" for number, where in enumerate(wheres))
            rows = shop.sql_reply(f"SELECT id, {truths} FROM {TABLES[kind]}", push_down=False).table.to_pylist()
            with Stores(attached) as stores:
                for number, where in enumerate(wheres):
                    passing = {row["id"] for row in rows if row[f"b{number}"]}
                    ids, asked = fetched_ids(stores, single, f"SELECT id FROM {TABLES[kind]} WHERE {where}")
                    assert passing - ids == set(), (kind, where)
                    seen[f"{kind} asked"] += asked
                    seen[f"{kind} left out"] += len(rows) - len(ids)

    none_is_missing()

    for kind in TABLES:  # else this would prove nothing
        assert seen[f"{kind} asked"] > 0
        assert seen[f"{kind} left out"] > 0


@settings(QUICK, max_examples=3 * THOROUGH)
@given(found=chosen(3))
def test_a_filter_gives_the_same_rows_where_it_is_pushed_down(shop: hw.App, found: dict[str, list[str]]) -> None:
    branches = [(kind, where) for kind, wheres in found.items() for where in wheres]
    sql = " UNION ALL ".join(
        f"SELECT {number} AS branch, id FROM {TABLES[kind]} WHERE {where}"
        for number, (kind, where) in enumerate(branches)
    )

    pushed, plain = shop.sql_reply(sql), shop.sql_reply(sql, push_down=False)

    wrong = differences(pushed, plain)
    assert wrong == [], [branches[number] for number, *_ in wrong][:1]


def differences(one: QueryReply, other: QueryReply) -> list[tuple[Any, ...]]:
    found, expected = (Counter(tuple(row.values()) for row in each.table.to_pylist()) for each in (one, other))
    return sorted((expected - found) + (found - expected), key=str)


# Rows that an outer join fills up pass these: the filters that must not go before it.
PASS_NULLS = ["f.name IS NULL", "f.code IS NULL OR f.id < 30", "NOT (f.id IS NOT NULL AND f.name IS NOT NULL)"]
JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]


@st.composite
def joins(draw: st.DrawFn) -> str:
    """A join of our table with one or two foreign ones, in any order, with conditions in ON and WHERE."""
    where = st.one_of(st.none(), st.sampled_from(PASS_NULLS), predicates(["f.id", "f.large", "f.name"]))
    first = draw(st.sampled_from(JOINS))
    on = draw(where)
    condition = "o.k = f.large" + (f" AND {on}" if on else "")
    sides = (
        ("own o", "lite.odd f")
        if "SEMI" in first or "ANTI" in first or draw(st.booleans())
        else ("lite.odd f", "own o")
    )
    sql = f"FROM {sides[0]} {first} {sides[1]} ON {condition}"
    hidden = "SEMI" in first or "ANTI" in first
    if not hidden and draw(st.booleans()):
        sql += f" {draw(st.sampled_from(JOINS[:4]))} pg.odd g ON g.id = {draw(st.sampled_from(['f.id', 'o.k']))}"
        sql += draw(st.sampled_from(["", " AND g.small > 1", " AND g.small IS NULL"]))
    kept = None if hidden else draw(where)
    columns = "o.k, CAST(NULL AS BIGINT)" if hidden else "o.k, f.id"
    return f"SELECT {columns} {sql}" + (f" WHERE {kept}" if kept else "")


@settings(QUICK, max_examples=5 * THOROUGH)
@given(found=st.lists(joins(), min_size=5, max_size=5))
def test_a_join_gives_the_same_rows_where_its_filters_are_pushed_down(shop: hw.App, found: list[str]) -> None:
    parts = [f"SELECT {number} AS branch, * FROM ({sql}) AS x(k, id)" for number, sql in enumerate(found)]
    sql = " UNION ALL ".join(parts)

    pushed, plain = shop.sql_reply(sql), shop.sql_reply(sql, push_down=False)

    wrong = differences(pushed, plain)
    assert wrong == [], [found[branch] for branch, *_ in wrong][:1]
