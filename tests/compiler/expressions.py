"""Random expressions of a wanted type, over the names of a scope.

What it is: the scalar part of the grammar: columns, literals, arithmetic, CASE, CAST, functions, predicates, and calls
of aggregates.
Invariants: an expression of a type is valid in Spark and in DuckDB, and means the same in both.
Not here: queries (``queries.py``).
Read next: ``queries.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

ROUNDED = "ROUNDED"  # a number that two databases compute to rounding: shown, never used
LITERALS = {
    "INT": ["0", "1", "2", "-1"],
    "BIGINT": ["CAST(1 AS BIGINT)", "CAST(2 AS BIGINT)"],
    "DOUBLE": ["CAST(0.25 AS DOUBLE)", "CAST(2 AS DOUBLE)"],
    "DECIMAL(7, 2)": ["CAST(1.25 AS DECIMAL(7, 2))"],
    "STRING": ["'a'", "'b'", "''"],
    "BOOLEAN": ["TRUE", "FALSE"],
    "DATE": ["DATE'2024-01-01'"],
    "TIMESTAMP": ["TIMESTAMP'2024-01-01 00:00:00'"],
}
SIMPLE = tuple(LITERALS)


@dataclass(frozen=True)
class Name:
    """A column as a query may mention it."""

    text: str
    kind: str


class Writer:
    """Writes expressions over a scope."""

    def __init__(self, draw: st.DrawFn, scope: Sequence[Name]) -> None:
        self.draw = draw
        self.scope = scope

    def pick(self, options: Sequence[str]) -> str:
        return self.draw(st.sampled_from(list(options)))

    def columns(self, kind: str) -> list[str]:
        return [name.text for name in self.scope if name.kind == kind]

    def column_or_literal(self, kind: str) -> str:
        columns = self.columns(kind)
        return self.pick(columns) if columns else self.pick(LITERALS[kind])

    def of(self, kind: str, depth: int) -> str:
        """An expression of a simple type. With depth 0 a column, if there is one."""
        if depth <= 0:
            return self.predicate(0) if kind == "BOOLEAN" and not self.columns(kind) else self.column_or_literal(kind)
        if kind == "BOOLEAN":
            return self.predicate(depth)
        one, other = (self.of(kind, depth - 1) for _ in range(2))
        general = [
            one,
            f"coalesce({one}, {other})",
            f"CASE WHEN {self.of('BOOLEAN', depth - 1)} THEN {one} ELSE {other} END",
            f"CASE WHEN {self.of('BOOLEAN', depth - 1)} THEN {one} END",
            f"nullif({one}, {other})",
            self.pick(LITERALS[kind]),
        ]
        special = {
            "INT": [
                f"({one} + 1)",
                f"({one} % 2)",
                f"abs({one})",
                f"CAST({self.of('BOOLEAN', depth - 1)} AS INT)",
                f"CAST(length({self.of('STRING', 0)}) AS INT)",
                *(f"{name}.x" for name in self.columns("STRUCT<x: INT, y: STRING>")),
            ],
            "BIGINT": [f"({one} + {self.of('INT', 0)})", f"CAST({self.of('INT', 0)} AS BIGINT)"],
            "DOUBLE": [f"({one} + {other})", f"({one} / 2)", f"CAST({self.of('INT', 0)} AS DOUBLE)"],
            "DECIMAL(7, 2)": [f"CAST({self.of('INT', 0)} AS DECIMAL(7, 2))"],
            "STRING": [
                f"upper({one})",
                f"concat({one}, {other})",
                f"substring({one}, 1, 1)",
                f"CAST({self.of('INT', 0)} AS STRING)",
                *(f"{name}.y" for name in self.columns("STRUCT<x: INT, y: STRING>")),
            ],
            "DATE": [f"CAST({self.of('TIMESTAMP', 0)} AS DATE)"],
            "TIMESTAMP": [f"CAST({self.of('DATE', 0)} AS TIMESTAMP)"],
        }
        return self.pick(general + special[kind])

    def predicate(self, depth: int) -> str:
        kind = self.pick([name.kind for name in self.scope if name.kind in SIMPLE] or ["INT"])
        one, other = (self.column_or_literal(kind) for _ in range(2))
        if depth > 0:
            one = self.of(kind, depth - 1)
        simple = [
            f"{one} = {other}",
            f"{one} < {self.pick(LITERALS[kind])}",
            f"{one} >= {other}",
            f"{one} <> {other}",
            f"{one} IS NULL",
            f"{one} IS NOT NULL",
            f"{one} <=> {other}",
            f"{one} IN ({self.pick(LITERALS[kind])}, {other})",
        ]
        if depth <= 0:
            return f"({self.pick(simple)})"
        left, right = (self.predicate(depth - 1) for _ in range(2))
        return f"({self.pick([*simple, f'{left} AND {right}', f'{left} OR {right}', f'NOT {left}'])})"

    def comparison(self, text: str, kind: str) -> str:
        """A condition on an expression of a simple type, for HAVING."""
        return f"{text} {self.pick(['>', '<=', '=', '<>'])} {self.pick(LITERALS[kind])}"

    def aggregate(self, *, rounded: bool) -> tuple[str, str]:
        """A call of an aggregate, and its type. ``rounded``: ones that databases compute to rounding as well."""
        kind = self.pick([name.kind for name in self.scope if name.kind in SIMPLE] or ["INT"])
        value, integer = self.of(kind, 1), self.of("INT", 1)
        calls = [
            ("count(*)", "BIGINT"),
            (f"count({value})", "BIGINT"),
            (f"sum({integer})", "BIGINT"),
            (f"min({value})", kind),
            (f"max({value})", kind),
            (f"count(DISTINCT {value})", "BIGINT"),
            (f"avg({integer})", "DOUBLE"),
            (f"bool_or({self.of('BOOLEAN', 1)})", "BOOLEAN"),
            (f"every({self.of('BOOLEAN', 1)})", "BOOLEAN"),
            (f"count_if({self.of('BOOLEAN', 1)})", "BIGINT"),
            (f"sum({integer}) FILTER (WHERE {self.of('BOOLEAN', 1)})", "BIGINT"),
            (f"count(*) FILTER (WHERE {self.of('BOOLEAN', 1)})", "BIGINT"),
            (f"sum(DISTINCT {integer})", "BIGINT"),
            (f"size(collect_list({value}))", "INT"),
            (f"size(collect_set({value}))", "INT"),
        ]
        if self.columns("DOUBLE"):
            calls += [(f"sum({self.of('DOUBLE', 1)})", "DOUBLE"), (f"avg({self.of('DOUBLE', 0)})", "DOUBLE")] * 2
        if self.columns("BIGINT"):
            calls += [(f"sum({self.of('BIGINT', 0)})", "BIGINT")]
        if rounded:
            calls += [(f"stddev({integer})", ROUNDED), (f"var_pop({integer})", ROUNDED)]
            calls += [(f"sum({name})", ROUNDED) for name in self.columns("DECIMAL(7, 2)")]
            calls += [(f"avg({name})", ROUNDED) for name in self.columns("DECIMAL(7, 2)")]
        return self.draw(st.sampled_from(calls))
