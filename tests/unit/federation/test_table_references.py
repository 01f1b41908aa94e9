"""Which columns and conjuncts of a query go to a foreign table; no store and no Spark is needed for that."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.federation.conditions import Condition, text_of
from headwater.federation.store import LIKE, NULL, ORDERED, StoreColumn, StoreTable
from headwater.federation.table_references import Need, needs, separate
from headwater.views.compiler.frontend.parse import trees
from headwater.views.compiler.sql.dialect import text as spelled

TYPES = {
    "id": pa.int64(),
    "age": pa.int32(),
    "name": pa.string(),
    "price": pa.decimal128(10, 2),
    "score": pa.float64(),
    "born": pa.date32(),
    "at": pa.timestamp("us", tz="UTC"),
    "active": pa.bool_(),
}
COLUMNS = tuple(StoreColumn(name, arrow, ORDERED | LIKE | NULL) for name, arrow in TYPES.items())
OWN = {"revenue": ["id", "total"], "orders": ["order_id", "user_id"]}


def needed(sql: str, **options: Any) -> list[Need]:
    tree, mentions = separate(trees(sql)[0], {"crm": False, "prices": True}, list(OWN))
    shapes = [StoreTable(".".join((each.store, *each.parts)), each.parts, COLUMNS) for each in mentions]
    return needs(tree, shapes, OWN, written=spelled, sql=sql, **options)


def text(condition: Condition | None) -> str:
    return "everything" if condition is None else text_of(condition)


def asked(where: str) -> str:
    (need,) = needed(f"SELECT c.id FROM crm.public.customers c WHERE {where}")
    return text(need.condition)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("age = 5 AND name = 'a'", "(age = 5 and name = a)"),
        ("5 < c.age", "age > 5"),
        ("age BETWEEN -1 AND 7", "(age >= -1 and age <= 7)"),
        ("age NOT BETWEEN 1 AND 7", "(age < 1 or age > 7)"),
        ("NOT (age = 1 OR name LIKE 'x%' AND id = 2)", "age <> 1"),
        ("NOT (age < 1 AND id = 2)", "(age >= 1 or id <> 2)"),
        ("age IN (1, 2)", "age in (1, 2)"),
        ("age NOT IN (1, 2)", "(age <> 1 and age <> 2)"),
        ("name IS NULL OR name IS NOT NULL", "(name is null or name is not null)"),
        ("active AND NOT active", "(active = True and active = False)"),
        ("price > 7.50 AND score < 1e3", "(price > 7.50 and score < 1000.0)"),
        ("born >= DATE '2024-02-29' AND born < '2025-01-01'", "(born >= 2024-02-29 and born < 2025-01-01)"),
        ("at >= TIMESTAMP '2024-01-01 10:00:00.5'", "at >= 2024-01-01 10:00:00.500000"),
        ("at >= '2024-01-01'", "at >= 2024-01-01 00:00:00"),
        ("name LIKE 'a%' AND upper(name) = 'A'", "name like a%"),
    ],
)
def test_what_a_store_is_asked(where: str, expected: str) -> None:
    assert asked(where) == expected


@pytest.mark.parametrize(
    "where",
    [
        "upper(name) = 'A'",
        "age + 1 = 5",
        "age = 5 OR upper(name) = 'A'",
        "name = 5",
        "name NOT LIKE 'a%'",
        "name LIKE 'a!%' ESCAPE '!'",
        "name = 'a\\n'",
        "age = 5D",
        "age = 5e0",
        "price = 1e0",
        "price = 0.12345678901234567890123456789012345",
        "score = 9007199254740993",
        "id <= 9223372036854775808",
        "id > -9223372036854775809",
        "age = NULL",
        "age <=> 5",
        "age = id",
        "age IN (SELECT order_id FROM orders)",
        "born = TIMESTAMP '2024-01-01 10:00:00'",
        "born = '2024-02-30'",
        "at = '2024-01-01 10:00:00+02:00'",
        "at = '2024-1-1'",
        "rand() < 0.5",
        "c.age = (SELECT max(order_id) FROM orders)",
    ],
)
def test_what_a_store_is_not_asked(where: str) -> None:
    assert asked(where) == "everything"


@pytest.mark.parametrize(
    ("joins", "expected"),
    [
        ("revenue r JOIN crm.t c ON r.id = c.id AND c.age > 1 WHERE c.name = 'a'", "(name = a and age > 1)"),
        ("revenue r, crm.t c WHERE r.id = c.id AND c.age IS NULL", "age is null"),
        ("revenue r LEFT JOIN crm.t c ON r.id = c.id WHERE c.age IS NULL", "everything"),
        ("revenue r LEFT JOIN crm.t c ON r.id = c.id WHERE c.age > 1", "age > 1"),
        ("revenue r LEFT JOIN crm.t c ON r.id = c.id WHERE c.age > 1 OR c.name IS NULL", "everything"),
        ("revenue r LEFT JOIN crm.t c ON r.id = c.id AND c.age IS NULL", "age is null"),
        ("crm.t c LEFT JOIN revenue r ON r.id = c.id AND c.age > 1", "everything"),
        ("crm.t c LEFT JOIN revenue r ON r.id = c.id WHERE c.age IS NULL", "age is null"),
        ("crm.t c RIGHT JOIN revenue r ON r.id = c.id WHERE c.age IS NULL", "everything"),
        ("crm.t c RIGHT JOIN revenue r ON r.id = c.id AND c.age > 1", "everything"),
        ("crm.t c FULL JOIN revenue r ON r.id = c.id AND c.age > 1 WHERE c.age IS NULL", "everything"),
        ("revenue r LEFT SEMI JOIN crm.t c ON r.id = c.id AND c.age IS NULL", "age is null"),
        ("revenue r LEFT ANTI JOIN crm.t c ON r.id = c.id AND c.age > 1", "age > 1"),
        ("crm.t c JOIN revenue r ON c.age IS NULL FULL JOIN orders o ON o.user_id = c.id", "everything"),
        ("revenue r NATURAL JOIN crm.t c WHERE c.age > 1", "everything"),
        ("crm.t TABLESAMPLE (10 ROWS) c WHERE c.age > 1", "everything"),
        ("crm.t AS c (age, id, a, b, c, d, e, f) WHERE c.age > 1", "everything"),
        ("crm.t PIVOT (sum(age) FOR name IN ('a')) WHERE id > 1", "everything"),
    ],
)
def test_joins_decide_which_conjuncts_go_before_them(joins: str, expected: str) -> None:
    (need,) = needed(f"SELECT 1 AS x FROM {joins}")

    assert text(need.condition) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT name FROM crm.t WHERE age > 1", ["age", "name"]),
        ("SELECT count(*) FROM crm.t", []),
        ("SELECT * FROM crm.t", list(TYPES)),
        ("SELECT count(DISTINCT *) FROM crm.t", list(TYPES)),
        ("SELECT crm.t.name, T.age FROM crm.t", ["age", "name"]),
        ("SELECT r.total FROM revenue r JOIN crm.t USING (id)", ["id"]),
        ("SELECT r.total FROM revenue r WHERE EXISTS (SELECT 1 FROM crm.t WHERE t.id = r.id)", ["id"]),
        ("SELECT (SELECT max(total) FROM revenue r WHERE r.id = c.id) FROM crm.t c", ["id"]),
        ("WITH x AS (SELECT * EXCEPT (name) FROM crm.t) SELECT age FROM x", [n for n in TYPES if n != "name"]),
        ("SELECT age FROM prices ORDER BY born", ["age", "born"]),
        ("SELECT c.age FROM crm.t AS c (age, id, a, b, x, d, e, f)", list(TYPES)),
    ],
)
def test_only_columns_that_are_used_are_fetched(sql: str, expected: list[str]) -> None:
    (need,) = needed(sql)

    assert [each.name for each in need.columns] == expected


def test_each_mention_of_a_table_has_its_own_conditions() -> None:
    found = needed("SELECT id FROM crm.t WHERE age = 1 UNION ALL SELECT id FROM crm.t WHERE age = 2")

    assert [text(each.condition) for each in found] == ["age = 1", "age = 2"]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT id FROM crm.t LIMIT 10", 10),
        ("SELECT * FROM crm.t LIMIT 10 OFFSET 5", 15),
        ("SELECT id FROM crm.t WHERE age > 1 LIMIT 10", None),
        ("SELECT id FROM crm.t ORDER BY id LIMIT 10", None),
        ("SELECT DISTINCT id FROM crm.t LIMIT 10", None),
        ("SELECT explode(array(1, 2)) AS x FROM crm.t LIMIT 10", None),
        ("SELECT max(id) AS x FROM crm.t LIMIT 10", None),
        ("SELECT c.id FROM crm.t c JOIN revenue r LIMIT 10", None),
    ],
)
def test_a_limit_goes_along_when_nothing_stands_before_it(sql: str, expected: int | None) -> None:
    assert needed(sql)[0].limit == expected


def test_what_is_kept_says_why() -> None:
    (need,) = needed("SELECT id FROM crm.t WHERE upper(name) = 'A' AND age > 1")

    assert need.kept == [("upper(`t`.`name`) = 'A'", "it is not a comparison of a column with a value")]
    assert need.asked == ["`t`.`age` > 1"]


def test_without_push_down_everything_is_fetched() -> None:
    (need,) = needed("SELECT id FROM crm.t WHERE age > 1 LIMIT 3", push_down=False)

    assert (len(need.columns), need.condition, need.limit) == (len(TYPES), None, None)


def test_names_of_our_own_come_before_those_of_stores() -> None:
    tree, mentions = separate(
        trees("WITH prices AS (SELECT 1 AS x) SELECT * FROM prices, crm.public.prices")[0],
        {"crm": False, "prices": True},
        (),
    )

    assert [(each.store, each.parts) for each in mentions] == [("crm", ("public", "prices"))]
    assert "FROM prices" in spelled(tree)
