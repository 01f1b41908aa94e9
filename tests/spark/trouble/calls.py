"""Calls: each call of a function inside views, wherever an expression may stand.

What it is: from a ``Call`` the queries that have it in SELECT, WHERE, GROUP BY, JOIN ON, HAVING, in a correlated EXISTS
and in PARTITION BY; from a call of an aggregate the queries that aggregate with it.
Invariants: a call that raises on some contents is asked only about the others (CASE WHEN r IN (…) is lazy); a result
that no view can hold is made a text; an answer that SQL leaves open is made one that it does not (a sorted list, an
estimate), so that there is one right answer.
Not here: finding calls (``arguments.py``, ``log/catalog/registry.py``).
Read next: ``trial.py``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.spark.trouble.arguments import Call, Search, over
from tests.spark.trouble.rows import CONTENTS, SCHEMA, TableOf, contents
from tests.spark.trouble.trial import Case, Part, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS_MAX = 12  # calls in one SELECT
NOT_STORABLE = re.compile(r"interval|variant|void|time\(|\btime\b|geometry|geography|collate|char\(", re.IGNORECASE)
NOT_COMPARABLE = re.compile(r"\bmap<|variant|columns$|interval$")
PLAIN_CALL = re.compile(r"\w+\([^()]*\)")  # nothing around it, no FILTER
FRACTIONS = re.compile(r"double|float")

# Aggregates whose answer SQL leaves open, made definite; {} is the call.
DEFINITE = {
    **dict.fromkeys(("collect_list", "array_agg", "collect_set", "collect_union"), "sort_array({})"),
    **dict.fromkeys(("approx_top_k",), "size({})"),
    **dict.fromkeys(("approx_top_k_accumulate", "approx_top_k_combine"), "size(approx_top_k_estimate({}))"),
    **dict.fromkeys(("hll_sketch_agg", "hll_union_agg"), "hll_sketch_estimate({})"),
    **dict.fromkeys(("theta_sketch_agg", "theta_union_agg", "theta_intersection_agg"), "theta_sketch_estimate({})"),
    **dict.fromkeys(
        ("tuple_sketch_agg_double", "tuple_union_agg_double", "tuple_intersection_agg_double"),
        "tuple_sketch_estimate_double({})",
    ),
    **dict.fromkeys(
        ("tuple_sketch_agg_integer", "tuple_union_agg_integer", "tuple_intersection_agg_integer"),
        "tuple_sketch_estimate_integer({})",
    ),
    **{f"kll_{way}_agg_{type}": "{} IS NULL" for way in ("sketch", "merge") for type in ("bigint", "double", "float")},
    "histogram_numeric": "size({})",
    # Sums of FLOAT: seven digits, of which the last depend on the order.
    **dict.fromkeys(("vector_avg", "vector_sum"), "transform({}, v -> round(v, 3))"),
}
# Of these each call goes to one: {c} over bare columns, {a} and {b} over those of an alias.
ELSEWHERE = {
    "DISTINCT": "SELECT DISTINCT {c} AS c FROM {table}",
    "IN": "SELECT a.id FROM t a WHERE {a} IN (SELECT {b} FROM {table} b WHERE b.k = 1)",
    "NOT IN": "SELECT a.id FROM t a WHERE {a} NOT IN (SELECT {b} FROM {table} b WHERE b.k = 1)",
    "EXCEPT": "SELECT {c} AS c FROM t EXCEPT SELECT {c} FROM {table} WHERE k > 1",
    "UNION": "SELECT {c} AS c FROM t UNION SELECT {c} FROM g WHERE k > 1",
    "scalar subquery": "SELECT a.id, (SELECT count(*) FROM {table} b WHERE {a} = {b}) AS n FROM t a",
    "inside aggregates": "SELECT k, count({c}) AS n, max({c}) AS m FROM {table} GROUP BY k",
    "DISTINCT inside": "SELECT k, count(DISTINCT {c}) AS n FROM {table} GROUP BY k",
    "ORDER BY": "SELECT id, r FROM {table} ORDER BY {c}, id, r LIMIT 7",
    "USING": "SELECT c, x, y FROM (SELECT id AS x, {c} AS c FROM t) JOIN (SELECT id AS y, {c} AS c FROM {table}) "
    "USING (c)",
    "ANTI JOIN": "SELECT a.id FROM t a LEFT ANTI JOIN {table} b ON {a} = {b} AND b.k = 2",
    "ROLLUP": "SELECT {c} AS c, k, count(*) AS n FROM {table} GROUP BY ROLLUP ({c}, k)",
}
# Of the rows of a group by k they have one answer, of all rows any.
OF_SOME_ROW = ("first", "last", "first_value", "last_value", "any_value")
SMALL = "(§i % 100)"
# No nulls: an empty sketch raises when it is asked.
SKETCHED = {
    "bigint": "coalesce(§i, 0)",
    "double": "CAST(coalesce(§c, 0) AS DOUBLE)",
    "float": "CAST(coalesce(§k, 0) AS FLOAT)",
}
# Where almost every choice of arguments leaves the answer open, overflows or loses digits.
ONLY: dict[str, tuple[str, ...]] = {
    **{name: (f"{name}(§k)", f"{name}(§k % 2)") for name in OF_SOME_ROW},
    **{name: (f"{name}(§s, §id)", f"{name}(§c, struct(§dt, §id))") for name in ("max_by", "min_by")},
    **{
        name: (f"{name}(§s, ', ') WITHIN GROUP (ORDER BY §s)", f"{name}(DISTINCT §w) WITHIN GROUP (ORDER BY §w DESC)")
        for name in ("listagg", "string_agg")
    },
    **{
        name: (f"{name}(0.5) WITHIN GROUP (ORDER BY §i)", f"{name}(0.25) WITHIN GROUP (ORDER BY §c DESC)")
        for name in ("percentile_cont", "percentile_disc")
    },
    **{
        name: (
            f"{name}({SMALL})",
            f"{name}(§c)",
            f"{name}(§b)",
            f"{name}(§d)",
            f"{name}(DISTINCT §k)",
            f"{name}({SMALL}) FILTER (WHERE §o)",
            f"{name}(§f)",
            f"{name}(§w)",
            f"{name}(§e)",
        )
        for name in ("sum", "avg", "mean", "try_sum", "try_avg")
    },
    **{
        name: (f"{name}({SMALL}, §k)", f"{name}(§c, {SMALL})")
        for name in (
            "corr",
            "covar_pop",
            "covar_samp",
            "regr_avgx",
            "regr_avgy",
            "regr_count",
            "regr_intercept",
            "regr_r2",
            "regr_slope",
            "regr_sxx",
            "regr_sxy",
            "regr_syy",
        )
    },
    **{
        name: (f"{name}({SMALL})", f"{name}(§c)", f"{name}(DISTINCT §k)")
        for name in (
            "std",
            "stddev",
            "stddev_pop",
            "stddev_samp",
            "var_pop",
            "var_samp",
            "variance",
            "skewness",
            "kurtosis",
        )
    },
    # A sketch of so few values is exact.
    **{
        f"kll_sketch_{name}": (f"kll_sketch_{name}(kll_sketch_agg_{type}({column}){rest})",)
        for type, column in SKETCHED.items()
        for name, rest in (
            (f"get_n_{type}", ""),
            (f"get_quantile_{type}", ", 0.5"),
            (f"get_rank_{type}", f", CAST(3 AS {type})"),
            (f"to_string_{type}", ""),
        )
    },
    **{
        f"kll_sketch_merge_{type}": (
            f"kll_sketch_get_n_{type}(kll_sketch_merge_{type}(kll_sketch_agg_{type}({column}), "
            f"kll_sketch_agg_{type}({column})))",
        )
        for type, column in SKETCHED.items()
    },
    "kll_sketch_agg_float": ("kll_sketch_get_n_float(kll_sketch_agg_float(§f))",),
    "mode": ("mode(§i, true)", "mode() WITHIN GROUP (ORDER BY §s)"),
    "count": ("count(§i)", "count(*)", "count(DISTINCT §w, §k)", "count(§i, §s)", "count(§s) FILTER (WHERE §i > 0)"),
    "grouping": ("grouping(§k)",),
    "grouping_id": ("grouping_id()",),
}
# Aggregates of what only other aggregates make: whole queries.
QUERIES: dict[str, tuple[str, ...]] = {
    f"kll_merge_agg_{type}": (
        f"SELECT k, kll_sketch_get_n_{type}(kll_merge_agg_{type}(x)) AS c FROM "
        f"(SELECT k, kll_sketch_agg_{type}({over(column)}) AS x FROM t GROUP BY k, r % 3) GROUP BY k",
    )
    for type, column in SKETCHED.items()
} | {
    "approx_top_k_combine": (
        "SELECT k, size(approx_top_k_estimate(approx_top_k_combine(x, 100))) AS c FROM "
        "(SELECT k, approx_top_k_accumulate(i, 100) AS x FROM t GROUP BY k, r % 3) GROUP BY k",
    )
}


class Guard:
    """Knows on which contents a call raises."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        rows = [{"id": row["r"], **row} for row in contents()]
        frame(session, TableOf(SCHEMA), rows).createOrReplaceTempView("every_content")

    def raising(self, text: str) -> list[int]:
        """The contents on which an expression raises; in groups of six or seven, since Spark takes 0.1 s to raise."""
        fine = self._fine(text, list(range(CONTENTS)))
        return [number for number in range(CONTENTS) if number not in fine]

    def guarded(self, text: str) -> str | None:
        """The expression where it does not raise; None when it raises on most contents."""
        raising = self.raising(text)
        if not raising:
            return text
        fine = [str(number) for number in range(CONTENTS) if number not in raising]
        return f"CASE WHEN §r IN ({', '.join(fine)}) THEN {text} END" if len(fine) >= 4 else None

    def _fine(self, text: str, numbers: list[int]) -> list[int]:
        chosen = ", ".join(map(str, numbers))
        try:
            sql = f"SELECT {over(text)} AS c FROM every_content WHERE r IN ({chosen})"
            self.session.sql(sql)._jdf.collect()  # the rows stay in Java: nobody looks at them
            return numbers
        except Exception:
            if len(numbers) <= 7:
                return []
        half = len(numbers) // 2
        return self._fine(text, numbers[:half]) + self._fine(text, numbers[half:])


def storable(call: Call, search: Search) -> Call | None:
    """The call, or a text of it when no view can hold what it gives."""
    if not NOT_STORABLE.search(call.type):
        return call
    for template in ("CAST({} AS STRING)", "to_json({})", "typeof({})"):
        text = template.format(call.text)
        type = search.type_of(text)
        if type is not None and not NOT_STORABLE.search(type):
            return replace(call, text=text, type=type)
    return None


def selects(calls: Sequence[Call], choice: random.Random) -> Iterator[Case]:
    """Many calls in one SELECT."""
    for first in range(0, len(calls), COLUMNS_MAX):
        some = calls[first : first + COLUMNS_MAX]
        table = choice.choice("ttg")
        yield _many("SELECT", [(call, over(call.text)) for call in some], "id", f"FROM {table}", exact=True)


def places(call: Call, choice: random.Random) -> Iterator[Case]:
    """One call in each other place that its type allows."""
    text, table = over(call.text), choice.choice("tg")
    a, b = over(call.text, "a"), over(call.text, "b")
    yield _case(call, "WHERE", f"SELECT id, k FROM {table} WHERE {_condition(call, text)}")
    if NOT_COMPARABLE.search(call.type):
        return
    grouping = choice.choice([text, "1", "g"])
    yield _case(call, "GROUP BY", f"SELECT {text} AS g, count(*) AS n FROM {table} GROUP BY {grouping}")
    kind = choice.choice(["JOIN", "JOIN", "LEFT JOIN", "FULL JOIN"])
    yield _case(call, "JOIN ON", f"SELECT a.id AS x, b.id AS y FROM t a {kind} {table} b ON {a} = {b}")
    aggregate = choice.choice(["max", "min"]) if call.type != "boolean" else "bool_or"
    condition = _condition(replace(call, text=f"{aggregate}({call.text})"), f"{aggregate}({text})")
    yield _case(call, "HAVING", f"SELECT k, count(*) AS n FROM {table} GROUP BY k HAVING {condition}")
    yield _case(
        call, "EXISTS", f"SELECT a.id FROM t a WHERE EXISTS (SELECT 1 FROM {table} b WHERE {a} = {b} AND a.id < b.id)"
    )
    yield _case(
        call, "PARTITION BY", f"SELECT id, row_number() OVER (PARTITION BY {text} ORDER BY id, r) AS n FROM {table}"
    )
    place = choice.choice(tuple(ELSEWHERE))
    yield _case(call, place, ELSEWHERE[place].format(c=text, a=a, b=b, table=table))


def aggregates(calls: Sequence[Call], choice: random.Random) -> Iterator[Case]:
    """Calls of aggregates: by group, over everything, in HAVING, in a correlated subquery, over a partition."""
    for first in range(0, len(calls), COLUMNS_MAX):
        some = calls[first : first + COLUMNS_MAX]
        table = choice.choice("tg")
        made = [(call, over(call.text)) for call in some]
        yield _many("SELECT of GROUP BY", made, "k", f"FROM {table} GROUP BY k", exact=False)
    for call in calls:
        text, table = over(call.text), choice.choice("tg")
        if call.function not in OF_SOME_ROW:
            yield replace(_case(call, "SELECT of all", f"SELECT {text} AS c FROM {table}"), exact=False)
        if FRACTIONS.search(call.type) or NOT_COMPARABLE.search(call.type):
            condition = f"{text} IS NOT NULL"
        else:
            condition = _condition(call, text)
        yield _case(call, "HAVING", f"SELECT k, count(*) AS n FROM {table} GROUP BY k HAVING {condition}")
        # Most rows find none to aggregate: not every aggregate is null then.
        sql = f"SELECT a.id, (SELECT {over(call.text, 'b')} FROM {table} b WHERE b.k = a.r) AS c FROM t a"
        yield replace(_case(call, "scalar subquery", sql), exact=False)
    plain = [call for call in calls if PLAIN_CALL.fullmatch(call.text) and "DISTINCT" not in call.text]
    for first in range(0, len(plain), COLUMNS_MAX):
        made = [(call, f"{over(call.text)} OVER (PARTITION BY k)") for call in plain[first : first + COLUMNS_MAX]]
        yield _many("aggregate OVER", made, "id", f"FROM {choice.choice('tg')}", exact=False)


def windowed(calls: Sequence[Call], choice: random.Random) -> Iterator[Case]:
    """Calls with OVER (…)."""
    for first in range(0, len(calls), COLUMNS_MAX):
        made = [(call, over(call.text)) for call in calls[first : first + COLUMNS_MAX]]
        yield _many("OVER", made, "id", f"FROM {choice.choice('tg')}", exact=False)


def generators(calls: Sequence[Call], choice: random.Random) -> Iterator[Case]:
    """Calls that make several rows of one, in SELECT and in LATERAL VIEW."""
    for call in calls:
        table, text = choice.choice("tg"), over(call.text)
        count = int(call.type.split()[0]) if call.type.endswith("columns") else 1
        names = ", ".join(f"c{number}" for number in range(count))
        named = f"AS ({names})" if count > 1 else "AS c0"
        yield _case(call, "SELECT", f"SELECT id, {text} {named} FROM {table}")
        yield _case(call, "LATERAL VIEW", f"SELECT id, {names} FROM {table} LATERAL VIEW OUTER {text} x AS {names}")


def _condition(call: Call, text: str) -> str:
    if call.type == "boolean":
        return text
    if NOT_COMPARABLE.search(call.type):
        return f"{text} IS NOT NULL"
    return f"hash({text}) % 2 = 0"


def _case(call: Call, place: str, sql: str) -> Case:
    return Case("functions", call.function, place, sql)


def _many(place: str, made: Sequence[tuple[Call, str]], first: str, rest: str, *, exact: bool) -> Case:
    parts, columns = [], []
    for number, (call, text) in enumerate(made):
        single = Case("functions", call.function, place, f"SELECT {first}, {text} AS c {rest}", exact)
        parts.append(Part(f"c{number}", call.function, single))
        columns.append(f"{text} AS c{number}")
    return Case("functions", "many", place, f"SELECT {first}, {', '.join(columns)} {rest}", exact, tuple(parts))
