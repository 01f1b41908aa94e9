"""Functions: what may be called in a view.

What it is: each reason for a refusal, by its name in SQL, and what must not be refused.
Invariants: the call is underlined and the hint says what to do instead.
Not here: whether the list of names is Spark's (``tests/spark/test_functions_are_sparks.py``).
Read next: ``src/headwater/views/compiler/sql/builtin_functions.py``.
"""

from __future__ import annotations

import pytest
import sqlglot

from headwater.errors import InvalidView
from headwater.views.compiler.compile import compile_view
from headwater.views.compiler.plan import PlanColumn, Relation
from headwater.views.compiler.sql.builtin_functions import aggregate_name, check_functions, is_generator
from headwater.views.compiler.sql.dialect import SparkAsWritten


def check(sql: str) -> None:
    check_functions(sqlglot.parse_one(sql, read=SparkAsWritten), sql)


@pytest.mark.parametrize(
    "call",
    [
        "rand()",
        "random(3)",
        "randn()",
        "uuid()",
        "shuffle(a)",
        "uniform(1,2)",
        "randstr(3)",
        "monotonically_increasing_id()",
        "spark_partition_id()",
        "input_file_name()",
        "now()",
        "current_timestamp()",
        "curdate()",
        "current_time()",
        "localtimestamp()",
        "unix_timestamp()",
        "current_user()",
        "current_database()",
        "current_catalog()",
        "java_method('a','b')",
        "reflect('a','b')",
        "version()",
        "current_timezone()",
        "aes_encrypt(a,b)",
        "date'today'",
        "CAST('now' AS TIMESTAMP)",
        "timestamp'yesterday'",
    ],
)
def test_what_is_not_a_function_of_the_inputs_is_refused_and_underlined(call: str) -> None:
    sql = f"SELECT a,\n  {call} AS x FROM t"

    with pytest.raises(InvalidView) as caught:
        check(sql)

    assert caught.value.data["line"] == 2
    assert caught.value.hint
    assert "^" in (caught.value.detail or "")


@pytest.mark.parametrize(
    "call",
    [
        "unix_timestamp(a)",
        "aes_encrypt(a, b, 'ECB', 'PKCS')",
        "from_unixtime(a)",
        "CAST('2024-01-01' AS DATE)",
        "CAST('now' AS STRING)",
        "CASE WHEN a AND b OR NOT c THEN 1 ELSE 2 END",
        "if(a, 1, 2)",
        "extract(YEAR FROM a)",
        "trim(BOTH 'x' FROM a)",
        "try_cast(a AS INT)",
        "a::INT",
        "`upper`(a)",
        "substring(a FROM 1 FOR 2)",
        "position('a' IN b)",
        "transform(a, x -> x + 1)",
        "any(a) + 0",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY a)",
        "listagg(a, ',')",
        "date_add(a, 3)",
        "timestampadd(DAY, 3, a)",
        "timestampdiff(DAY, a, b)",
        "row_number() OVER (ORDER BY a)",
        "aes_encrypt(a, b, 'GCM', 'DEFAULT', c)",
        "date'2024-01-01'",
        "interval 3 days",
        "a IN (1, 2)",
        "a LIKE 'x' ESCAPE '!'",
        "struct(a, b)",
        "map('a', 1)['a']",
        "ceil(a, 2)",
    ],
)
def test_what_is_one_is_not_refused(call: str) -> None:
    check(f"SELECT {call} AS x FROM t")


@pytest.mark.parametrize("name", ["current_date", "current_timestamp", "current_user", "localtimestamp"])
def test_a_function_without_brackets_is_refused_unless_a_column_has_its_name(name: str) -> None:
    columns = (PlanColumn("a", "INT"),)

    with pytest.raises(InvalidView, match="depends on"):
        compile_view("v", f"SELECT {name} AS x FROM t", {"t": Relation("t", columns)})
    compile_view("v", f"SELECT {name} AS x FROM t", {"t": Relation("t", (*columns, PlanColumn(name, "INT")))})


@pytest.mark.parametrize(("call", "meant"), [("lenght(a)", "length"), ("to_dat(a)", "to_date"), ("summ(a)", "sum")])
def test_an_unknown_name_is_refused_with_the_nearest_one(call: str, meant: str) -> None:
    with pytest.raises(InvalidView, match="Spark has no function") as caught:
        check(f"SELECT {call} FROM t")

    assert caught.value.hint == f"Did you mean {meant}?"


@pytest.mark.parametrize(
    "call", ["strftime(a, '%Y')", "string_split(a, ',')", "generate_series(1, 2)", "datetrunc(a, b)"]
)
def test_functions_of_other_databases_are_unknown_though_the_parser_knows_them(call: str) -> None:
    with pytest.raises(InvalidView, match="Spark has no function"):
        check(f"SELECT {call} FROM t")


def test_a_sample_of_rows_is_refused() -> None:
    with pytest.raises(InvalidView, match="TABLESAMPLE"):
        check("SELECT a FROM t TABLESAMPLE (10 PERCENT)")


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("count(*)", "count"),
        ("std(a)", "stddev_samp"),
        ("every(a)", "bool_and"),
        ("any(a)", "bool_or"),
        ("max_by(a, b)", "max_by"),
        ("kurtosis(a)", "kurtosis"),
        ("histogram_numeric(a, 3)", "histogram_numeric"),
        ("lag(a)", None),
        ("upper(a)", None),
        ("a + 1", None),
    ],
)
def test_aggregates_by_one_name(call: str, name: str | None) -> None:
    found = aggregate_name(sqlglot.parse_one(call, read=SparkAsWritten))

    assert found == name or (name in ("max_by", "kurtosis") and found is not None)


def test_generators_are_known() -> None:
    generators = [
        is_generator(sqlglot.parse_one(f"{name}(a)", read=SparkAsWritten))
        for name in ("inline_outer", "explode", "abs")
    ]

    assert generators == [True, True, False]
