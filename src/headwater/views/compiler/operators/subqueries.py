"""Subqueries: EXISTS, IN and scalar subqueries become joins.

What it is: a correlated subquery is taken apart into a query that stands for itself and the conditions that tie it to
the outer one; then a semi join is an inner join with the distinct keys, an anti join is a stage keyed by the equality
columns, a scalar subquery is an aggregation by them, and what is not correlated is one row that is joined to all.
Invariants: a subquery that cannot be taken apart raises ``Unsupported``; its SELECT is then computed whole. The number
of rows of the outer query never changes through a join made here.
Not here: how a correlated condition is told from others (``views/compiler/algebra/correlation.py``); outer joins
(``joins.py``).
Read next: ``views/compiler/algebra/correlation.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from headwater.views.compiler.algebra.correlation import Correlated, correlated
from headwater.views.compiler.algebra.flow import Flow, Product, TableRef
from headwater.views.compiler.algebra.plan_nodes import Unsupported
from headwater.views.compiler.algebra.select_block import SelectBlock, output_names
from headwater.views.compiler.algebra.uniqueness import equal_means_same, is_unique
from headwater.views.compiler.operators.aggregation import distinct
from headwater.views.compiler.operators.joins import JoinSide, comparable_keys, outer_join, side_of
from headwater.views.compiler.operators.keyed_stages import KeyedSource, keyed
from headwater.views.compiler.operators.unequal_joins import unequal_semi_join
from headwater.views.compiler.sql.builtin_functions import NULL_OF_NOTHING, aggregate_name
from headwater.views.compiler.sql.dialect import Spelled
from headwater.views.compiler.sql.expressions import (
    Node,
    aggregates,
    canonical,
    column,
    columns,
    conjunction,
    defined,
    has_subquery,
    is_grouped,
    is_row_wise,
    named,
    output_name,
    outside,
    replaced,
    sources,
    unaliased,
)

ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren, exp.Cast, exp.Subquery)
COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)
COUNTS = {"count", "count_if", "approx_count_distinct", "regr_count"}


def filter_by_subqueries(block: SelectBlock) -> None:
    """Replace the subqueries of a block's conditions by joins."""
    conditions = [part for part in (*block.conditions, *block.where) if has_subquery(part)]
    block.conditions = [part for part in block.conditions if not has_subquery(part)]
    block.where = [part for part in block.where if not has_subquery(part)]
    waiting = [*conditions]
    # Anti joins make a stage of a source: first come those that merely add a source, so that the stage has no need
    # to carry what they look at.
    waiting.sort(key=_is_negative)
    while waiting:
        condition = waiting.pop(0)
        mark = _signature(condition)
        together = [other for other in waiting if mark is not None and _signature(other) == mark]
        waiting = [other for other in waiting if not any(other is each for each in together)]
        block.watch(*waiting)
        if together:
            _keep_rows(block, [_matches(each) for each in (condition, *together)])
        else:
            _filter(block, condition)
        waiting = block.unwatch()


def _signature(condition: Node) -> tuple[object, ...] | None:
    """Equal for EXISTS conditions that look at one source by one key: they become one stage."""
    negative = _is_negative(condition)
    test = condition.this.unnest() if negative else condition
    if not isinstance(test, exp.Exists):
        return None
    query = _query_of(test)
    if query is None or _has_one_row(query):
        return None
    try:
        found = _matches(condition)
    except Unsupported:
        return None
    if not found.equalities or not (negative or found.others):
        return None
    outer = frozenset(name for tie in found.ties() for name in sources(tie) if name not in defined(found.query))
    return (outer, *(canonical(equality.outer) for equality in found.equalities)) if len(outer) == 1 else None


def _matches(condition: Node) -> Correlated:
    """The subquery of [NOT] EXISTS, taken apart."""
    negative = _is_negative(condition)
    query = _query_of(condition.this.unnest() if negative else condition)
    assert query is not None
    _check_rows(query)
    return replace(correlated(query, None), negative=negative)


def _is_negative(condition: Node) -> bool:
    return isinstance(condition, exp.Not) and isinstance(condition.this.unnest(), exp.Exists | exp.In)


def _filter(block: SelectBlock, condition: Node) -> None:
    negative = _is_negative(condition)
    test = condition.this.unnest() if negative else condition
    query = _query_of(test)
    if query is not None and isinstance(test, exp.Exists | exp.In):
        if isinstance(test, exp.Exists) and _has_one_row(query):
            block.where += [exp.false()] if negative else []
            return
        _check_rows(query)
        found = correlated(query, test.this if isinstance(test, exp.In) else None)
        if not negative and found.equalities:
            found = _without_guards(block, found)
        if not found.equalities and not found.others:
            condition = _exists_at_all(block, query, negative=negative)
            block.where.append(condition)
        elif negative:
            member = found.equalities[-1].outer if isinstance(test, exp.In) else exp.Null()
            may_be_null = not _never_null(block, member)
            block.watch(member)
            _keep_rows(block, [replace(found, negative=True)])
            (member,) = block.unwatch()
            if isinstance(test, exp.In):
                _reject_nulls(block, found, query, member if may_be_null else None)
        elif found.others:
            _keep_rows(block, [found])
        else:
            _join_distinct(block, found)
        return
    condition = _replace_subqueries(block, condition, filters=True)
    block.where.append(condition)


def _without_guards(block: SelectBlock, found: Correlated) -> Correlated:
    """Conditions of EXISTS on the outer query alone become conditions of that one."""
    inner = defined(found.query)
    guards = [part for part in found.others if not sources(part) & inner and is_row_wise(part)]
    block.where += [part.copy() for part in guards]
    return replace(found, others=tuple(part for part in found.others if not any(part is each for each in guards)))


def _has_one_row(query: exp.Query) -> bool:
    """Whether a query has one row whatever there is: aggregates without GROUP BY."""
    bounds = ("group", "having", "limit", "offset", "qualify")
    plain = isinstance(query, exp.Select) and not any(query.args.get(part) for part in bounds)
    return plain and any(True for part in query.selects for _ in aggregates(part))


def _check_rows(query: exp.Query) -> None:
    """A correlated subquery is taken apart by its rows: its outputs may be neither aggregates nor window functions."""
    if outside(query) and any(
        part.find(exp.Window) is not None or any(True for _ in aggregates(part)) for part in query.selects
    ):
        raise Unsupported("a correlated subquery that aggregates")


def _query_of(test: Node) -> exp.Query | None:
    """The query of EXISTS (…) or x IN (…)."""
    found = test.args.get("query") if isinstance(test, exp.In) else test.this if isinstance(test, exp.Exists) else None
    found = found.unnest() if found is not None else None
    return found if isinstance(found, exp.Query) else None


def _join_distinct(block: SelectBlock, found: Correlated) -> None:
    """A semi join by equalities alone: an inner join with the distinct values of the other side."""
    flow = block.workshop.compile(found.keys_query())
    _check_types(block, found, flow)
    if not is_unique(block.workshop, flow, flow.names):
        flow = distinct(block.workshop, flow)
    alias = block.workshop.fresh("matches")
    for name, equality in zip(flow.names, found.equalities, strict=True):
        block.conditions.append(exp.EQ(this=equality.outer.copy(), expression=column(alias, name)))
    block.add(alias, flow)


def _keep_rows(block: SelectBlock, matches: list[Correlated]) -> None:
    """Replace the source that subqueries look at by a stage with those of its rows that have a match, or none.

    All of them look at one source, by the same outer expressions.
    """
    workshop = block.workshop
    ties = [tie for each in matches for tie in each.ties()]
    mentioned = {name for tie in ties for name in sources(tie) if block.owns(name)}
    if len(mentioned) == 1 and mentioned <= set(block.items):
        (left,) = mentioned
    else:
        (only,) = matches
        left, ties = block.merge(*ties)
        matches = [only.with_ties(ties)]
    own = block.taken(left)
    pairs = block.used(left)
    for part in (*ties, *own):
        pairs += [(left, each.name) for each in columns(part) if each.table == left]
    visible = output_names(block.used(left) or list(dict.fromkeys(pairs))[:1])
    outer = [equality.outer for equality in matches[0].equalities]
    wanted = list(dict.fromkeys(name for _, name in pairs))
    sides = [side_of(workshop, left, block.items[left], wanted, outer, own)]
    for each in matches:
        right, flow = workshop.fresh("others"), workshop.compile(each.source_query())
        ties_of: list[Node] = [column(right, name) for name in flow.names[: len(outer)]]
        sides.append(side_of(workshop, right, flow, list(flow.names), ties_of))
    kept = comparable_keys(workshop, sides, len(outer))
    kinds = [
        f"{'anti' if each.negative else 'semi'} join {workshop.shown_source(side.flow)}"
        for each, side in zip(matches, sides[1:], strict=True)
    ]
    what = f"{workshop.shown_source(block.items[left])} {' and '.join(kinds)}"
    if not kept and len(matches) == 1:
        flows, on = {side.alias: side.flow for side in sides}, matches[0].ties_to(sides[1].alias)
        found = unequal_semi_join(workshop, flows, on, visible, what=what, negative=matches[0].negative)
        block.replace_source((left,), found, visible)
        return
    inputs = [side.to_input(workshop, kept) for side in sides]
    joins = [_join(each, side, given) for each, side, given in zip(matches, sides[1:], inputs[1:], strict=True)]
    select = exp.Select(expressions=[named(column(*pair), name) for pair, name in visible.items()])
    select.set("from_", exp.From(this=inputs[0].source))
    select.set("joins", joins)
    keys: list[Node] = [column(left, f"k__{place}") for place in kept]
    reason = "subqueries whose values must be cast to be compared"
    stage = keyed(workshop, select, keys, inputs, what=what, key=None, reason=reason)
    block.replace_source((left,), stage, visible)


def _join(match: Correlated, side: JoinSide, given: KeyedSource) -> exp.Join:
    """A semi or anti join with the input of a stage."""
    kind = "ANTI" if match.negative else "SEMI"
    return exp.Join(this=given.source, side="LEFT", kind=kind, on=conjunction(match.ties_to(side.alias)))


def _never_null(block: SelectBlock, member: Node) -> bool:
    item = block.items.get(member.table) if isinstance(member, exp.Column) else None
    relation = block.workshop.relations.get(item.relation) if isinstance(item, TableRef) else None
    return relation is not None and member.name in {name.lower() for name in relation.not_null}


def _reject_nulls(block: SelectBlock, found: Correlated, query: exp.Query, member: Node | None) -> None:
    """x NOT IN (…) is more than an anti join: with a null inside it holds for no x, and for a null x only if the list
    is empty."""
    if outside(query):
        raise Unsupported("NOT IN with a correlated subquery")
    may_be_null = not found.never_null(block.workshop)
    if member is None and not may_be_null:
        return
    inner = exp.Select(expressions=[named(exp.Count(this=exp.Star()), "rows")])
    member_name = output_name(query.selects[0])
    alias = block.workshop.fresh("list")
    if may_be_null:
        nulls = exp.CountIf(this=exp.Is(this=column(alias, member_name), expression=exp.Null()))
        inner.append("expressions", named(nulls, "nulls"))
    inner.set("from_", exp.From(this=_derived(query, alias)))
    one = block.workshop.fresh("one")
    flow = block.workshop.compile(inner)
    empty = exp.EQ(this=column(one, "rows"), expression=exp.Literal.number(0))
    known: list[Node] = []
    if member is not None:
        known.append(exp.Not(this=exp.Is(this=exp.paren(member), expression=exp.Null())))
    if may_be_null:
        known.append(exp.EQ(this=column(one, "nulls"), expression=exp.Literal.number(0)))
    condition = _joined(block, one, flow, exp.or_(empty, exp.and_(*known)))
    block.where.append(condition)


def _joined(block: SelectBlock, alias: str, flow: Flow, expression: Node) -> Node:
    """Join a flow under a name. Gives the expression over it as it is called when that is done."""
    block.watch(expression)
    block.add(alias, flow)
    return block.unwatch()[0]


def _derived(query: exp.Query, alias: str) -> exp.Subquery:
    name = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    return exp.Subquery(this=query.copy(), alias=name)


def _exists_at_all(block: SelectBlock, query: exp.Query, *, negative: bool = False) -> Node:
    """EXISTS of a query that is not correlated: one row says how many there are."""
    inner = exp.Select(expressions=[named(exp.Count(this=exp.Star()), "rows")])
    inner.set("from_", exp.From(this=_derived(query, block.workshop.fresh("any"))))
    alias = block.workshop.fresh("one")
    test = exp.EQ if negative else exp.GT
    condition = test(this=column(alias, "rows"), expression=exp.Literal.number(0))
    return _joined(block, alias, block.workshop.compile(inner), condition)


def project_subqueries(block: SelectBlock) -> None:
    """Replace the subqueries of a block's outputs by joins."""
    for clause in ("qualify", "order"):
        if block.rest.args.get(clause) and has_subquery(block.rest.args[clause]):
            raise Unsupported(f"a subquery in {clause.upper()}")
    while True:
        place = next((at for at, part in enumerate(block.rest.expressions) if has_subquery(part)), None)
        if place is None:
            return
        projection = block.rest.expressions[place]
        value = _replace_subqueries(block, unaliased(projection), filters=False)
        block.rest.expressions[place].replace(named(value, output_name(projection)))


def _replace_subqueries(block: SelectBlock, expression: Node, *, filters: bool) -> Node:
    """An expression with its subqueries replaced by columns of sources that are joined for them."""
    expression = expression.copy()
    while True:
        found = _outermost(expression)
        if found is None:
            return expression
        block.watch(expression)
        if isinstance(found, exp.Exists | exp.In):
            value = _mark(block, found, nulls_matter=not (filters and _is_monotone(found, expression)))
        else:
            value = _scalar(block, found, rejects_null=filters and _rejects_null(found, expression))
        # The joins may have rewritten the expression: find the subquery again, in the rewritten one.
        (expression,) = block.unwatch()
        again = _outermost(expression)
        assert again is not None
        expression = replaced(expression, again, value)


def _outermost(expression: Node) -> Node | None:
    for node in expression.walk(bfs=False):
        if isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None):
            return node
        if isinstance(node, exp.Subquery):
            return node
    return None


def _is_monotone(found: Node, expression: Node) -> bool:
    """Whether only AND and OR stand above: then NULL and FALSE are the same to a filter."""
    return all(isinstance(node, exp.And | exp.Or | exp.Paren) for node in _above(found, expression))


def _rejects_null(found: Node, expression: Node) -> bool:
    """Whether the condition fails when the subquery is NULL."""
    only = all(isinstance(node, (*ARITHMETIC, *COMPARISONS)) for node in _above(found, expression))
    return only and isinstance(expression, COMPARISONS)


def _above(found: Node, expression: Node) -> Iterator[Node]:
    """What stands between a node and the expression that holds it, that expression included."""
    node: Node | None = found
    while node is not None and node is not expression:
        node = node.parent
        if node is not None:
            yield node


def _mark(block: SelectBlock, test: exp.Exists | exp.In, *, nulls_matter: bool) -> Node:
    """EXISTS or IN as a value: join the distinct keys and look whether there was one."""
    query = _query_of(test)
    if query is None or (isinstance(test, exp.In) and nulls_matter):
        raise Unsupported("IN (SELECT …) as a value")
    if isinstance(test, exp.Exists) and _has_one_row(query):
        return exp.true()
    _check_rows(query)
    found = correlated(query, test.this if isinstance(test, exp.In) else None)
    if found.others:
        raise Unsupported("EXISTS as a value, with more than equalities")
    if not found.equalities:
        return _exists_at_all(block, query)
    flow = block.workshop.compile(found.keys_query())
    _check_types(block, found, flow)
    if not is_unique(block.workshop, flow, flow.names):
        flow = distinct(block.workshop, flow)
    (key,) = _left_join(block, found, flow, flow.names[0])
    return exp.Not(this=exp.Is(this=key, expression=exp.Null()))


def _check_types(block: SelectBlock, found: Correlated, flow: Flow) -> None:
    """Each row of the outer query meets one key of the inner one only if comparing them takes no cast that makes
    different values equal: '1' and '01' are two keys, and both equal 1."""
    outputs = {f"o__{place}": tie.outer for place, tie in enumerate(found.equalities)}
    outer = Product(items=dict(block.items), outputs=outputs, laterals=tuple(block.laterals))
    kinds = [each.type for each in block.workshop.types_of(outer)]
    for kind, own in zip(kinds, block.workshop.types_of(flow), strict=False):
        if not equal_means_same(kind, own.type):
            raise Unsupported(f"{kind} compared with {own.type}: a cast decides what is equal")


def _left_join(block: SelectBlock, found: Correlated, flow: Flow, *names: str) -> list[Node]:
    """Join a flow that has at most one row for each key. Gives columns of it, null where there is no such row."""
    alias = block.workshop.fresh("value")
    on: list[Node] = [
        exp.EQ(this=equality.outer.copy(), expression=column(alias, key))
        for key, equality in zip(flow.names, found.equalities, strict=False)
    ]
    block.watch(*(column(alias, name) for name in names))
    outer_join(block, alias, flow, on, "LEFT")
    return block.unwatch()


def _scalar(block: SelectBlock, subquery: Node, *, rejects_null: bool) -> Node:
    """A scalar subquery."""
    query = subquery.unnest()
    if not isinstance(query, exp.Select):
        raise Unsupported("a scalar subquery that is no SELECT")
    if not outside(query):
        return _one_value(block, query)
    if query.args.get("limit") or query.args.get("distinct"):
        raise Unsupported("a correlated scalar subquery with DISTINCT or LIMIT")
    grouped = is_grouped(query)
    if query.args.get("group") or query.args.get("having"):
        raise Unsupported("a correlated scalar subquery with GROUP BY")
    found = correlated(query, None)
    if found.others or not found.equalities:
        raise Unsupported("a correlated scalar subquery with more than equalities")
    value = unaliased(query.selects[0])
    inner = found.value_query(value, grouped=grouped)
    flow = block.workshop.compile(inner)
    keys = flow.names[: len(found.equalities)]
    _check_types(block, found, flow)
    if not grouped and not is_unique(block.workshop, flow, keys):
        raise Unsupported("a scalar subquery that may have several rows")
    if rejects_null and (not grouped or _is_null_when_empty(value)):
        alias = block.workshop.fresh("value")
        for name, equality in zip(keys, found.equalities, strict=True):
            block.conditions.append(exp.EQ(this=equality.outer.copy(), expression=column(alias, name)))
        return _joined(block, alias, flow, column(alias, "value"))
    key, result = _left_join(block, found, flow, keys[0], "value")
    if not grouped or _is_null_when_empty(value):
        return result
    missing = exp.Is(this=key, expression=exp.Null())
    return exp.Case(ifs=[exp.If(this=missing, true=_when_empty(block, found, value))], default=result)


def _one_value(block: SelectBlock, query: exp.Select) -> Node:
    """A scalar subquery that is not correlated: one row, joined to all."""
    if not is_grouped(query) or query.args.get("group") or query.args.get("having") or query.args.get("limit"):
        raise Unsupported("a scalar subquery that may have no row, or several")
    alias = block.workshop.fresh("one")
    flow = block.workshop.compile(query)
    return _joined(block, alias, flow, column(alias, flow.names[0]))


def _is_null_when_empty(value: Node) -> bool:
    """Whether an expression over aggregates is NULL when there are no rows."""
    found = list(aggregates(value))
    if not found or any(_name(call) not in NULL_OF_NOTHING for call in found):
        return False
    node_kinds = (*ARITHMETIC, exp.Literal, exp.DataType)
    inside = {id(part) for call in found for part in call.walk()}
    return all(isinstance(part, node_kinds) for part in value.walk() if id(part) not in inside)


def _when_empty(block: SelectBlock, found: Correlated, value: Node) -> Node:
    """An expression over aggregates as it is when there are no rows: counts are 0, the others NULL."""
    value = value.copy()
    if any(_name(call) not in NULL_OF_NOTHING | COUNTS for call in aggregates(value)):
        raise Unsupported("a scalar subquery with an aggregate that may not be NULL over no rows")
    for call in list(aggregates(value)):
        # Of the aggregate's own type: coalesce(avg(x), 0) is 0.0, and hash(0) is another number than hash(0L).
        kind = block.workshop.types(found.value_query(call, grouped=True))[-1].type
        new = "0" if _name(call) in COUNTS else "NULL"
        value = replaced(value, call, Spelled(pieces=(f"CAST({new} AS {kind})" if kind else new,)))
    return value


def _name(call: Node) -> str | None:
    while isinstance(call, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        call = call.this
    return aggregate_name(call)
