"""First rows: ORDER BY … LIMIT … OFFSET over a whole relation.

What it is: a stage of leading rows for a flow and an order, when the number of rows is given as a number and is not too
large; else a stage that is computed whole. A filter of numbered rows (``rank() OVER (ORDER BY …) <= n``) is one too.
Invariants: rows that the order does not tell apart are told apart by their other columns, so that the answer is one and
the same. A flow of several relations becomes a stage first, whose rows the buffer is filled from.
Not here: the first rows of each key (``top_k.py``); keeping the buffer (``views/stages/leading_run.py``).
Read next: ``LeadingStage`` in ``views/compiler/plan.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from headwater.views.compiler.algebra.flow import Flow, Product, Sum, TableRef, leaves
from headwater.views.compiler.algebra.plan_nodes import CompileContext, KeyedNode, LeadingNode
from headwater.views.compiler.operators.keyed_stages import whole_query
from headwater.views.compiler.plan import NUMBER, PlanColumn
from headwater.views.compiler.sql.dialect import text
from headwater.views.compiler.sql.expressions import Node, bare, column, named

# The buffer is read and sorted at each tick: of more rows than this it is no bound worth the name.
LEADING_ROWS_MAX = 50_000


def first_rows(
    workshop: CompileContext, flow: Flow, clauses: exp.Query, visible: tuple[str, ...] | None = None, by: str = ""
) -> Product:
    """ORDER BY … LIMIT … OFFSET, with the outputs ``visible`` of the flow. ``by``: the order in the user's words."""
    names = visible or flow.names
    order = clauses.args["order"].expressions if clauses.args.get("order") else []
    limit, offset = (_number(clauses.args.get(clause)) for clause in ("limit", "offset"))
    if limit is None or offset is None or limit + offset > LEADING_ROWS_MAX or not clauses.args.get("limit"):
        return _whole(workshop, flow, clauses, order, names)
    what = f"first {limit} by {by or listed(order)}"
    return leading(workshop, flow, order, names, first=offset + 1, last=offset + limit, what=what)


def _number(clause: Node | None) -> int | None:
    """The number in LIMIT or OFFSET, 0 without the clause; None when it is not written as a number."""
    if clause is None:
        return 0
    return _literal(clause.expression)


def listed(order: Sequence[Node]) -> str:
    """An order for people."""
    return ", ".join(text(part) for part in order).replace("`", "")


def leading(
    workshop: CompileContext,
    flow: Flow,
    order: Sequence[Node],
    visible: Sequence[str],
    *,
    first: int,
    last: int,
    what: str,
    key: tuple[str, ...] | None = None,
) -> Product:
    """The rows of a flow from the ``first`` to the ``last`` in an order over its outputs, as a stage."""
    if sum(1 for _ in leaves(flow)) != 1:
        flow = workshop.materialized(flow)
    draft = leading_node(workshop, flow, order, visible, what=what)
    draft.first, draft.last, draft.key = first, last, key
    return workshop.keep(draft)


def leading_node(
    workshop: CompileContext, flow: Flow, order: Sequence[Node], visible: Sequence[str], *, what: str
) -> LeadingNode:
    """The first row of a flow of one relation, in an order over its outputs."""
    held = {name: f"_c{place}" for place, name in enumerate(flow.names)}
    types = {found.name: found.type for found in workshop.types_of(flow)}
    mentioned = {part.this.name for part in order if isinstance(part.this, exp.Column)}
    ties = [name for name in flow.names if name not in mentioned and is_orderable(types[name])]
    return LeadingNode(
        name=workshop.new_name(),
        what=what,
        columns=tuple(PlanColumn(name, types[name]) for name in visible),
        flow=renamed(flow, list(held.values())),
        held=tuple(PlanColumn(new, types[name]) for name, new in held.items()),
        order=tuple(_over(part, held) for part in order),
        ties=tuple(exp.Ordered(this=bare(held[name]), desc=False, nulls_first=True) for name in ties),
        shown={name: held[name] for name in visible},
    )


def bounded(workshop: CompileContext, product: Product) -> Product:
    """The product, with each stage of numbered rows that its conditions bound made a stage of leading rows."""
    conditions = list(product.conditions)
    for alias, item in product.items.items():
        draft = workshop.drafts.get(item.relation) if isinstance(item, TableRef) else None
        if not isinstance(draft, KeyedNode) or draft.numbered is None:
            continue
        mentions = [column(alias, name) for name, of in draft.numbered.shown.items() if of == NUMBER]
        tests = {id(part): found for part in conditions if (found := _bounds(part, mentions)) is not None}
        last = min((high for _, high in tests.values() if high is not None), default=None)
        if last is None or last > LEADING_ROWS_MAX:
            continue
        first = max((low for low, _ in tests.values() if low is not None), default=1)
        what = f"{draft.what}, up to {last}"
        workshop.drafts[draft.name] = replace(
            draft.numbered, name=draft.name, what=what, columns=draft.columns, key=draft.key, first=first, last=last
        )
        conditions = [part for part in conditions if id(part) not in tests]
    return replace(product, conditions=tuple(conditions))


def _bounds(condition: Node, numbers: Sequence[Node]) -> tuple[int | None, int | None] | None:
    """Between which numbers, both included, a condition lets rows pass; None when it is no such condition."""
    if condition.args.get("this") not in numbers:
        return None
    if isinstance(condition, exp.Between):
        low, high = (_literal(condition.args[side]) for side in ("low", "high"))
        return None if low is None or high is None or condition.args.get("symmetric") else (low, high)
    value = _literal(condition.args.get("expression"))
    if value is None:
        return None
    bounds: dict[type[Node], tuple[int | None, int | None]] = {
        exp.EQ: (value, value),
        exp.LTE: (None, value),
        exp.LT: (None, value - 1),
        exp.GTE: (value, None),
        exp.GT: (value + 1, None),
    }
    return bounds.get(type(condition))


def _literal(value: Node | None) -> int | None:
    plain = isinstance(value, exp.Literal) and not value.is_string and value.name.isdigit()
    return int(value.name) if plain and value is not None else None


def renamed(flow: Flow, names: Sequence[str]) -> Flow:
    """The flow with other names for its outputs, in order."""
    if isinstance(flow, Sum):
        return replace(flow, parts=tuple(renamed(part, names) for part in flow.parts))
    return replace(flow, outputs=dict(zip(names, flow.outputs.values(), strict=True)))


def _over(expression: Node, names: Mapping[str, str]) -> Node:
    """An expression over outputs, with other names for them."""
    return expression.copy().transform(
        lambda node: bare(names[node.name]) if isinstance(node, exp.Column) and not node.table else node
    )


def _whole(
    workshop: CompileContext, flow: Flow, clauses: exp.Query, order: Sequence[Node], names: Sequence[str]
) -> Product:
    alias = workshop.fresh("ordered")
    select = exp.Select(expressions=[named(column(alias, name), name) for name in names])
    inner = whole_query(workshop, flow)
    select.set(
        "from_",
        exp.From(this=exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))),
    )
    orders: list[Node] = []
    for ordered in order:
        ordered = ordered.copy()
        ordered.set(
            "this",
            ordered.this.transform(
                lambda node: column(alias, node.name) if isinstance(node, exp.Column) and not node.table else node
            ),
        )
        orders.append(ordered)
    mentioned = {part.this.name for part in orders if isinstance(part.this, exp.Column)}
    for found in workshop.types_of(flow):
        if found.name not in mentioned and is_orderable(found.type):
            orders.append(exp.Ordered(this=column(alias, found.name), desc=False, nulls_first=True))
    select.set("order", exp.Order(expressions=orders))
    for clause in ("limit", "offset"):
        if clauses.args.get(clause):
            select.set(clause, clauses.args[clause].copy())
    reason = f"LIMIT and OFFSET are not numbers that are together at most {LEADING_ROWS_MAX:,}"
    return workshop.keep_whole(select, what="the first rows in order", reason=reason)


def is_orderable(kind: str | None) -> bool:
    """Whether Spark can order by a type."""
    return kind is not None and "map<" not in kind.lower() and kind.lower() != "variant"
