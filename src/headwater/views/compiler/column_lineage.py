"""Column lineage: the columns of relations that each column of a view is computed from.

What it is: ``column_lineage``, over the settled text of a plan; ``ColumnUse``, what one output column uses.
Invariants: pure, and conservative: what is not understood uses every column of everything that the view reads. A column
uses those that stand in its expression, conditions of CASE, orders of windows and whole subqueries included; and what
they are compared with by equality in a join or a condition, since the values are the same. A condition alone (WHERE,
ON, HAVING) shows no value, so it is no use.
Not here: which columns are personal (``views/privacy/personal_data.py``), rows (``views/provenance``).
Read next: ``views/privacy/personal_data.py``; ``docs/privacy.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sqlglot import exp

from headwater.views.compiler.frontend.parse import statement
from headwater.views.compiler.plan import ViewPlan, topic_of
from headwater.views.compiler.sql.builtin_functions import aggregate_name
from headwater.views.compiler.sql.expressions import Node, conjuncts

ROWS = "*"  # of a relation: how many rows there are, and none of their values
EVERYTHING = ""  # of a relation: each of its columns


class UsedColumn(NamedTuple):
    """A column of a relation; or ``ROWS``, or ``EVERYTHING`` of it."""

    relation: str
    column: str


@dataclass(frozen=True)
class ColumnUse:
    """What an output column uses. ``copied``: its value is that of one column, unchanged."""

    used: frozenset[UsedColumn] = frozenset()
    copied: bool = False
    summed: bool = False  # a count, a sum or the like over rows: no value of one row, if there are enough of them

    def beside(self, others: Iterable[ColumnUse]) -> ColumnUse:
        """A value that is computed from this one and others."""
        return ColumnUse(self.used.union(*(other.used for other in others)))


# Aggregates that are about all rows of a group; of the others (max, first, …) the value is that of one row.
SUMMED = frozenset(
    {
        "avg",
        "corr",
        "count",
        "covar_pop",
        "covar_samp",
        "approx_count_distinct",
        "regr_count",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "sum",
        "try_avg",
        "try_sum",
        "var_pop",
        "var_samp",
        "variance",
    }
)


# What may stand in such an aggregate. Anything else may be a condition, which picks rows: CASE, a comparison, nullif.
PICKS_NO_ROW = (
    exp.Add,
    exp.Cast,
    exp.DataType,
    exp.Distinct,
    exp.Div,
    exp.Identifier,
    exp.IntDiv,
    exp.Interval,
    exp.Literal,
    exp.Mul,
    exp.Neg,
    exp.Paren,
    exp.Star,
    exp.Sub,
    exp.TryCast,
    exp.Var,
)
PICK_NO_ROW = frozenset(
    {
        "abs",
        "bigint",
        "ceil",
        "coalesce",
        "datediff",
        "decimal",
        "double",
        "floor",
        "greatest",
        "int",
        "least",
        "length",
        "ln",
        "lower",
        "nvl",
        "round",
        "sqrt",
        "trim",
        "unix_timestamp",
        "upper",
    }
)


def column_lineage(plan: ViewPlan) -> tuple[ColumnUse, ...]:
    """What each column of a plan uses, in the order of its columns.

    >>> from headwater.views.compiler.compile import compile_view
    >>> from headwater.views.compiler.plan import PlanColumn, Relation
    >>> users = Relation("users", (PlanColumn("id"), PlanColumn("email"), PlanColumn("country")))
    >>> plan = compile_view("v", "SELECT lower(email) AS e, count(*) AS n FROM users GROUP BY lower(email)",
    ...                     {"users": users})
    >>> [sorted(use.used) for use in column_lineage(plan)]
    [[UsedColumn(relation='users', column='email')], [UsedColumn(relation='users', column='*')]]
    """
    everything = of_everything(plan.reads)
    whole = tuple(everything for _ in plan.columns)
    if plan.opaque:
        return whole
    try:
        found = _Lineage(plan.reads, everything).query(statement(plan.query), {})
    except Exception:  # what is not understood is everything
        return whole
    return tuple(found.values()) if found is not None and len(found) == len(plan.columns) else whole


def of_everything(reads: Iterable[str]) -> ColumnUse:
    """The use of every column of some relations."""
    return ColumnUse(frozenset(UsedColumn(topic_of(name), EVERYTHING) for name in reads))


@dataclass(frozen=True)
class _Source:
    """A source of a SELECT: its columns. Of one that is not there, ``relation`` has it, or ``other`` is used."""

    columns: Mapping[str, ColumnUse]
    other: ColumnUse
    rows: ColumnUse = field(default_factory=ColumnUse)
    relation: str | None = None

    def column(self, name: str) -> ColumnUse:
        if name in self.columns or self.relation is None:
            return self.columns.get(name, self.other)
        return ColumnUse(frozenset({UsedColumn(self.relation, name)}), copied=True)


_Known = Mapping[str, _Source]


class _Lineage:
    def __init__(self, reads: Iterable[str], everything: ColumnUse) -> None:
        self._reads = {name.lower(): name for name in reads}
        self._everything = everything

    def query(self, query: Node, outer: _Known) -> dict[str, ColumnUse] | None:
        """The outputs of a query, by name; None when they are not known."""
        if isinstance(query, exp.Subquery | exp.Paren):
            return self.query(query.this, outer)
        if isinstance(query, exp.SetOperation):
            left, right = self.query(query.this, outer), self.query(query.expression, outer)
            if left is None or right is None or len(left) != len(right):
                return None
            both = zip(left.items(), right.values(), strict=True)
            return {name: self._either(one, other) for (name, one), other in both}
        if not isinstance(query, exp.Select) or query.args.get("with_"):
            return None
        return self._select(query, outer)

    def _either(self, one: ColumnUse, other: ColumnUse) -> ColumnUse:
        return replace(one.beside([other]), copied=one.copied and other.copied, summed=one.summed and other.summed)

    def _select(self, select: exp.Select, outer: _Known) -> dict[str, ColumnUse] | None:
        own: dict[str, _Source] = {}
        clause = select.args.get("from_")
        joins = select.args.get("joins") or []
        for source in [*([clause.this] if clause else []), *(join.this for join in joins)]:
            own[source.alias_or_name.lower()] = self._source(source, {**outer, **own})
        for lateral in select.args.get("laterals") or []:
            own[lateral.alias.lower()] = self._lateral(lateral, {**outer, **own})
        self._equated(select, own)
        known = {**outer, **own}
        rows = ColumnUse().beside(source.rows for source in own.values())
        grouped = bool(select.args.get("group"))
        found: dict[str, ColumnUse] = {}
        for projection in select.expressions:
            value = projection.unalias()
            if value.is_star:
                return None
            use = self._value(value, known, rows)
            if grouped or _aggregates(value):
                use = replace(use, summed=_is_summed(value))
            found[projection.alias_or_name.lower()] = use
        return found if len(found) == len(select.expressions) else None

    def _equated(self, select: exp.Select, own: dict[str, _Source]) -> None:
        """Columns that must be equal have the same values: each uses what the other does."""
        where = select.args.get("where")
        joins = select.args.get("joins") or []
        conditions = [join.args.get("on") for join in joins] + [where.this if where is not None else None]
        pairs = [
            (each.this.unnest(), each.expression.unnest())
            for condition in conditions
            for each in conjuncts(condition)
            if isinstance(each, exp.EQ | exp.NullSafeEQ)
        ]
        for _ in pairs:  # as often as an equality can lead from one to the next
            for one, other in pairs:
                if isinstance(one, exp.Column) and isinstance(other, exp.Column):
                    both = self._value(one, own, ColumnUse()).beside([self._value(other, own, ColumnUse())])
                    for each in (one, other):
                        self._learn(own, each, both)

    def _learn(self, own: dict[str, _Source], column: exp.Column, use: ColumnUse) -> None:
        alias, name = _place(column)
        source = own.get(alias)
        if source is not None:
            known = replace(use, copied=source.column(name).copied)
            own[alias] = replace(source, columns={**source.columns, name: known})

    def _source(self, source: Node, known: _Known) -> _Source:
        given = source.args.get("alias")
        renamed = [part.name.lower() for part in given.columns] if given is not None and given.columns else []
        if isinstance(source, exp.Table) and source.name.lower() in self._reads and not renamed:
            relation = topic_of(self._reads[source.name.lower()])
            return _Source({}, self._everything, ColumnUse(frozenset({UsedColumn(relation, ROWS)})), relation)
        if isinstance(source, exp.Subquery):
            found = self.query(source, known)
            if found is not None:
                columns = dict(zip(renamed, found.values(), strict=True)) if renamed else found
                return _Source(columns, self._everything, self._rows_of(source))
        if isinstance(source, exp.Values):
            return _Source({}, ColumnUse())
        return _Source({}, self._everything, self._everything)

    def _lateral(self, lateral: exp.Lateral, known: _Known) -> _Source:
        return _Source({}, self._value(lateral.this, known, ColumnUse()))

    def _rows_of(self, node: Node) -> ColumnUse:
        """The rows of every relation that a subquery mentions."""
        names = [mention.name.lower() for mention in node.find_all(exp.Table)]
        if not all(name in self._reads for name in names):
            return self._everything
        return ColumnUse(frozenset(UsedColumn(topic_of(self._reads[name]), ROWS) for name in names))

    def _value(self, value: Node, known: _Known, rows: ColumnUse) -> ColumnUse:
        """What an expression uses."""
        if isinstance(value, exp.Column):
            alias, name = _place(value)
            source = known.get(alias)
            found = self._everything if source is None else source.column(name)
            return ColumnUse(found.used, copied=found.copied and len(value.parts) == 2)
        parts: list[ColumnUse] = []
        for node in _outermost(value):
            if isinstance(node, exp.Query):
                parts.append(self._nested(node, known))
            else:
                parts.append(self._value(node, known, rows))
        if _aggregates(value) or value.find(exp.Window) is not None:
            parts.append(rows)
        return ColumnUse().beside(parts)

    def _nested(self, query: exp.Query, known: _Known) -> ColumnUse:
        """A subquery as a value: whatever it mentions decides it."""
        parts = [self._rows_of(query)]
        own = {mention.alias_or_name.lower(): self._source(mention, known) for mention in query.find_all(exp.Table)}
        inner = {each.alias.lower(): self._source(each, {**known, **own}) for each in query.find_all(exp.Subquery)}
        sources = {**known, **own, **{name: each for name, each in inner.items() if name}}
        for column in query.find_all(exp.Column):
            parts.append(self._value(column, sources, ColumnUse()))
        return ColumnUse().beside(parts)


def _place(column: exp.Column) -> tuple[str, str]:
    """The source and the column that are named; behind them a field of a struct may be."""
    source, *names = [part.name.lower() for part in column.parts]
    return (source, names[0]) if names else ("", source)


def _outermost(value: Node) -> list[Node]:
    """The columns and subqueries of an expression, without those inside of a subquery."""
    found: list[Node] = []
    waiting = [value]
    while waiting:
        node = waiting.pop()
        for child in node.iter_expressions():
            if isinstance(child, exp.Query | exp.Column):
                found.append(child)
            else:
                waiting.append(child)
    if isinstance(value, exp.Query):
        return [value]
    return found


def _aggregates(value: Node) -> bool:
    return any(aggregate_name(node) is not None for node in value.find_all(exp.Func))


def _is_summed(value: Node) -> bool:
    """Whether each column of an expression over a group stands in a count, a sum or the like, or in a group's key.

    A sum that picks its rows by a condition of its own may be over one person, however many the group has.
    """
    for node in value.find_all(exp.Func):
        name = aggregate_name(node)
        if name is not None and (name not in SUMMED or not all(map(_picks_no_row, node.iter_expressions()))):
            return False
    return value.find(exp.Query, exp.Window, exp.Filter) is None


def _picks_no_row(value: Node) -> bool:
    if isinstance(value, exp.Column):
        return True
    known = isinstance(value, PICKS_NO_ROW) or (isinstance(value, exp.Anonymous) and value.name.lower() in PICK_NO_ROW)
    return known and all(map(_picks_no_row, value.iter_expressions()))
