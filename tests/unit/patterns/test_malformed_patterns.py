"""Malformed clauses: the sentence, the underlined place and the hint.

What it is: one line for each thing that can be wrong with a clause.
Invariants: every refusal is an ``InvalidPattern``, whose detail underlines the place.
Not here: what fails over the rows there are (``test_known_answers.py``).
Read next: ``docs/patterns.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headwater.errors import InvalidPattern, PatternFailed
from headwater.patterns import compile_pattern, find_clauses

# (clause, the underlined text, the sentence)
MALFORMED = [
    ("ORDER BY t", "MATCH_RECOGNIZE", "MATCH_RECOGNIZE has no PATTERN"),
    ("PATTERN (A) ORDER BY t", "ORDER", "ORDER BY comes too late"),
    ("PATTERN (A) PATTERN (B)", "PATTERN", "PATTERN comes twice"),
    ("hello PATTERN (A)", "hello", "MATCH_RECOGNIZE cannot begin with hello"),
    ("PATTERN (A) nonsense", "nonsense", "nonsense does not belong behind PATTERN"),
    ("PATTERN (A{})", "{}", "a quantifier is empty"),
    ("PATTERN (A{3,2})", "{3,2}", "a quantifier's bounds are the wrong way round: 3 is more than 2"),
    ("PATTERN (A{0})", "{0}", "a quantifier allows no row at all"),
    ("PATTERN (A{x})", "{x}", "a quantifier cannot be {x}"),
    ("PATTERN (A+*)", "A+*", "a part of the pattern has two quantifiers"),
    ("PATTERN (A |)", ")", "a pattern ends too early"),
    ("PATTERN (A ; B)", ";", "a pattern cannot have ; here"),
    ("PATTERN (PERMUTE(A))", "PERMUTE(A)", "PERMUTE has one element"),
    ("PATTERN ([^B] A) DEFINE B AS x", "[^B]", "an absent variable does not stand at the end of the pattern"),
    ("PATTERN (A | B [^C]) DEFINE C AS x", "[^C]", "an absent variable stands behind one alternative only"),
    ("ORDER BY t PATTERN (A [^B]) DEFINE B AS x", "B", "[^B] does not say for how long B must not come"),
    ("ORDER BY t PATTERN (A [^B]) WITHIN INTERVAL 1 DAY", "B", "the absent variable B has no definition"),
    ("PATTERN (A) WITHIN INTERVAL 1 DAY", "WITHIN INTERVAL 1 DAY", "WITHIN needs an order by time"),
    ("ORDER BY t DESC PATTERN (A) WITHIN INTERVAL 1 DAY", "t DESC", "WITHIN needs rows in the order of time"),
    (
        "ORDER BY t PATTERN (A) WITHIN INTERVAL 2 MONTHS",
        "WITHIN INTERVAL 2 MONTHS",
        "WITHIN cannot be INTERVAL 2 MONTHS",
    ),
    (
        "ORDER BY t ONE ROW PER MATCH WITH TIMED OUT MATCHES PATTERN (A B)",
        "ONE ROW PER MATCH WITH TIMED OUT MATCHES",
        "nothing can time out without WITHIN",
    ),
    (
        "ORDER BY t ONE ROW PER MATCH WITH TIMED OUT MATCHES PATTERN (B ^ | A) WITHIN INTERVAL 1 DAY",
        "^",
        "^ inside a pattern cannot be told from a match that waits",
    ),
    (
        "ONE ROW PER MATCH SHOW EMPTY MATCHES PATTERN (A)",
        "SHOW EMPTY MATCHES",
        "ONE ROW PER MATCH does not take SHOW EMPTY",
    ),
    (
        "ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A {- B -})",
        "{- B -}",
        "rows are excluded where unmatched rows are asked for",
    ),
    ("AFTER MATCH SKIP BACK PATTERN (A)", "AFTER MATCH SKIP BACK", "AFTER MATCH SKIP does not say where"),
    ("AFTER MATCH SKIP TO Z PATTERN (A B)", "Z", "AFTER MATCH SKIP names Z, which is not in the pattern"),
    (
        "AFTER MATCH SKIP TO FIRST A PATTERN (A B)",
        "A",
        "AFTER MATCH SKIP TO FIRST A goes back to the first row of the match, for ever",
    ),
    ("PATTERN (A) SUBSET U = (A, Z)", "Z", "SUBSET names Z, which is not in the pattern"),
    ("PATTERN (A) SUBSET U = (V), V = (U)", "V", "the subset U contains itself"),
    ("PATTERN (A) SUBSET U = (A), V = (U)", "U", "the subset V contains the subset U"),
    ("PATTERN (A B) SUBSET A = (B)", "A", "the subset A has the name of a variable"),
    ("PATTERN (A B) SUBSET U = (A), U = (B)", "U", "the subset U is declared twice"),
    ("PATTERN (A) SUBSET U = A", "U = A", "a subset is not a name and a list"),
    ("PATTERN (A) DEFINE B AS x > 1", "B", "DEFINE names B, which is not in the pattern"),
    ("PATTERN (A) DEFINE A AS x, A AS y", "A", "A is defined twice"),
    ("PATTERN (A) SUBSET U = (A) DEFINE U AS x", "U", "DEFINE names the subset U"),
    ("MEASURES x PATTERN (A)", "x", "a measure has no name"),
    ("MEASURES x AS m, y AS M PATTERN (A)", "y", "two measures are named M"),
    ("MEASURES Z.x AS m PATTERN (A)", "Z.x", "Z is neither a variable of the pattern nor a subset"),
    ("MEASURES CLASSIFIER(Z) AS m PATTERN (A)", "Z", "Z is neither a variable of the pattern nor a subset"),
    (
        "MEASURES sum(A.x + B.x) AS m PATTERN (A B)",
        "A.x + B.x",
        "sum looks at one row, and its argument names rows of several",
    ),
    (
        "MEASURES corr(A.x, B.x) AS m PATTERN (A B)",
        "corr(A.x, B.x)",
        "corr aggregates rows of several variables at once",
    ),
    ("MEASURES sum(PREV(x)) AS m PATTERN (A)", "PREV(x)", "sum cannot be taken of PREV"),
    ("MEASURES A.* AS m PATTERN (A)", "A.*", "* stands outside count"),
    ("MEASURES sum(x) OVER () AS m PATTERN (A)", "OVER", "OVER cannot follow a function in a pattern's expression"),
    ("MEASURES (SELECT 1) AS m PATTERN (A)", "SELECT", "a subquery cannot stand in a pattern's expression"),
    ("MEASURES x + AS m PATTERN (A)", "+", "an expression ends too early"),
    ("PATTERN (A) DEFINE A AS PREV(sum(x)) > 1", "sum(x)", "PREV cannot be taken of an aggregate"),
    ("PATTERN (A) DEFINE A AS FIRST(PREV(x)) > 1", "PREV(x)", "FIRST cannot be taken of PREV"),
    ("PATTERN (A) DEFINE A AS PREV(PREV(x)) > 1", "PREV(x)", "PREV cannot be taken of PREV"),
    ("PATTERN (A B) DEFINE B AS LAST(A.x + B.x) > 1", "A.x + B.x", "LAST looks at one row"),
    ("PATTERN (A) DEFINE A AS PREV(x, n) > 1", "n", "the offset of PREV is not a number that is known beforehand"),
    ("PATTERN (A) DEFINE A AS PREV(1) > 1", "PREV(1)", "PREV is taken of a constant"),
    (
        "PATTERN (A) DEFINE A AS FINAL LAST(x) > 1",
        "FINAL LAST(x)",
        "FINAL stands in DEFINE, where the match is not over",
    ),
    ("PATTERN (A) DEFINE A AS MATCH_STATUS() = 'x'", "MATCH_STATUS()", "MATCH_STATUS() stands in DEFINE"),
    (
        "PATTERN (A B) DEFINE B AS concat(A.x, B.x) = 'x'",
        "concat(A.x, B.x)",
        "concat cannot combine several rows of a match",
    ),
    (
        "PATTERN (A B) DEFINE B AS percentile(x, 0.5) > 1",
        "percentile(x, 0.5)",
        "a condition cannot use the aggregate percentile",
    ),
    (
        f"PATTERN (PERMUTE({', '.join(f'V{n}' for n in range(20))}))",
        "PERMUTE(",
        "PERMUTE of 20 elements needs 10,485,760 states",
    ),
    (
        "PATTERN (A{1,100000})",
        "A{1,100000}",
        "the pattern has 100,000 rows once it is written out, and 4,096 is the most",
    ),
]


@pytest.mark.parametrize(("body", "underlined", "sentence"), MALFORMED, ids=[each[2] for each in MALFORMED])
def test_a_malformed_clause_is_refused_with_its_place(body: str, underlined: str, sentence: str) -> None:
    sql = f"SELECT *\nFROM t\n  MATCH_RECOGNIZE (\n  {body})"

    with pytest.raises(InvalidPattern) as caught:
        compile_pattern(find_clauses(sql)[0])

    assert caught.value.message.startswith(sentence)
    line, carets = (caught.value.detail or "").split("\n")
    marked = line[carets.index("^") - 2 :][: carets.count("^")]
    assert marked.startswith(underlined) if underlined.endswith("(") else marked == underlined
    assert caught.value.hint
    assert caught.value.data["line"] in (3, 4)


def test_an_error_reads_as_a_whole() -> None:
    with pytest.raises(InvalidPattern) as caught:
        compile_pattern(find_clauses("t MATCH_RECOGNIZE (\n  MEASURES Strt.x AS a\n  PATTERN (Start b+))")[0])

    assert str(caught.value) == (
        "Strt is neither a variable of the pattern nor a subset, at line 2, column 12\n"
        "  MEASURES Strt.x AS a\n"
        "             ^^^^^^\n"
        '  Hint: Did you mean "Start"?'
    ).replace("  MEASURES", "    MEASURES")


@pytest.mark.parametrize(
    ("condition", "sentence"),
    [
        ("B.x > A.name", "> cannot combine DOUBLE and STRING"),
        ("B.name + A.name = 'x'", "+ cannot combine STRING"),
        ("B.x + A.x", "a condition is DOUBLE, not true or false"),
    ],
)
def test_types_that_do_not_fit_are_refused_before_a_row_is_matched(condition: str, sentence: str) -> None:
    program = compile_pattern(find_clauses(f"t MATCH_RECOGNIZE (ORDER BY t PATTERN (A B) DEFINE B AS {condition})")[0])
    kinds = {"x": pa.float64(), "name": pa.string(), "'x'": pa.string()}
    schema = pa.schema([(column.name, kinds[column.sql]) for column in program.row_columns])

    with pytest.raises(InvalidPattern) as caught:
        program.match(schema.empty_table(), np.array([0]))
    assert caught.value.message.startswith(sentence)


def test_a_clause_in_a_string_or_comment_is_none_and_several_are_found() -> None:
    clause = "MATCH_RECOGNIZE (ORDER BY t PATTERN (A))"
    hidden = f"SELECT '{clause}', `{clause}` -- {clause}\n/* {clause} */"
    sql = f"{hidden} FROM t {clause} AS one JOIN u match_recognize (PATTERN (B)) two"

    found = find_clauses(sql)

    assert [sql[slice(*each.span)] for each in found] == [clause, "match_recognize (PATTERN (B))"]
    assert [each.variables for each in found] == [("A",), ("B",)]


def test_a_field_of_a_column_is_told_from_a_variable_by_the_columns_there_are() -> None:
    clause = find_clauses(
        "t MATCH_RECOGNIZE (ORDER BY t MEASURES A.info.name AS n PATTERN (A) DEFINE A AS info.x > 1)"
    )[0]

    program = compile_pattern(clause, input_columns=["t", "info"])

    assert [column.sql for column in program.row_columns] == ["info.x > 1", "info.name"]
    with pytest.raises(InvalidPattern, match="info is neither"):
        compile_pattern(clause)


@pytest.mark.parametrize(
    ("body", "underlined"), [("DEFINE A AS x + 1", "x + 1"), ("WITHIN INTERVAL 1 DAY DEFINE A AS x > 1", "t")]
)
def test_a_column_of_the_wrong_type_is_refused_at_its_place(body: str, underlined: str) -> None:
    program = compile_pattern(find_clauses(f"u MATCH_RECOGNIZE (ORDER BY t PATTERN (A) {body})")[0])
    schema = pa.schema([(each.name, pa.bool_() if ">" in each.sql else pa.int32()) for each in program.row_columns])

    with pytest.raises(InvalidPattern, match="is of type int32") as caught:
        program.match(schema.empty_table(), np.array([0]))
    line, carets = (caught.value.detail or "").split("\n")
    assert line[carets.index("^") - 2 :][: carets.count("^")] == underlined


def test_an_aggregate_of_text_in_a_condition_is_refused() -> None:
    program = compile_pattern(find_clauses("t MATCH_RECOGNIZE (ORDER BY t PATTERN (A) DEFINE A AS sum(x) > 1)")[0])

    with pytest.raises(PatternFailed, match="a condition cannot take sum of a column of type STRING"):
        program.match(pa.schema([("_r0", pa.string())]).empty_table(), np.array([0]))


@pytest.mark.parametrize(
    ("measure", "sql"),
    [
        ("EXTRACT(YEAR FROM A.at)", "EXTRACT(YEAR FROM _s0)"),
        ("timestampdiff(MINUTE, A.at, B.at)", "timestampdiff(MINUTE, _s0, _s1)"),
        ("TRIM(BOTH 'x' FROM A.name)", "TRIM(BOTH 'x' FROM _s0)"),
        ("substring(A.name FROM 1 FOR 2)", "substring(_s0 FROM 1 FOR 2)"),
        ("A.name LIKE 'a!%' ESCAPE '!'", "_s0 LIKE 'a!%' ESCAPE '!'"),
        ("transform(A.list, (x, i) -> x + i + B.n)[0]", "transform(_s0, (x, i) -> x + i + _s1)[0]"),
        ("CAST(A.x AS DECIMAL(10, 2)) / B.y::double", "CAST(_s0 AS DECIMAL(10, 2)) / _s1::double"),
        ("A.at + INTERVAL '1' DAY - INTERVAL 2 HOURS", "_s0 + INTERVAL '1' DAY - INTERVAL 2 HOURS"),
        ("CASE WHEN A.x > 1 THEN 'a.b' ELSE `b`.`y z` END", "CASE WHEN _s0 > 1 THEN 'a.b' ELSE _s1 END"),
        ("FINAL LAST(A.x) - RUNNING FIRST(x + 1)", "_s0 - _s1"),
    ],
)
def test_a_measure_stays_the_users_text_around_its_references(measure: str, sql: str) -> None:
    program = compile_pattern(find_clauses(f"t MATCH_RECOGNIZE (ORDER BY t MEASURES {measure} AS m PATTERN (A B))")[0])

    assert program.measures[0].sql == sql
