"""Correlation: what ties a subquery to the query around it.

What it is: a subquery taken apart into equalities between an outer and an inner expression, other conditions that
mention both, and the query that is left, which stands for itself.
Invariants: the parts together mean what the subquery meant; only conditions that hold for each row of the subquery's
FROM (its WHERE, and the conditions of its inner joins) are taken out.
Not here: what becomes of the parts (``views/compiler/operators/subqueries.py``).
Read next: ``views/compiler/operators/subqueries.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from headwater.views.compiler.algebra.plan_nodes import CompileContext, Unsupported
from headwater.views.compiler.algebra.select_block import output_names
from headwater.views.compiler.sql.dialect import text
from headwater.views.compiler.sql.expressions import (
    Node,
    aggregates,
    column,
    columns,
    conjunction,
    conjuncts,
    defined,
    has_subquery,
    named,
    outside,
    sources,
    substitute,
    unaliased,
)


@dataclass(frozen=True)
class CorrelationPredicate:
    """An outer expression that equals an inner one."""

    outer: Node
    inner: Node


@dataclass(frozen=True)
class Correlated:
    """A subquery taken apart. ``query`` is what is left of it."""

    query: exp.Select
    equalities: tuple[CorrelationPredicate, ...]
    others: tuple[Node, ...]
    negative: bool = False  # NOT EXISTS

    def keys_query(self) -> exp.Select:
        """SELECT the inner expressions, as ``e__0…``."""
        return self._selecting([named(tie.inner, f"e__{place}") for place, tie in enumerate(self.equalities)])

    def value_query(self, value: Node, *, grouped: bool) -> exp.Select:
        """SELECT the inner expressions and a value; grouped by them if the value aggregates."""
        select = self.keys_query()
        select.append("expressions", named(value, "value"))
        if grouped:
            select.set("group", exp.Group(expressions=[tie.inner.copy() for tie in self.equalities]))
        return select

    def source_query(self) -> exp.Select:
        """SELECT the inner expressions, and whatever else the other conditions mention of the inside."""
        select = self.keys_query()
        for (alias, name), new in self._mentioned().items():
            select.append("expressions", named(column(alias, name), new))
        if not select.expressions:  # that there are rows is all that counts
            select.append("expressions", named(exp.Literal.number(1), "one"))
        return select

    def ties(self) -> list[Node]:
        """The outer expressions of the equalities, then the other conditions."""
        return [*(tie.outer for tie in self.equalities), *self.others]

    def with_ties(self, ties: list[Node]) -> Correlated:
        """The same, with what ``ties`` gave rewritten."""
        count = len(self.equalities)
        equalities = [replace(tie, outer=outer) for tie, outer in zip(self.equalities, ties[:count], strict=True)]
        return replace(self, equalities=tuple(equalities), others=tuple(ties[count:]))

    def ties_to(self, alias: str) -> list[Node]:
        """The conditions, in terms of the outputs of ``source_query`` called ``alias``."""
        names = self._mentioned()

        def change(found: exp.Column) -> Node | None:
            new = names.get((found.table, found.name))
            return column(alias, new) if new else None

        equal: list[Node] = [
            exp.EQ(this=tie.outer.copy(), expression=column(alias, f"e__{place}"))
            for place, tie in enumerate(self.equalities)
        ]
        return [*equal, *(substitute(part, change) for part in self.others)]

    def never_null(self, workshop: CompileContext) -> bool:
        """Whether the last inner expression is known not to be null."""
        inner = self.equalities[-1].inner.unnest()
        if not isinstance(inner, exp.Column):
            return False
        where = self.query.args.get("where")
        for part in conjuncts(where.this) if where else []:
            tested = part.this.unnest() if isinstance(part, exp.Not) else None
            if isinstance(tested, exp.Is) and isinstance(tested.expression, exp.Null) and tested.this.unnest() == inner:
                return True
        mention = next((found for found in self.query.find_all(exp.Table) if found.alias_or_name == inner.table), None)
        relation = workshop.relations.get(mention.name) if mention is not None else None
        plain = not any(join.side for join in self.query.args.get("joins") or [])
        return relation is not None and plain and inner.name in {name.lower() for name in relation.not_null}

    def _mentioned(self) -> dict[tuple[str, str], str]:
        inner = defined(self.query)
        pairs = [(found.table, found.name) for part in self.others for found in columns(part) if found.table in inner]
        return output_names(list(dict.fromkeys(pairs)))

    def _selecting(self, projections: list[exp.Alias]) -> exp.Select:
        select = self.query.copy()
        select.set("expressions", projections)
        return select


def correlated(query: exp.Query, member: Node | None) -> Correlated:
    """Take a subquery apart; ``member`` is the x of ``x IN (SELECT y …)``, which adds the equality x = y."""
    if member is not None and isinstance(member.unnest(), exp.Tuple):
        raise Unsupported("(a, b) IN (SELECT …)")
    ties: list[CorrelationPredicate] = []
    others: list[Node] = []
    if not outside(query):
        if member is None:
            return Correlated(exp.Select(), (), ())
        return _member_of(query, member)
    if not isinstance(query, exp.Select):
        raise Unsupported("a correlated UNION")
    if any(query.args.get(part) for part in ("group", "having", "limit", "offset", "qualify", "windows")):
        raise Unsupported("a correlated subquery with groups or LIMIT")
    query = query.copy()
    query.set("distinct", None)
    inner = defined(query)
    for clause in (query.args.get("where"), *(query.args.get("joins") or [])):
        if clause is None or (
            isinstance(clause, exp.Join) and (clause.side or clause.kind not in ("", "INNER", "CROSS"))
        ):
            continue
        name = "on" if isinstance(clause, exp.Join) else "this"
        stays: list[Node] = []
        for part in conjuncts(clause.args.get(name)):
            if sources(part) <= inner:
                stays.append(part)
            elif has_subquery(part):
                raise Unsupported("a correlated subquery in a correlated subquery")
            else:
                _sort(part, inner, ties, others)
        clause.set(name, conjunction(stays))
    where = query.args.get("where")
    if where is not None and where.this is None:
        query.set("where", None)
    if member is not None:
        ties.append(CorrelationPredicate(member, unaliased(query.selects[0])))
    query.set("expressions", [named(exp.Literal.number(1), "one")])
    if outside(query):
        raise Unsupported("a subquery that is correlated in more than its WHERE")
    return Correlated(query, tuple(ties), tuple(others))


def _sort(part: Node, inner: set[str], ties: list[CorrelationPredicate], others: list[Node]) -> None:
    if isinstance(part, exp.EQ):
        one, other = part.this, part.expression
        if sources(one) and sources(one) <= inner:
            one, other = other, one
        if sources(other) and sources(other) <= inner and sources(one) and not sources(one) & inner:
            ties.append(CorrelationPredicate(one, other))
            return
    others.append(part)


def _member_of(query: exp.Query, member: Node) -> Correlated:
    """x IN (SELECT y …) that is not correlated: whatever the query is, it can be read from."""
    alias = f"in__{abs(hash(text(query))) % 10**8}_{len(defined(query))}"
    name = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    select = exp.Select(expressions=[named(exp.Literal.number(1), "one")])
    if len(query.selects) != 1:
        raise Unsupported("IN (SELECT …) of several columns")
    if isinstance(query, exp.Select) and not any(
        query.args.get(part) for part in ("group", "having", "limit", "offset", "distinct", "qualify")
    ):
        value = unaliased(query.selects[0])
        if not _aggregates(value):
            plain = query.copy()
            plain.set("expressions", select.expressions)
            return Correlated(plain, (CorrelationPredicate(member, value),), ())
    select.set("from_", exp.From(this=exp.Subquery(this=query.copy(), alias=name)))
    return Correlated(select, (CorrelationPredicate(member, column(alias, query.selects[0].alias_or_name)),), ())


def _aggregates(value: Node) -> bool:
    return any(True for _ in aggregates(value)) or value.find(exp.Window) is not None
