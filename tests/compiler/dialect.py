"""The dialect: Spark's SQL as DuckDB runs it.

What it is: the translation of plans and queries for the tests, by sqlglot, and what sqlglot leaves to be done.
Invariants: where the two databases differ, the difference is bridged here or avoided by ``queries.py``; never
ignored. The list:

- CAST: sqlglot takes Spark's for TRY_CAST, since Spark once gave null for what does not fit. ANSI Spark fails: CAST.
- Division: sqlglot makes null of a division by zero, ANSI Spark fails. The generator divides by constants only.
- A quotient of decimals is a DOUBLE in DuckDB: ``CAST(decimal / decimal AS DECIMAL)`` becomes exact arithmetic.
- avg of decimals is a DOUBLE in DuckDB, a decimal in Spark: compared to rounding, never compared with in a query.
- sum of integers is a HUGEINT in DuckDB, a BIGINT in Spark: the same value for what the generator makes.
- rint, raise_error, every, some, mean and std go by other names; LATERAL VIEW OUTER is lost by sqlglot and put back.
- ROLLUP, CUBE and GROUPING SETS over no rows give the grand total in DuckDB, nothing in Spark: HAVING count(*) > 0.
- NULLS FIRST and LAST are written out by sqlglot; 0.0 and -0.0 are equal in both; NaN is equal to itself and the
  largest number in both.

- collect_set leaves nulls out and is empty over no rows in Spark, neither in DuckDB.
- window and session_window are not there: ``dialect_windows.py``.

Not here: running plans (``duck.py``).
Read next: ``duck.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import duckdb
import sqlglot
from sqlglot import exp

from tests.compiler.dialect_windows import MACROS as WINDOW_MACROS
from tests.compiler.dialect_windows import TIME_WINDOW, WINDOW_CALL, time_windows

MACROS = (
    "CREATE MACRO rint(x) AS round_even(x, 0)",
    "CREATE MACRO raise_error(message) AS error(message)",
    """CREATE MACRO decimal_units(x, scale) AS
        CAST(CAST(concat(CAST(x AS VARCHAR), 'E', scale) AS DECIMAL(38, 0)) AS HUGEINT)""",
    # The text of a decimal that is so many units of 10^-scale: DuckDB reads no text of many digits and 'E-6'.
    """CREATE MACRO decimal_text(units, scale) AS
        CASE WHEN units IS NOT NULL THEN concat(
        CASE WHEN units < 0 THEN '-' ELSE '' END, abs(units) // CAST(10 ** scale AS HUGEINT), '.',
        lpad(CAST(abs(units) % CAST(10 ** scale AS HUGEINT) AS VARCHAR), CAST(scale AS INT), '0')) END""",
    # Half up, away from zero: what Spark's division of a decimal by an integer, cast to a decimal, gives.
    """CREATE MACRO decimal_quotient(x, y, scale, digits) AS
        decimal_text(sign(x) * ((2 * abs(decimal_units(x, scale)) * CAST(10 ** (digits - scale) AS HUGEINT)
        + CAST(y AS HUGEINT)) // (2 * CAST(y AS HUGEINT))), digits)""",
)

# DuckDB's names of types, as Spark writes them; what is not here has the same name.
SPARK_TYPES = {
    "VARCHAR": "STRING",
    "INTEGER": "INT",
    "HUGEINT": "BIGINT",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    "BLOB": "BINARY",
    '"NULL"': "VOID",
}


# Aggregates by the name that DuckDB has for them.
SYNONYMS = {"every": "bool_and", "some": "bool_or", "mean": "avg", "std": "stddev_samp"}


def connect() -> duckdb.DuckDBPyConnection:
    """A connection to DuckDB that has what translated SQL needs; tables of its own are temporary ones.

    All connections are to one database in memory: to make the macros again for each of them took 20 ms.
    """
    connection = _database().cursor()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("PRAGMA disable_optimizer")  # over a few rows it takes longer than what it saves
    return connection


@cache
def _database() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute("SET threads = 1")
    for macro in (*MACROS, *WINDOW_MACROS):
        database.execute(macro)
    return database


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Sequence[object]]) -> None:
    """Rows into a table, in one statement."""
    marks = ", ".join("?" for _ in rows[0])
    every = ", ".join(f"({marks})" for _ in rows)
    connection.execute(f"INSERT INTO {table} VALUES {every}", [value for row in rows for value in row])


@cache
def to_duckdb(sql: str) -> str:
    """Spark SQL as DuckDB runs it."""
    tree = sqlglot.parse_one(WINDOW_CALL.sub(f"{TIME_WINDOW}(", sql), read="spark")
    # From the leaves up: what stands inside a bridged expression is bridged already.
    for node in reversed(list(tree.walk(bfs=True))):
        bridged = _bridge(node)
        if bridged is not node:
            if node is tree:
                tree = bridged
            else:
                node.replace(bridged)
    return tree.sql(dialect="duckdb")


def type_to_duckdb(spark_type: str) -> str:
    """A Spark type as DuckDB writes it."""
    return exp.DataType.build(spark_type, dialect="spark").sql(dialect="duckdb")


def type_to_spark(duckdb_type: str) -> str:
    """A DuckDB type as Spark writes it, nested ones too."""
    text = str(duckdb_type)
    if text.endswith("[]"):
        return f"ARRAY<{type_to_spark(text[:-2])}>"
    nested = re.fullmatch(r"(STRUCT|MAP)\((.*)\)", text)
    if nested:
        return exp.DataType.build(text, dialect="duckdb").sql(dialect="spark")
    return SPARK_TYPES.get(text, text)


def _bridge(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.TryCast) and not node.args.get("safe"):
        node = exp.Cast(this=node.this, to=node.to)
    if isinstance(node, exp.Cast) and node.to.is_type(exp.DType.DECIMAL):
        return _decimal_of_units(_decimal_quotient(node))
    if isinstance(node, exp.CountIf) and not isinstance(node.this, exp.Distinct):
        # DuckDB's count_if of no rows is NULL, Spark's is 0.
        return exp.Count(this=exp.Case(ifs=[exp.If(this=node.this, true=exp.Literal.number(1))]))
    if isinstance(node, exp.Filter) and isinstance(node.this, exp.ArrayUniqueAgg):
        return _set(node.this.this, node.expression.this)
    if isinstance(node, exp.ArrayUniqueAgg) and not isinstance(node.parent, exp.Filter):
        return _set(node.this, exp.true())
    if isinstance(node, exp.Anonymous) and node.name.lower() in SYNONYMS:
        return exp.Anonymous(this=SYNONYMS[node.name.lower()], expressions=node.expressions)
    if isinstance(node, exp.Select):
        return _outer_lateral_views(_grouping_sets(time_windows(node)))
    return node


def _set(value: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """collect_set: without nulls, and empty where DuckDB's list is null."""
    known = exp.and_(exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null())), condition.copy())
    listed = exp.ArrayAgg(this=exp.Distinct(expressions=[value.copy()]))
    return exp.Coalesce(
        this=exp.Filter(this=listed, expression=exp.Where(this=known)), expressions=[exp.Array(expressions=[])]
    )


def _decimal_quotient(node: exp.Cast) -> exp.Expr:
    quotient = node.this
    if not (isinstance(quotient, exp.Div) and all(_is_decimal(side) for side in (quotient.left, quotient.right))):
        return node
    scale, digits = _scale(quotient.left), _scale(node)
    assert _scale(quotient.right) == 0, "only quotients by whole numbers are bridged"
    call = exp.Anonymous(
        this="decimal_quotient",
        expressions=[quotient.left, quotient.right, exp.Literal.number(scale), exp.Literal.number(digits)],
    )
    return exp.Cast(this=call, to=node.to)


def _decimal_of_units(node: exp.Expr) -> exp.Expr:
    """CAST(CONCAT(CAST(units AS STRING), 'E-6') AS DECIMAL(…, 6)), which the accumulators use."""
    text = node.this
    parts = text.expressions if isinstance(text, exp.Concat) else []
    if len(parts) != 2 or not (isinstance(parts[1], exp.Literal) and parts[1].name.startswith("E-")):
        return node
    scale = exp.Literal.number(int(parts[1].name.removeprefix("E-")))
    units = exp.cast(parts[0].this, "HUGEINT", dialect="duckdb")
    return exp.Cast(this=exp.Anonymous(this="decimal_text", expressions=[units, scale]), to=node.to)


def _is_decimal(node: exp.Expr) -> bool:
    return isinstance(node, exp.Cast) and node.to.is_type(exp.DType.DECIMAL)


def _scale(node: exp.Expr) -> int:
    parameters = node.to.expressions
    return int(parameters[1].name) if len(parameters) > 1 else 0


def _grouping_sets(select: exp.Select) -> exp.Select:
    group = select.args.get("group")
    if group is None or group.find(exp.Cube, exp.Rollup, exp.GroupingSets) is None:
        return select
    select.having("count(*) > 0", copy=False)
    return select


def _outer_lateral_views(select: exp.Select) -> exp.Expr:
    """LATERAL VIEW OUTER explode(a) t AS e: a row with a null when there is nothing to explode."""
    for lateral in select.args.get("laterals") or []:
        if not lateral.args.get("outer"):
            continue
        call = lateral.this
        assert isinstance(call, exp.Explode), "only OUTER explode is bridged"
        values = call.this
        # An empty or missing array explodes to one null.
        padded = exp.Case(
            ifs=[
                exp.If(this=sqlglot.parse_one("size(x) > 0", read="spark").transform(_put(values)), true=values.copy())
            ],
            default=sqlglot.parse_one("array(NULL)", read="spark"),
        )
        lateral.set("outer", None)
        lateral.set("this", exp.Explode(this=padded))
    return select


def _put(value: exp.Expr):  # type: ignore[no-untyped-def]
    return lambda node: value.copy() if isinstance(node, exp.Column) and node.name == "x" else node
