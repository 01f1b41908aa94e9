"""Casts: every pair of types that Spark compares with each other, wherever a view derives something from equality.

What it is: a table with a column for each type (``l``, keyed by an id), a bag of the same (``q``), and for each type a
table whose key is of that type (``p_…``); and the queries that compare one type with the other.
Invariants: the values are those that a cast merges or tells apart: '1', '01', ' 1' and 1; 2^53 and 2^53 + 1 as DOUBLE;
0.1 as FLOAT and DOUBLE; scales of DECIMAL; a DATE and a TIMESTAMP at its midnight. The second row that matches comes
with the second tick, so that a wrong key shows as a failure.
Not here: casts that are written (``literals.py``).
Read next: ``trial.py``.
"""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from tests.spark.trouble.arguments import Search
from tests.spark.trouble.rows import UTC, Row, Scenario, TableOf, Tick
from tests.spark.trouble.trial import Case

NOON = dt.datetime(2016, 12, 31, 12)
LARGE = 2**53
# A name, a type, the values of the first tick and those of the second. One type may be there for several roles.
SIDES: dict[str, tuple[str, Sequence[Any], Sequence[Any]]] = {
    "b": ("TINYINT", [1, 2, None], [0, -1]),
    "h": ("SMALLINT", [1, 2, None], [0, 300]),
    "i": ("INT", [1, 2, None], [0, 16777217]),
    "n": ("BIGINT", [1, 2, LARGE, None], [0, LARGE + 1]),
    "f": ("FLOAT", [1.0, 2.0, 0.1, None], [0.0, 16777216.0]),
    "d": ("DOUBLE", [1.0, 2.0, 0.1, float(LARGE), None], [0.0, 16777217.0]),
    "c": ("DECIMAL(10,2)", [Decimal("1.00"), Decimal("0.10"), None], [Decimal("0.00"), Decimal("2.00")]),
    "e": ("DECIMAL(20,5)", [Decimal("1"), Decimal("0.1"), None], [Decimal("0.10001"), Decimal(LARGE % 10**9)]),
    "sn": ("STRING", ["1", "2", None], ["01", " 1", "1 ", "0", "-0"]),
    "sf": ("STRING", ["1", "0.1", None], ["1.0", "1e0", "01", "0.10", "-0.0"]),
    "sd": ("STRING", ["2016-12-31", "2017-01-01", None], ["2016-12-31 ", "2016-12-31T00:00:00"]),
    "st": ("STRING", ["2016-12-31 00:00:00", None], ["2016-12-31", "2016-12-31 00:00", "2016-12-31 12:00:00"]),
    "sb": ("STRING", ["true", "f", None], ["t", "TRUE", "yes", "1", "false"]),
    "o": ("BOOLEAN", [True, None], [False]),
    "x": ("BINARY", [b"1", b"", None], [b"01", b"true"]),
    "dt": ("DATE", [dt.date(2016, 12, 31), None], [dt.date(2017, 1, 1)]),
    "ts": (
        "TIMESTAMP",
        [dt.datetime(2016, 12, 31, tzinfo=UTC), None],
        [NOON.replace(tzinfo=UTC), dt.datetime(2017, 1, 1, tzinfo=UTC)],
    ),
    "nt": ("TIMESTAMP_NTZ", [dt.datetime(2016, 12, 31), None], [NOON, dt.datetime(2017, 1, 1)]),
    "ai": ("ARRAY<INT>", [[1], [1, None], None], [[], [2]]),
    "an": ("ARRAY<BIGINT>", [[1], [1, None], None], [[], [2]]),
    "as": ("ARRAY<STRING>", [["1"], None], [["01"], ["1 "]]),
    "si": ("STRUCT<v: INT>", [{"v": 1}, {"v": None}, None], [{"v": 2}]),
    "sl": ("STRUCT<v: BIGINT>", [{"v": 1}, None], [{"v": 2}, {"v": None}]),
}
# What the texts of each role can be cast to. Others raise on the first row, and that is all there is to compare.
TEXTS = {
    "sn": {"b", "h", "i", "n", "f", "d", "c", "e", "x"},
    "sf": {"f", "d", "c", "e", "x"},
    "sd": {"dt", "ts", "nt", "x"},
    "st": {"ts", "nt", "x"},
    "sb": {"o", "x"},
}
# Types that may be a table's key.
KEYS = ("b", "h", "i", "n", "c", "e", "sn", "sf", "sd", "st", "sb", "o", "dt", "ts", "nt", "x")
SCHEMA = ", ".join(f"`{name}` {type}" for name, (type, *_) in SIDES.items())

# {a}: a column of l, {b}: a column of another type, of q; {p}: the table whose key v is of that type.
OVER_BAGS = (
    "SELECT id FROM l WHERE {a} IN (SELECT {b} FROM q)",
    "SELECT id FROM l WHERE {a} NOT IN (SELECT {b} FROM q WHERE {b} IS NOT NULL)",
    "SELECT id, {a} IN (SELECT {b} FROM q) AS found FROM l",
    "SELECT id FROM l WHERE EXISTS (SELECT 1 FROM q WHERE q.{b} = l.{a})",
    "SELECT id FROM l WHERE NOT EXISTS (SELECT 1 FROM q WHERE q.{b} = l.{a})",
    "SELECT id FROM l WHERE EXISTS (SELECT 1 FROM q WHERE q.{b} <=> l.{a} AND q.m > 0)",
    "SELECT id, (SELECT count(*) FROM q WHERE q.{b} = l.{a}) AS n FROM l",
    "SELECT id, (SELECT max(m) FROM q WHERE q.{b} = l.{a}) AS n FROM l",
    "SELECT l.id, q.m FROM l JOIN q ON l.{a} = q.{b}",
    "SELECT l.id, q.m FROM l LEFT JOIN q ON l.{a} = q.{b} AND l.id > q.m",
    "SELECT l.id, q.m FROM l FULL JOIN q ON l.{a} <=> q.{b}",
    "SELECT l.id FROM l LEFT SEMI JOIN q ON l.{a} = q.{b}",
    "SELECT l.id FROM l LEFT ANTI JOIN q ON l.{a} = q.{b}",
    "SELECT v, count(*) AS n FROM (SELECT id, {a} AS v FROM l) JOIN (SELECT m, {b} AS v FROM q) USING (v) GROUP BY v",
    "SELECT v, id, m FROM (SELECT id, {a} AS v FROM l) FULL JOIN (SELECT m, {b} AS v FROM q) USING (v)",
    "SELECT v, id, m FROM (SELECT id, {a} AS v FROM l) NATURAL LEFT JOIN (SELECT m, {b} AS v FROM q)",
    "SELECT {a} AS v FROM l UNION SELECT {b} FROM q",
    "SELECT {a} AS v FROM l UNION ALL SELECT {b} FROM q",
    "SELECT {a} AS v FROM l INTERSECT SELECT {b} FROM q",
    "SELECT {a} AS v FROM l EXCEPT SELECT {b} FROM q",
    "SELECT {a} AS v FROM l EXCEPT ALL SELECT {b} FROM q",
    "SELECT v, count(*) AS n FROM (SELECT {a} AS v FROM l UNION ALL SELECT {b} FROM q) GROUP BY v",
    "SELECT l.id, q.m FROM l JOIN q ON l.{a} < q.{b}",
    "SELECT l.id, count(*) AS n FROM l JOIN q ON l.{a} = q.{b} GROUP BY l.id, q.{b}",
    "SELECT m, coalesce({a}, {b}) AS v FROM q",
    "SELECT coalesce({a}, {b}) AS v, count(*) AS n FROM q GROUP BY coalesce({a}, {b})",
    "SELECT m, CASE WHEN m > 2 THEN {a} ELSE {b} END AS v, nullif({a}, {b}) AS w FROM q",
    "SELECT m FROM q WHERE {a} = {b} OR {a} <=> {b}",
    "SELECT m, {a} IN ({b}) AS v, {a} BETWEEN {b} AND {a} AS w FROM q",
    "SELECT m, array({a}, {b}) AS v, greatest({a}, {b}) AS w FROM q",
    "SELECT l.id, x.m FROM l, LATERAL (SELECT max(q.m) AS m FROM q WHERE q.{b} = l.{a}) x",
    "SELECT id FROM l WHERE {a} = (SELECT max({b}) FROM q)",
    "SELECT DISTINCT l.{a} AS v FROM l JOIN q ON l.{a} = q.{b}",
)
OVER_KEYS = (
    "SELECT l.id, p.v, p.m FROM l JOIN {p} p ON p.v = l.{a}",
    "SELECT l.id, p.m FROM l LEFT JOIN {p} p ON p.v = l.{a}",
    "SELECT p.v, count(l.id) AS n FROM {p} p LEFT JOIN l ON p.v = l.{a} GROUP BY p.v",
    "SELECT l.id, sum(p.m) AS m FROM l JOIN {p} p ON l.{a} = p.v GROUP BY l.id",
    "SELECT id FROM l WHERE {a} IN (SELECT v FROM {p})",
    "SELECT p.v, p.m FROM {p} p WHERE p.v IN (SELECT {a} FROM l)",
    "SELECT v, m FROM {p} p WHERE EXISTS (SELECT 1 FROM l WHERE l.{a} = p.v)",
    "SELECT id, (SELECT sum(m) FROM {p} p WHERE p.v = l.{a}) AS m FROM l",
    "SELECT v, m FROM {p} WHERE v = (SELECT min({a}) FROM l)",
    "SELECT DISTINCT p.v, p.m FROM {p} p JOIN l ON l.{a} = p.v",
)
# Both have a key, of the two types; {o}: the one of the first type.
OVER_TWO_KEYS = (
    "SELECT x.v, x.m, y.m AS w FROM {o} x JOIN {p} y ON x.v = y.v",
    "SELECT y.v, x.m FROM {o} x JOIN {p} y ON x.v = y.v",
    "SELECT x.m AS a, y.m AS b FROM {o} x FULL JOIN {p} y ON x.v = y.v",
    "SELECT v, x.m, y.m AS w FROM {o} x JOIN {p} y USING (v)",
    "SELECT v FROM {o} UNION SELECT v FROM {p}",
    "SELECT v, count(*) AS n FROM {o} x LEFT JOIN {p} y USING (v) GROUP BY v",
)
ONCE_WRONG = (
    "SELECT id FROM l WHERE i IN (SELECT sn FROM q)",
    "SELECT v, x.m, y.m AS w FROM p_n x JOIN p_sn y USING (v)",
    "SELECT l.id, p.v, p.m FROM l JOIN p_sd p ON p.v = l.dt",
    "SELECT sf AS v FROM l EXCEPT SELECT d FROM q",
    "SELECT id FROM l WHERE NOT EXISTS (SELECT 1 FROM q WHERE q.i = l.b)",
    "SELECT id, (SELECT sum(m) FROM p_sd p WHERE p.v = l.nt) AS m FROM l",
    "SELECT v, count(*) AS n FROM p_e x LEFT JOIN p_n y USING (v) GROUP BY v",
    "SELECT id FROM l WHERE EXISTS (SELECT 1 FROM q WHERE q.sn = l.i)",
    "SELECT id FROM l WHERE d IN (SELECT n FROM q)",
    "SELECT id, (SELECT max(m) FROM q WHERE q.sn = l.i) AS n FROM l",
)
# A key that equals a literal of another type is not one row.
LITERALS = {
    "sn": ("1", "1L", "1.0D", "1BD"),
    "sf": ("1.0D", "1.0"),
    "sd": ("DATE'2016-12-31'",),
    "sb": ("true",),
    "st": ("TIMESTAMP'2016-12-31 00:00:00'", "DATE'2016-12-31'"),
    "n": ("9007199254740992D", "'1'"),
    "dt": ("'2016-12-31'", "TIMESTAMP'2016-12-31 00:00:00'"),
    "i": ("'1'", "' 1'", "1.0", "1D"),
    "c": ("'1'", "1", "1.0D"),
    "o": ("'true'",),
    "x": ("'1'",),
}
OVER_LITERALS = (
    "SELECT v, m FROM {p} WHERE v = {literal}",
    "SELECT m FROM {p} WHERE v = {literal}",
    "SELECT l.id, p.v, p.m FROM l JOIN {p} p ON p.v = {literal}",
    "SELECT v, m FROM {p} WHERE v IN ({literal}, {literal})",
    "SELECT id, (SELECT max(m) FROM {p} WHERE v = {literal}) AS m FROM l",
)


def scenario() -> Scenario:
    """The tables; the second tick brings what a cast takes for equal, the third changes and takes away."""
    first = _rows(1, 0)
    second = _rows(2, 100)
    changed = [{**row, "id": 100 + number} for number, row in enumerate(first[:3])]
    tables = {"l": TableOf(f"id BIGINT, {SCHEMA}", ("id",)), "q": TableOf(f"m INT, {SCHEMA}")}
    come: list[dict[str, Sequence[Row]]] = [
        {"l": first, "q": [_bagged(row) for row in first]},
        {"l": second, "q": [_bagged(row) for row in [*second, *first[:2]]]},
        {"l": changed},
    ]
    go: list[dict[str, Sequence[Row]]] = [{}, {"l": first[:1]}, {"l": first[1:2], "q": [_bagged(first[0])]}]
    for name in KEYS:
        type, one, two = SIDES[name]
        tables[f"p_{name}"] = TableOf(f"v {type}, m INT", ("v",))
        come[0][f"p_{name}"] = [{"v": v, "m": m} for m, v in enumerate(one) if v is not None]
        come[1][f"p_{name}"] = [{"v": v, "m": 10 + m} for m, v in enumerate(two)]
        come[2][f"p_{name}"] = [{"v": two[0], "m": 20}]
        go[2][f"p_{name}"] = [{"v": one[0], "m": 0}]
    return Scenario(tables, [Tick(gone, came) for gone, came in zip(go, come, strict=True)])


def pairs(search: Search) -> list[tuple[str, str]]:
    """The ordered pairs of columns of different types, or roles, that Spark compares."""
    found = []
    for one, other in itertools.permutations(SIDES, 2):
        alike = SIDES[one][0] == SIDES[other][0]
        if alike or other not in TEXTS.get(one, {other}) or one not in TEXTS.get(other, {one}):
            continue
        if search.type_of(f"`{one}` = `{other}`", "q") == "boolean":
            found.append((one, other))
    return found


def cases(found: Sequence[tuple[str, str]], choice: random.Random, *, each: int) -> Iterator[Case]:
    """For each pair ``each`` of the queries, of those over keys as many, and all comparisons of a key to a literal."""
    yield from (Case("casts", sql, "once wrong", sql) for sql in ONCE_WRONG)
    for a, b in found:
        subject = f"{SIDES[a][0]} = {SIDES[b][0]} ({a}, {b})"
        for sql in _some(OVER_BAGS, choice, each):
            yield Case("casts", subject, "over a bag", sql.format(a=f"`{a}`", b=f"`{b}`"))
        if b in KEYS:
            for sql in _some(OVER_KEYS, choice, each):
                yield Case("casts", subject, "over a key", sql.format(a=f"`{a}`", p=f"p_{b}"))
        if a in KEYS and b in KEYS:
            for sql in _some(OVER_TWO_KEYS, choice, each):
                yield Case("casts", subject, "over two keys", sql.format(o=f"p_{a}", p=f"p_{b}"))
    for name, texts in LITERALS.items():
        for literal in texts:
            for sql in _some(OVER_LITERALS, choice, each):
                subject = f"{SIDES[name][0]} = {literal} ({name})"
                yield Case("casts", subject, "a key and a literal", sql.format(p=f"p_{name}", literal=literal))


def _some(templates: Sequence[str], choice: random.Random, count: int) -> list[str]:
    return choice.sample(templates, min(count, len(templates)))


def _rows(tick: int, first_id: int) -> list[Row]:
    longest = max(len(values[tick]) for values in SIDES.values())
    return [
        {"id": first_id + number, **{name: values[tick][number % len(values[tick])] for name, values in SIDES.items()}}
        for number in range(longest)
    ]


def _bagged(row: Row) -> Row:
    return {**{name: value for name, value in row.items() if name != "id"}, "m": row["id"] % 7}
