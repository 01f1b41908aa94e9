"""Navigation: which row of a match each reference of an expression looks at.

What it is: ``Names``, the variables and subsets of a clause; ``Anchor``, a row of the match (the first or last of some
variables, counted on by an offset); ``Navigator``, which reads FIRST, LAST, PREV, NEXT, RUNNING, FINAL and CLASSIFIER
and writes one-row expressions as Spark's SQL; ``RowColumns``, the list of those.
Invariants: a physical offset (PREV, NEXT) becomes lag or lead over the window ``__w``; everything under one navigation
looks at one row; a row column is listed once.
Not here: what DEFINE and MEASURES do with the references (``condition_split.py``, ``measure_split.py``).
Read next: ``condition_split.py``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from headwater.hints import suggestion
from headwater.patterns.clause.match_clause import MatchClause
from headwater.patterns.clause.pattern_scanner import Span, refuse, scan
from headwater.patterns.expressions.row_expression import Expression, render, walk

OFFSET_MAX = 10_000
LOGICAL = {"FIRST", "LAST"}
PHYSICAL = {"PREV", "NEXT"}
SPECIAL = {"CLASSIFIER", "MATCH_NUMBER", "MATCH_STATUS"}
AGGREGATES = set(
    """any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor bool_and bool_or
    collect_list collect_set corr count count_if count_min_sketch covar_pop covar_samp every first_value
    histogram_numeric hll_sketch_agg hll_union_agg kurtosis last_value listagg max max_by mean median min min_by mode
    percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2
    regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp string_agg sum try_avg
    try_sum var_pop var_samp variance bitmap_construct_agg bitmap_or_agg kll_sketch_agg_bigint kll_sketch_agg_double
    theta_sketch_agg bloom_agg""".upper().split()
)


@dataclass(frozen=True)
class Anchor:
    """A row of the match: the first or the last of the rows of some variables (None: all), ``offset`` rows inwards."""

    variables: tuple[int, ...] | None
    first: bool = False
    offset: int = 0
    final: bool = False


@dataclass(frozen=True)
class RowColumn:
    """A SQL expression over one row of the input, which Spark computes before matching."""

    name: str
    sql: str


@dataclass
class RowColumns:
    """The row columns of a program, each once, and the largest physical offsets in them."""

    listed: dict[str, RowColumn] = field(default_factory=dict)
    prev_rows: int = 0
    next_rows: int = 0

    def name_of(self, sql: str) -> str:
        """The name of the column with that SQL; a new one if there is none."""
        if sql not in self.listed:
            self.listed[sql] = RowColumn(f"_r{len(self.listed)}", sql)
        return self.listed[sql].name


class Names:
    """The variables and subsets of a clause, by name without regard to case, and the codes they stand for."""

    def __init__(self, clause: MatchClause) -> None:
        self.variables = clause.variables
        self.code = {name.casefold(): at for at, name in enumerate(clause.variables)}
        self.scope: dict[str, tuple[int, ...]] = {name: (code,) for name, code in self.code.items()}
        for item in clause.subsets:
            members = {self.code[member.name.casefold()] for member in item.members}
            self.scope[item.name.casefold()] = tuple(sorted(members))
        self.known = (*clause.variables, *(item.name for item in clause.subsets))


@dataclass(frozen=True)
class Reference:
    """What a navigation names: a row, and the SQL to be computed there or (``classifier``) the row's variable."""

    anchor: Anchor
    sql: str = ""
    classifier: bool = False
    physical: int = 0  # of a classifier; other offsets are in the SQL


class Navigator:
    """The references in the expressions of one clause."""

    def __init__(self, clause: MatchClause, columns: RowColumns, input_columns: Collection[str] | None) -> None:
        self.text = clause.text
        self.names = Names(clause)
        self.columns = columns
        self.input_columns = None if input_columns is None else {name.casefold() for name in input_columns}

    def refuse(self, span: Span, message: str, hint: str) -> None:
        refuse(self.text, span, message, hint)

    def scope(self, node: Expression) -> tuple[int, ...] | None:
        """The variables that a column or a star is qualified with; None: none, so all rows of the match."""
        names: tuple[str, ...] = node.value  # type: ignore[assignment]
        qualified = len(names) > (1 if node.kind == "column" else 0)
        if not qualified:
            return None
        found = self.names.scope.get(names[0].casefold())
        if found is None and (self.input_columns is None or names[0].casefold() not in self.input_columns):
            self.refuse(
                node.span,
                f"{names[0]} is neither a variable of the pattern nor a subset",
                suggestion(names[0], self.names.known),
            )
        return found

    def unqualified(self, node: Expression) -> str:
        """A column's or star's text without its variable."""
        written = self.text[slice(*node.span)]
        if self.scope(node) is None:
            return written
        return written[scan(written)[2].start :]

    def references(self, node: Expression) -> Iterator[Expression]:
        """Columns, stars, navigations, aggregates and special functions, the outermost of each."""
        if node.kind in ("column", "star") or (
            node.kind == "call" and node.value in LOGICAL | PHYSICAL | SPECIAL | AGGREGATES
        ):
            yield node
        else:
            for part in node.parts:
                yield from self.references(part)

    def one_row_sql(self, node: Expression, inside: str) -> tuple[tuple[int, ...] | None, str]:
        """The scope and the SQL of an expression over one row, as the argument of ``inside``."""
        scopes: dict[tuple[int, ...] | None, Expression] = {}
        replaced = {}
        for each in walk(node):
            if each.kind == "call" and each.value in LOGICAL | PHYSICAL | SPECIAL | AGGREGATES:
                what = "an aggregate" if each.value in AGGREGATES else f"{each.value}"
                hint = "Inside PREV and NEXT stands an expression over one row, or FIRST or LAST of one."
                if inside in LOGICAL:
                    hint = "Inside FIRST and LAST stands an expression over one row; PREV and NEXT go around them."
                elif inside not in PHYSICAL:
                    hint = "An aggregate's argument is an expression over one row, without navigation."
                self.refuse(each.span, f"{inside} cannot be taken of {what}", hint)
            if each.kind == "star":
                self.refuse(each.span, f"{inside} cannot be taken of *", "Name a column.")
            if each.kind == "column":
                scopes.setdefault(self.scope(each), each)
                replaced[each.span] = self.unqualified(each)
        if len(scopes) > 1:
            self.refuse(
                node.span,
                f"{inside} looks at one row, and its argument names rows of several variables",
                f"Take {inside} of each by itself, and combine the results.",
            )
        return next(iter(scopes), None), render(self.text, node.span, replaced)

    def read(self, node: Expression) -> Reference:
        """The reference that a column, a navigation or CLASSIFIER is."""
        if node.kind == "column":
            return Reference(Anchor(self.scope(node)), self.unqualified(node))
        if node.kind == "star":
            self.refuse(node.span, "* stands outside count", "Write count(*) or count(A.*).")
        if node.value == "CLASSIFIER":
            return Reference(Anchor(self.classifier_scope(node)), classifier=True)
        if node.value in LOGICAL:
            return self.logical(node)
        return self.physical(node)

    def logical(self, node: Expression) -> Reference:
        offset = self.offset(node, default=0)
        inner, first, final = node.parts[0], node.value == "FIRST", node.mode.startswith("FINAL")
        if inner.kind == "call" and inner.value == "CLASSIFIER":
            return Reference(Anchor(self.classifier_scope(inner), first, offset, final), classifier=True)
        scope, sql = self.one_row_sql(inner, str(node.value))
        self.require_column(node, inner)
        return Reference(Anchor(scope, first, offset, final), sql)

    def physical(self, node: Expression) -> Reference:
        if node.mode:
            hint = "Put it inside: PREV(FINAL LAST(A.x))."
            self.refuse(node.span, f"{node.mode} stands before {node.value}", hint)
        count = self.offset(node, default=1)
        inner = node.parts[0]
        if inner.kind == "call" and inner.value in LOGICAL | {"CLASSIFIER"}:
            found = self.read(inner)
        else:
            scope, sql = self.one_row_sql(inner, str(node.value))
            self.require_column(node, inner)
            found = Reference(Anchor(scope), sql)
        if found.classifier:
            return Reference(found.anchor, classifier=True, physical=-count if node.value == "PREV" else count)
        return Reference(found.anchor, self.shifted(found.sql, -count if node.value == "PREV" else count))

    def shifted(self, sql: str, offset: int) -> str:
        """The SQL of a value some rows before or after."""
        self.columns.prev_rows = max(self.columns.prev_rows, -offset)
        self.columns.next_rows = max(self.columns.next_rows, offset)
        if offset == 0:
            return f"({sql})"
        return f"{'lag' if offset < 0 else 'lead'}({sql}, {abs(offset)}) OVER __w"

    def require_column(self, node: Expression, inner: Expression) -> None:
        if not any(each.kind == "column" for each in walk(inner)):
            self.refuse(node.span, f"{node.value} is taken of a constant", "Name a column inside it.")

    def classifier_scope(self, node: Expression) -> tuple[int, ...] | None:
        if not node.parts:
            return None
        names = node.parts[0].value if node.parts[0].kind == "column" else ()
        if len(node.parts) > 1 or not isinstance(names, tuple) or len(names) != 1:
            self.refuse(node.span, "CLASSIFIER takes a variable or nothing", "Write CLASSIFIER() or CLASSIFIER(A).")
        name = names[0]  # type: ignore[index]
        if name.casefold() not in self.names.scope:
            self.refuse(
                node.parts[0].span,
                f"{name} is neither a variable of the pattern nor a subset",
                suggestion(name, self.names.known),
            )
        return self.names.scope[name.casefold()]

    def offset(self, node: Expression, *, default: int) -> int:
        """The offset of a navigation: a whole number in the text."""
        if not 1 <= len(node.parts) <= 2:
            hint = f"Write {node.value}(A.x) or {node.value}(A.x, 2)."
            self.refuse(node.span, f"{node.value} takes an expression and an offset", hint)
        if len(node.parts) == 1:
            return default
        written = node.parts[1]
        value = written.value if written.kind == "literal" else None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= OFFSET_MAX:
            hint = f"Write a whole number from 0 to {OFFSET_MAX}, such as {node.value}(A.x, 2)."
            self.refuse(written.span, f"the offset of {node.value} is not a number that is known beforehand", hint)
        assert isinstance(value, int)
        return value

    def without_mode(self, node: Expression, sql: str) -> str:
        """A call's SQL without RUNNING or FINAL before it."""
        return re.sub(r"(?is)^(RUNNING|FINAL)\s+", "", sql) if node.mode else sql
