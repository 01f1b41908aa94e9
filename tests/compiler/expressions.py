"""Random expressions of a wanted type, over the names of a scope.

What it is: the scalar part of the grammar: columns, literals, arithmetic, CASE, CAST, functions, predicates, and calls
of aggregates.
Invariants: an expression of a type is valid in Spark and in DuckDB, and means the same in both.
Not here: queries (``queries.py``).
Read next: ``queries.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

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
    """Writes expressions over a scope. Only the form that is chosen draws its parts."""

    def __init__(self, draw: st.DrawFn, scope: Sequence[Name]) -> None:
        self.draw = draw
        self.scope = scope

    def pick(self, options: Sequence[str]) -> str:
        return self.draw(st.sampled_from(list(options)))

    def choose(self, forms: Sequence[Callable[[], T]]) -> T:
        return forms[self.draw(st.integers(0, len(forms) - 1))]()

    def columns(self, kind: str) -> list[str]:
        return [name.text for name in self.scope if name.kind == kind]

    def some_kind(self) -> str:
        return self.pick([name.kind for name in self.scope if name.kind in SIMPLE] or ["INT"])

    def column_or_literal(self, kind: str) -> str:
        return self.pick(self.columns(kind) or LITERALS[kind])

    def of(self, kind: str, depth: int) -> str:
        """An expression of a simple type. With depth 0 a column, if there is one."""
        if kind == "BOOLEAN" and (depth > 0 or not self.columns(kind)):
            return self.predicate(depth)
        if depth <= 0:
            return self.column_or_literal(kind)

        def part(other: str = kind) -> str:
            return self.of(other, depth - 1)

        general: list[Callable[[], str]] = [
            part,
            lambda: f"coalesce({part()}, {part()})",
            lambda: f"CASE WHEN {part('BOOLEAN')} THEN {part()} ELSE {part()} END",
            lambda: f"CASE WHEN {part('BOOLEAN')} THEN {part()} END",
            lambda: f"nullif({part()}, {part()})",
            lambda: self.pick(LITERALS[kind]),
        ]
        structs = self.columns("STRUCT<x: INT, y: STRING>")
        special: dict[str, list[Callable[[], str]]] = {
            "INT": [
                lambda: f"({part()} + 1)",
                lambda: f"({part()} % 2)",
                lambda: f"abs({part()})",
                lambda: f"CAST({part('BOOLEAN')} AS INT)",
                lambda: f"CAST(length({part('STRING')}) AS INT)",
                *([lambda: f"{self.pick(structs)}.x"] if structs else []),
            ],
            "BIGINT": [lambda: f"({part()} + {part('INT')})", lambda: f"CAST({part('INT')} AS BIGINT)"],
            "DOUBLE": [
                lambda: f"({part()} + {part()})",
                lambda: f"({part()} / 2)",
                lambda: f"CAST({part('INT')} AS DOUBLE)",
            ],
            "DECIMAL(7, 2)": [lambda: f"CAST({part('INT')} AS DECIMAL(7, 2))"],
            "STRING": [
                lambda: f"upper({part()})",
                lambda: f"concat({part()}, {part()})",
                lambda: f"substring({part()}, 1, 1)",
                lambda: f"CAST({part('INT')} AS STRING)",
                *([lambda: f"{self.pick(structs)}.y"] if structs else []),
            ],
            "DATE": [lambda: f"CAST({part('TIMESTAMP')} AS DATE)"],
            "TIMESTAMP": [lambda: f"CAST({part('DATE')} AS TIMESTAMP)"],
        }
        return self.choose(general + special[kind])

    def predicate(self, depth: int) -> str:
        kind = self.some_kind()

        def one() -> str:
            return self.of(kind, depth - 1) if depth > 0 and kind != "BOOLEAN" else self.column_or_literal(kind)

        def other() -> str:
            return self.column_or_literal(kind)

        forms: list[Callable[[], str]] = [
            lambda: f"{one()} = {other()}",
            lambda: f"{one()} < {self.pick(LITERALS[kind])}",
            lambda: f"{one()} >= {other()}",
            lambda: f"{one()} <> {other()}",
            lambda: f"{one()} IS NULL",
            lambda: f"{one()} IS NOT NULL",
            lambda: f"{one()} <=> {other()}",
            lambda: f"{one()} IN ({self.pick(LITERALS[kind])}, {other()})",
        ]
        if depth > 0:
            forms += [
                lambda: f"{self.predicate(depth - 1)} AND {self.predicate(depth - 1)}",
                lambda: f"{self.predicate(depth - 1)} OR {self.predicate(depth - 1)}",
                lambda: f"NOT {self.predicate(depth - 1)}",
            ]
        return f"({self.choose(forms)})"

    def comparison(self, text: str, kind: str) -> str:
        """A condition on an expression of a simple type, for HAVING."""
        return f"{text} {self.pick(['>', '<=', '=', '<>'])} {self.pick(LITERALS[kind])}"

    def aggregate(self, *, rounded: bool) -> tuple[str, str]:
        """A call of an aggregate, and its type. ``rounded``: ones that databases compute to rounding as well."""
        kind = self.some_kind()

        def call(form: str, argument: str, result: str | None = None) -> Callable[[], tuple[str, str]]:
            return lambda: (form.format(self.of(argument, 1)), result or argument)

        calls = [
            lambda: ("count(*)", "BIGINT"),
            call("count({})", kind, "BIGINT"),
            call("sum({})", "INT", "BIGINT"),
            call("min({})", kind),
            call("max({})", kind),
            call("count(DISTINCT {})", kind, "BIGINT"),
            call("avg({})", "INT", "DOUBLE"),
            call("bool_or({})", "BOOLEAN"),
            call("every({})", "BOOLEAN"),
            call("count_if({})", "BOOLEAN", "BIGINT"),
            call("count(*) FILTER (WHERE {})", "BOOLEAN", "BIGINT"),
            lambda: (f"sum({self.of('INT', 1)}) FILTER (WHERE {self.of('BOOLEAN', 1)})", "BIGINT"),
            call("sum(DISTINCT {})", "INT", "BIGINT"),
            call("CAST(size(collect_list({})) AS INT)", kind, "INT"),
            call("CAST(size(collect_set({})) AS INT)", kind, "INT"),
        ]
        if self.columns("DOUBLE"):
            calls += [call("sum({})", "DOUBLE"), call("avg({})", "DOUBLE")] * 2
        if self.columns("BIGINT"):
            calls += [lambda: (f"sum({self.of('BIGINT', 0)})", "BIGINT")]
        decimals = self.columns("DECIMAL(7, 2)")
        if rounded:
            calls += [call("stddev({})", "INT", ROUNDED), call("var_pop({})", "INT", ROUNDED)]
        if rounded and decimals:
            calls += [
                lambda: (f"sum({self.pick(decimals)})", ROUNDED),
                lambda: (f"avg({self.pick(decimals)})", ROUNDED),
            ]
        return self.choose(calls)
