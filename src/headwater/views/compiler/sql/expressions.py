"""Expressions: small questions and changes that every part of the compiler asks of a syntax tree.

What it is: conjuncts, the sources an expression mentions, replacing columns, comparing two expressions.
Invariants: nothing here changes the tree it is given. Names of sources are unique in a whole query
(``views/compiler/frontend/name_resolution.py`` sees to it), so that a column's source needs no scope to be found.
Not here: anything that knows of stages.
Read next: ``views/compiler/algebra/flow.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sqlglot import exp

from headwater.views.compiler.sql.builtin_functions import aggregate_name, is_generator

Node = exp.Expr

# Written between operators, these need no parentheses.
_ATOMS = (exp.Column, exp.Literal, exp.Paren, exp.Null, exp.Boolean, exp.Dot, exp.Cast, exp.Case, exp.Identifier)
_OPERATORS = (exp.Binary, exp.Unary, exp.Between, exp.In, exp.Interval, exp.Is, exp.Distinct)

# What may stand around an aggregate's call.
WRAPPERS = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)


def column(source: str, name: str) -> exp.Column:
    """``source.name``, quoted."""
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(source, quoted=True))


def bare(name: str) -> exp.Column:
    """A column without its source, quoted."""
    return exp.column(exp.to_identifier(name, quoted=True))


def named(expression: Node, name: str) -> exp.Alias:
    """``expression AS name``."""
    return exp.Alias(this=expression.copy(), alias=exp.to_identifier(name, quoted=True))


def table(name: str, alias: str) -> exp.Table:
    """``name AS alias``."""
    return exp.Table(
        this=exp.to_identifier(name, quoted=True), alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    )


def conjuncts(condition: Node | None) -> list[Node]:
    """The conditions that must all hold: ``a AND (b AND c)`` has three."""
    if condition is None:
        return []
    inner = condition.unnest()
    if isinstance(inner, exp.And):
        return [found for operand in (inner.this, inner.expression) for found in map(_as_operand, conjuncts(operand))]
    if isinstance(inner, exp.Boolean) and inner.this:
        return []
    if isinstance(inner, exp.Or):
        return _common_first(inner)
    return [inner]


def _as_operand(condition: Node) -> Node:
    """A constant that AND casts, as NULL and 'yes', is no condition by itself: it keeps an AND."""
    if isinstance(condition, exp.Null | exp.Literal) or (
        isinstance(condition, exp.Func | exp.Cast)
        and not isinstance(condition, exp.Predicate | exp.Connector)
        and condition.find(exp.Column, exp.Query) is None
    ):
        return exp.And(this=condition.copy(), expression=exp.true())
    return condition


def _common_first(either: exp.Or) -> list[Node]:
    """``(a AND b) OR (a AND c)`` is ``a AND (b OR c)``: what all ask for stands for itself, and may join."""
    alternatives = [conjuncts(part) for part in either.flatten()]
    first, *others = alternatives
    common = [part for part in first if all(position(part, other) is not None for other in others)]
    if not common:
        return [either]
    rests = [conjunction(part for part in each if position(part, common) is None) for each in alternatives]
    if any(rest is None for rest in rests):  # a OR (a AND b) is a
        return common
    return [*common, exp.or_(*[rest for rest in rests if rest is not None])]


def conjunction(conditions: Iterable[Node]) -> Node | None:
    """The conditions joined by AND; None for none."""
    parts = [
        enclosed(condition.copy()) if isinstance(condition, exp.Or) else condition.copy() for condition in conditions
    ]
    return exp.and_(*parts, copy=False) if parts else None


def columns(expression: Node) -> Iterator[exp.Column]:
    """Every column of an expression that has a source, those of its subqueries too."""
    for found in expression.find_all(exp.Column, bfs=False):
        if found.table:
            yield found


def mentions(query: Node, hidden: frozenset[str] = frozenset()) -> Iterator[exp.Table]:
    """The tables that a query reads: every mention of a name that no WITH around it defines, in order.

    >>> from headwater.views.compiler.frontend.parse import statement
    >>> [found.name for found in mentions(statement("WITH t AS (SELECT * FROM t JOIN u) SELECT * FROM t, v"))]
    ['t', 'u', 'v']
    """
    table = query if isinstance(query, exp.Table) and isinstance(query.this, exp.Identifier) else None
    if table is not None and (table.db or table.name.lower() not in hidden):
        yield table
    clause = query.args.get("with_")
    if isinstance(clause, exp.With):
        for definition in clause.expressions:
            name = frozenset({definition.alias.lower()})
            yield from mentions(definition.this, hidden | name if clause.args.get("recursive") else hidden)
            hidden |= name
    for child in query.iter_expressions():
        if child is not clause:
            yield from mentions(child, hidden)


def sources(expression: Node) -> set[str]:
    """The sources whose columns an expression mentions."""
    return {found.table for found in columns(expression)}


def defined(query: Node) -> set[str]:
    """The sources that a query defines somewhere inside."""
    kinds = (exp.Table, exp.Subquery, exp.Lateral, exp.Values, exp.Unnest)
    return {found.alias for found in query.find_all(*kinds) if found.alias}


def outside(query: Node) -> set[str]:
    """The sources that a query mentions and does not define: it is correlated when there are any."""
    return sources(query) - defined(query)


def has_subquery(expression: Node) -> bool:
    """Whether a query stands inside."""
    return expression.find(exp.Select, exp.SetOperation) is not None


def has_time_window(expression: Node) -> bool:
    """Whether window(at, …) is called, of which Spark makes as many rows as there are windows; or session_window."""
    return any(call.name.lower() in ("window", "session_window") for call in expression.find_all(exp.Anonymous))


def enclosed(expression: Node) -> Node:
    """The expression in parentheses when it needs them to stand between operators."""
    if isinstance(expression, _ATOMS) or not (isinstance(expression, _OPERATORS) or expression.args.get("open")):
        return expression
    return exp.Paren(this=expression)


def substitute(expression: Node, replacement: Callable[[exp.Column], Node | None]) -> Node:
    """A copy with columns replaced; a column stays where the replacement is None."""

    def change(node: Node) -> Node:
        if not isinstance(node, exp.Column):
            return node
        new = replacement(node)
        if new is None:
            return node
        new = new.copy()
        return new if node.parent is None or isinstance(node.parent, exp.Alias) else enclosed(new)

    return expression.transform(change)


def parenthesised(query: Node) -> Node:
    """A copy in which every operand of a condition stands in parentheses: it means one thing, whoever reads it."""
    conditions = (
        exp.Connector,
        exp.Not,
        exp.EQ,
        exp.NEQ,
        exp.NullSafeEQ,
        exp.NullSafeNEQ,
        exp.LT,
        exp.LTE,
        exp.GT,
        exp.GTE,
        exp.Is,
        exp.In,
        exp.Between,
    )

    def change(node: Node) -> Node:
        if isinstance(node, conditions):
            for key in ("this", "expression", "low", "high"):
                part = node.args.get(key)
                if isinstance(part, exp.Expr) and part is not enclosed(part):
                    node.set(key, exp.Paren(this=part.copy()))
        return node

    return query.transform(change)


def replaced(expression: Node, found: Node, new: Node) -> Node:
    """The expression with one node of it exchanged, in place; the new expression when it was the node itself."""
    if expression is found:
        return new
    found.replace(enclosed(new))
    return expression


def canonical(expression: Node) -> Node:
    """A copy to compare by: parentheses and quotes left out."""

    def change(node: Node) -> Node:
        node = node.unnest() if isinstance(node, exp.Paren) else node
        if isinstance(node, exp.Identifier) and node.args.get("quoted"):
            node.set("quoted", False)
        return node

    return expression.transform(change)


def position(expression: Node, among: Iterable[Node]) -> int | None:
    """The place of an equal expression."""
    wanted = canonical(expression)
    for place, other in enumerate(among):
        if canonical(other) == wanted:
            return place
    return None


def output_name(projection: Node) -> str:
    """The name of a column in a qualified SELECT."""
    return str(projection.alias_or_name)


def unaliased(projection: Node) -> Node:
    """The expression of a column in a SELECT."""
    return projection.this if isinstance(projection, exp.Alias) else projection


def is_grouped(select: exp.Select) -> bool:
    """Whether a SELECT has groups or aggregates."""
    return bool(select.args.get("group") or select.args.get("having")) or any(True for _ in aggregates(select))


def aggregates(expression: Node) -> Iterator[Node]:
    """The aggregate calls of an expression, with their FILTER; not those of subqueries, nor those over a window."""
    wrapped = expression
    while isinstance(wrapped, WRAPPERS):
        wrapped = wrapped.this
    if aggregate_name(wrapped) is not None:
        yield expression
        return
    if isinstance(expression, exp.Window):  # sum(sum(x)) OVER (…): the inner one is an aggregate
        function = expression.this
        while isinstance(function, WRAPPERS):
            function = function.this
        for part in (*function.iter_expressions(), *_beside_the_call(expression)):
            yield from aggregates(part)
        return
    for part in expression.iter_expressions():
        if not isinstance(part, exp.Query):
            yield from aggregates(part)


def _beside_the_call(window: exp.Window) -> Iterator[Node]:
    return (part for part in window.iter_expressions() if part is not window.this)


def is_row_wise(expression: Node) -> bool:
    """Whether an expression gives one value for each row, from that row alone."""
    if has_subquery(expression) or expression.find(exp.Window):
        return False
    for node in expression.walk():
        if is_generator(node) or aggregate_name(node) is not None:
            return False
    return not has_time_window(expression)
