"""Random queries in Spark's SQL, over given tables: what a user may declare as a view.

What it is: a grammar as hypothesis draws. A query is a text and the types of its columns ``c0``, ``c1``, …; sources
of a query are tables, earlier views or queries again.
Invariants: every query is valid Spark SQL and a function of its inputs: windows and limits have a total order (rows
that tie are equal), nothing overflows, nothing is divided by zero. What the databases compute differently to rounding
(averages of decimals, standard deviations) has the type ``ROUNDED`` and is never compared with or computed on.
Not here: tables, rows and ticks (``schemas.py``); how DuckDB differs from Spark (``views/compiler/sql/dialect.py``).
Read next: ``test_incremental_equals_batch.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from headwater.views.compiler.plan import Relation
from tests.compiler.expressions import ROUNDED, SIMPLE, Name, Writer

Columns = tuple[tuple[str, str], ...]  # name and type


@dataclass(frozen=True)
class Query:
    """A query's text, and the types of its columns."""

    sql: str
    types: tuple[str, ...]

    @property
    def columns(self) -> Columns:
        return tuple((f"c{number}", kind) for number, kind in enumerate(self.types))


@dataclass(frozen=True)
class View:
    """A view as a user declares it."""

    name: str
    query: Query


@st.composite
def views(draw: st.DrawFn, tables: Sequence[Relation], *, most: int = 2, united: bool = False) -> tuple[View, ...]:
    """One view or several, the later ones over the earlier ones too.

    ``united``: also over unions of tables. Spark 4 itself fails at an EXISTS as a value over some of them.
    """
    sources = [(table.name, tuple((column.name, str(column.type)) for column in table.columns)) for table in tables]
    found: list[View] = []
    for number in range(draw(st.integers(1, most))):
        query = Grammar(draw, sources, united).query(depth=2, top=True)
        found.append(View(f"v{number}", query))
        sources.append((f"v{number}", query.columns))
    return tuple(found)


class Grammar:
    """Writes queries; every choice is a draw, so that hypothesis can make a failing one smaller."""

    def __init__(self, draw: st.DrawFn, sources: Sequence[tuple[str, Columns]], united: bool = False) -> None:
        self.draw = draw
        self.sources = sources
        self.united = united
        self.aliases = 0

    def pick(self, options: Sequence[str]) -> str:
        return self.draw(st.sampled_from(list(options)))

    def maybe(self, one_in: int = 2) -> bool:
        # Zero is what hypothesis shrinks to: the plain form.
        return self.draw(st.integers(0, one_in - 1)) == one_in - 1

    def alias(self) -> str:
        self.aliases += 1
        return f"q{self.aliases}"

    def writer(self, scope: Sequence[Name]) -> Writer:
        return Writer(self.draw, scope)

    # Queries.

    def query(self, depth: int, *, top: bool = False) -> Query:
        forms: list[Callable[[int, bool], Query]] = [self.plain, self.grouped]
        if depth > 0:
            forms += [
                self.plain,
                self.grouped,
                self.distinct,
                self.of_sets,
                self.windowed,
                self.limited,
                self.grouping_sets,
                self.exploded,
                self.with_subquery,
                self.with_subquery,
                self.with_cte,
                self.of_values,
                self.with_scalar,
                self.top_of_each,
                self.by_time,
                self.by_time,
                self.within,
            ]
        form = forms[self.draw(st.integers(0, len(forms) - 1))]
        return form(depth, top)

    def plain(self, depth: int, top: bool) -> Query:
        del top
        source, scope = self.from_clause(depth)
        items = self.items(scope)
        return self.select(items, source + self.where(scope))

    def distinct(self, depth: int, top: bool) -> Query:
        del top
        source, scope = self.from_clause(depth)
        return self.select(self.items(scope), source + self.where(scope), "SELECT DISTINCT")

    def grouped(self, depth: int, top: bool) -> Query:
        source, scope = self.from_clause(depth)
        groups = self.items(scope, least=0, most=2)
        return self.aggregation(scope, source + self.where(scope), groups, top)

    def aggregation(self, scope: Sequence[Name], source: str, groups: list[tuple[str, str]], top: bool) -> Query:
        writer = self.writer(scope)
        items = groups + [writer.aggregate(rounded=top) for _ in range(self.draw(st.integers(1, 3)))]
        by = f" GROUP BY {', '.join(text for text, _ in groups)}" if groups else ""
        having = ""
        if self.maybe(3):
            text, kind = writer.aggregate(rounded=False)
            having = f" HAVING {writer.comparison(text, kind)}" if kind in SIMPLE else ""
        return self.select(items, source + by + having)

    def by_time(self, depth: int, top: bool) -> Query:
        """Tumbling and hopping windows and sessions; sometimes windows of those windows."""
        source, scope = self.from_clause(depth, joins=False)
        times = [name.text for name in scope if name.kind == "TIMESTAMP"]
        if not times:
            return self.plain(depth, top)
        time = self.pick(times)
        gap = f"CASE WHEN {self.writer(scope).of('BOOLEAN', 1)} THEN '5 minutes' ELSE '1 minute' END"
        call = self.pick(
            [
                f"window({time}, '5 minutes')",
                f"window({time}, '10 minutes', '5 minutes')",
                f"window({time}, '5 minutes', '4 minutes')",
                f"session_window({time}, '5 minutes')",
                f"session_window({time}, {gap})",
            ]
        )
        groups = self.items(scope, least=0, most=1)
        by = ", ".join([call, *(text for text, _ in groups)])
        aggregate = self.writer(scope).aggregate(rounded=top)
        ends = [(f"{call}.start", "TIMESTAMP"), (f"{call}.end", "TIMESTAMP")]
        if not self.maybe(3):
            return self.select([*ends, *groups, aggregate], f"{source}{self.where(scope)} GROUP BY {by}")
        inner = self.select([(call, "WINDOW"), *groups, aggregate], f"{source}{self.where(scope)} GROUP BY {by}")
        name = self.alias()
        outer = f"window(window_time({name}.c0), '15 minutes')"
        counted = [(f"{outer}.start", "TIMESTAMP"), ("count(*)", "BIGINT")]
        return self.select(counted, f" FROM ({inner.sql}) AS {name} GROUP BY {outer}")

    def within(self, depth: int, top: bool) -> Query:
        """Rows that are near to each other in time: a frame of time, or a join with a bound."""
        source, scope = self.from_clause(depth, joins=False)
        times = [name.text for name in scope if name.kind == "TIMESTAMP"]
        other, inner = self.inner_table()
        others = [name.text for name in inner if name.kind == "TIMESTAMP"]
        if not times:
            return self.plain(depth, top)
        time, link = self.pick(times), self.writer(scope).of("INT", 1)
        if not others or self.maybe(3):
            frame = self.pick(
                ["INTERVAL 5 MINUTES PRECEDING AND CURRENT ROW", "CURRENT ROW AND INTERVAL 300 SECONDS FOLLOWING"]
            )
            value = self.writer(scope).of("INT", 1)
            call = f"sum({value}) OVER (PARTITION BY {link} ORDER BY {time} RANGE BETWEEN {frame})"
            return self.select([*self.items(scope, most=2), (call, "BIGINT")], source + self.where(scope))
        near = f"{self.pick(others)} BETWEEN {time} - INTERVAL 5 MINUTES AND {time}"
        linked = f"{self.integer(inner)} = {link} AND {near}"
        kind = self.pick(["JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "EXISTS", "NOT EXISTS"])
        if kind.endswith("EXISTS"):
            return self.select(self.items(scope), f"{source} WHERE {kind} (SELECT 1 FROM {other} WHERE {linked})")
        both = scope if "SEMI" in kind or "ANTI" in kind else [*scope, *inner]
        return self.select(self.items(both), f"{source} {kind} {other} ON {linked}")

    def grouping_sets(self, depth: int, top: bool) -> Query:
        source, scope = self.from_clause(depth)
        columns = [(name.text, name.kind) for name in scope if name.kind in SIMPLE][:2]
        if not columns:
            return self.plain(depth, top)
        names = [text for text, _ in columns]
        sets = self.pick(
            [f"ROLLUP ({', '.join(names)})", f"CUBE ({', '.join(names)})", f"GROUPING SETS (({names[0]}), ())"]
        )
        columns = columns[:1] if sets.startswith("GROUPING") else columns
        aggregate = self.writer(scope).aggregate(rounded=top)
        items = [*columns, aggregate]
        if self.maybe():
            items.append((f"CAST(grouping({names[0]}) AS INT)", "INT"))
        return self.select(items, f"{source}{self.where(scope)} GROUP BY {sets}")

    def of_sets(self, depth: int, top: bool) -> Query:
        del top
        left = self.query(depth - 1)
        kinds = [kind for kind in left.types if kind in SIMPLE] or ["INT"]
        sides = []
        for query in (left, self.query(depth - 1)):
            name = self.alias()
            scope = [Name(f"{name}.{column}", kind) for column, kind in query.columns]
            items = [(self.writer(scope).of(kind, 1), kind) for kind in kinds]
            sides.append(self.select(items, f" FROM ({query.sql}) AS {name}").sql)
        operator = self.pick(["UNION ALL", "UNION", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"])
        return Query(f"{sides[0]} {operator} {sides[1]}", tuple(kinds))

    def windowed(self, depth: int, top: bool) -> Query:
        source, scope = self.from_clause(depth)
        if not any(name.kind in SIMPLE for name in scope):  # nothing to order by
            return self.plain(depth, top)
        function, kind = self.window(scope)
        return self.select([*self.items(scope, most=2), (function, kind)], source + self.where(scope))

    def window(self, scope: Sequence[Name]) -> tuple[str, str]:
        ordered = ", ".join(name.text + self.pick(["", " DESC"]) for name in scope if name.kind in SIMPLE)
        by = ""
        if self.maybe(3) is False:
            by = f"PARTITION BY {self.writer(scope).of(self.pick(['INT', 'STRING']), 1)} "
        value = self.writer(scope).of("INT", 1)
        function, kind, frame = self.draw(
            st.sampled_from(
                [
                    ("row_number()", "INT", ""),
                    ("rank()", "INT", ""),
                    ("dense_rank()", "INT", ""),
                    (f"lag({value})", "INT", ""),
                    (f"lead({value}, 2)", "INT", ""),
                    (f"sum({value})", "BIGINT", ""),
                    (f"count({value})", "BIGINT", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"),
                    (f"max({value})", "INT", " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING"),
                    (f"first_value({value})", "INT", ""),
                ]
            )
        )
        return f"{function} OVER ({by}ORDER BY {ordered}{frame})", kind

    def top_of_each(self, depth: int, top: bool) -> Query:
        """The first rows of each key, as people write it."""
        source, scope = self.from_clause(depth)
        if not any(name.kind in SIMPLE for name in scope):
            return self.plain(depth, top)
        items = self.items(scope)
        ordered = ", ".join(name.text for name in scope if name.kind in SIMPLE)
        by = self.writer(scope).of("INT", 1)
        number = f"row_number() OVER (PARTITION BY {by} ORDER BY {ordered})"
        inner = self.select([*items, (number, "INT")], source + self.where(scope))
        name = self.alias()
        outer = [(f"{name}.{column}", kind) for column, kind in inner.columns[:-1]]
        last = inner.columns[-1][0]
        return self.select(outer, f" FROM ({inner.sql}) AS {name} WHERE {name}.{last} <= {self.pick('12')}")

    def limited(self, depth: int, top: bool) -> Query:
        del top
        source, scope = self.from_clause(depth)
        query = self.select(self.items(scope), source + self.where(scope))
        ordered = ", ".join(name + self.pick(["", " DESC"]) for name, _ in query.columns)
        offset = self.pick(["", "", " OFFSET 1"])
        return Query(f"{query.sql} ORDER BY {ordered} LIMIT {self.pick('123')}{offset}", query.types)

    def exploded(self, depth: int, top: bool) -> Query:
        del top
        source, scope = self.from_clause(depth, joins=False)
        arrays = [name.text for name in scope if name.kind == "ARRAY<INT>"]
        writer = self.writer(scope)
        array = self.pick(arrays) if arrays else f"array({writer.of('INT', 1)}, {writer.of('INT', 1)})"
        name = self.alias()
        form = self.pick(["LATERAL VIEW explode({}) {} AS e", "LATERAL VIEW OUTER explode({}) {} AS e"])
        scope = [*scope, Name(f"{name}.e", "INT")]
        return self.select(
            [*self.items(scope), (f"{name}.e", "INT")], f"{source} {form.format(array, name)}{self.where(scope)}"
        )

    def with_cte(self, depth: int, top: bool) -> Query:
        """A common table expression that is used once or twice."""
        inner = self.query(depth - 1)
        outer = Grammar(self.draw, [("shared", inner.columns), *self.sources], self.united)
        outer.aliases = self.aliases + 10
        query = outer.grouped(0, top) if self.maybe() else outer.plain(0, top)
        self.aliases = outer.aliases
        return Query(f"WITH shared AS ({inner.sql}) {query.sql}", query.types)

    def of_values(self, depth: int, top: bool) -> Query:
        del depth, top
        name = self.alias()
        given = f"(VALUES (1, 'a'), (2, 'b'), (2, NULL)) AS {name}(n, w)"
        scope = [Name(f"{name}.n", "INT"), Name(f"{name}.w", "STRING")]
        if self.maybe():
            return self.select(self.items(scope), f" FROM {given}")
        source, others = self.from_clause(0, joins=False)
        both = [*others, *scope]
        return self.select(self.items(both), f"{source} JOIN {given} ON {self.writer(others).of('INT', 0)} = {name}.n")

    # Subqueries.

    def with_subquery(self, depth: int, top: bool) -> Query:
        """IN, NOT IN, EXISTS, NOT EXISTS, comparisons with a scalar; alone, under AND, under OR."""
        del top
        source, scope = self.from_clause(depth, joins=self.maybe())
        predicate = self.subquery_predicate(scope)
        if self.maybe(3):
            predicate = f"({predicate} {self.pick(['AND', 'OR'])} {self.writer(scope).of('BOOLEAN', 1)})"
        return self.select(self.items(scope), f"{source} WHERE {predicate}")

    def subquery_predicate(self, scope: Sequence[Name]) -> str:
        table, inner = self.inner_table()

        def mine() -> str:
            return self.writer(scope).of("INT", 1)

        def value() -> str:
            return self.writer(inner).of("INT", 1)

        def linked() -> str:
            return f"FROM {table} WHERE {self.linked(inner, scope)}"

        def free() -> str:
            return f"FROM {table}" + (f" WHERE {self.writer(inner).of('BOOLEAN', 1)}" if self.maybe() else "")

        return self.writer(scope).choose(
            [
                lambda: f"EXISTS (SELECT 1 {linked()})",
                lambda: f"NOT EXISTS (SELECT 1 {linked()})",
                lambda: f"{mine()} IN (SELECT {value()} {free()})",
                lambda: f"{mine()} NOT IN (SELECT {value()} {free()})",
                lambda: f"{mine()} <= (SELECT max({value()}) {free()})",
                lambda: f"{mine()} < (SELECT count(*) {linked()})",
                lambda: f"{mine()} = (SELECT max({value()}) {linked()})",
                lambda: f"{mine()} IN (SELECT {value()} {linked()})",
            ]
        )

    def with_scalar(self, depth: int, top: bool) -> Query:
        """A scalar subquery in the select list."""
        del top
        source, scope = self.from_clause(depth, joins=False)
        table, inner = self.inner_table()
        value = self.writer(inner).of("INT", 1)
        scalar = self.writer(scope).choose(
            [
                lambda: f"(SELECT count(*) FROM {table} WHERE {self.linked(inner, scope)})",
                lambda: f"(SELECT sum({value}) FROM {table} WHERE {self.linked(inner, scope)})",
                lambda: f"(SELECT sum({value}) FROM {table})",
            ]
        )
        return self.select([*self.items(scope, most=2), (scalar, "BIGINT")], source + self.where(scope))

    def inner_table(self) -> tuple[str, list[Name]]:
        """A table for a subquery, and its names."""
        table, columns = self.draw(st.sampled_from(self.sources))
        name = self.alias()
        return f"{table} AS {name}", [Name(f"{name}.{column}", kind) for column, kind in columns]

    def linked(self, inner: Sequence[Name], scope: Sequence[Name]) -> str:
        """A condition that links a subquery to the query around it."""
        linked = f"{self.integer(inner)} = {self.integer(scope)}"
        return f"{linked} AND {self.writer(inner).of('BOOLEAN', 1)}" if self.maybe(3) else linked

    # Clauses.

    def from_clause(self, depth: int, *, joins: bool = True) -> tuple[str, list[Name]]:
        """FROM one source or several, and the names it gives."""
        text, scope = self.source(depth)
        text = f" FROM {text}"
        for _ in range(self.draw(st.integers(0, 2)) if joins else 0):
            other, names = self.source(depth - 1)
            kind = self.pick(
                [
                    "JOIN",
                    "JOIN",
                    "LEFT JOIN",
                    "RIGHT JOIN",
                    "FULL JOIN",
                    "LEFT SEMI JOIN",
                    "LEFT ANTI JOIN",
                    "CROSS JOIN",
                ]
            )
            if kind == "CROSS JOIN":
                text, scope = f"{text} CROSS JOIN {other}", [*scope, *names]
                continue
            text = f"{text} {kind} {other} ON {self.join_condition(scope, names, kind)}"
            scope = scope if kind in ("LEFT SEMI JOIN", "LEFT ANTI JOIN") else [*scope, *names]
        return text, scope

    def source(self, depth: int) -> tuple[str, list[Name]]:
        name = self.alias()
        if depth > 0 and self.maybe(3):
            query = self.query(depth - 1)
            return f"({query.sql}) AS {name}", [Name(f"{name}.{column}", kind) for column, kind in query.columns]
        if self.united and self.maybe(6):
            sides = [
                f"SELECT {self.integer(names)} AS e, {self.integer(names)} AS f FROM {table}"
                for table, names in (self.inner_table(), self.inner_table())
            ]
            return f"({' UNION ALL '.join(sides)}) AS {name}", [Name(f"{name}.e", "INT"), Name(f"{name}.f", "INT")]
        table, columns = self.draw(st.sampled_from(self.sources))
        names = [Name(f"{name}.{column}", kind) for column, kind in columns]
        if self.maybe(4):  # columns that are never null, unless an outer join makes them so
            marked = f"SELECT *, 1 AS one, coalesce({self.integer(names)}, 2) AS filled FROM {table} AS {name}"
            return f"({marked}) AS {name}", [*names, Name(f"{name}.one", "INT"), Name(f"{name}.filled", "INT")]
        return f"{table} AS {name}", names

    def join_condition(self, left: Sequence[Name], right: Sequence[Name], kind: str) -> str:
        equal = f"{self.integer(left)} = {self.integer(right)}"
        if self.maybe(3):
            other = self.writer([*left, *right]).choose(
                [
                    lambda: f"{self.integer(left)} <= {self.integer(right)}",
                    lambda: self.writer([*left, *right]).of("BOOLEAN", 1),
                    lambda: f"{self.integer(left)} <=> {self.integer(right)}",
                ]
            )
            # DuckDB has FULL JOIN with equalities only.
            return f"{equal} AND {other}" if kind == "FULL JOIN" or self.maybe() else other
        return equal

    def integer(self, scope: Sequence[Name]) -> str:
        return self.writer(scope).of("INT", 0)

    def where(self, scope: Sequence[Name]) -> str:
        return f" WHERE {self.writer(scope).of('BOOLEAN', 2)}" if self.maybe(3) else ""

    def items(self, scope: Sequence[Name], *, least: int = 1, most: int = 3) -> list[tuple[str, str]]:
        """Expressions for a select list or a GROUP BY; sometimes more than a column."""
        writer = self.writer(scope)
        kinds = [name.kind for name in scope if name.kind in SIMPLE] or ["INT"]
        found: list[tuple[str, str]] = []
        for _ in range(self.draw(st.integers(least, most))):
            kind = self.pick(kinds)
            text = writer.of(kind, 1 if self.maybe(3) else 0)
            if text not in [item for item, _ in found] and not text.lstrip("(-").replace(".", "")[:1].isdigit():
                found.append((text, kind))
        return found or [(writer.column_or_literal(kinds[0]), kinds[0])][:least]

    def select(self, items: Sequence[tuple[str, str]], rest: str, verb: str = "SELECT") -> Query:
        listed = ", ".join(f"{text} AS c{number}" for number, (text, _) in enumerate(items))
        return Query(f"{verb} {listed}{rest}", tuple(kind for _, kind in items))


assert ROUNDED not in SIMPLE
