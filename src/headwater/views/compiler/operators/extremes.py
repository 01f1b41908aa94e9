"""Extremes: min, max, min_by and max_by over everything, without GROUP BY.

What it is: each of them is the first row in an order, of the values and one null more: ``max(x)`` is ``ORDER BY x DESC
NULLS LAST LIMIT 1``. So it is a stage of leading rows. The other aggregates of the same SELECT are compiled for
themselves, and all are joined: each is one row.
Invariants: the null makes it one row also where there are no rows, or none that FILTER lets pass. When the other
aggregates are computed whole, so is everything: the rows are read all the same.
Not here: groups (``aggregation.py``); rows that never leave, of which a minimum accumulates
(``views/compiler/algebra/accumulators.py``).
Read next: ``first_rows.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from headwater.views.compiler.algebra.flow import Product, Sum, TableRef, leaves
from headwater.views.compiler.algebra.plan_nodes import CompileContext, KeyedNode
from headwater.views.compiler.algebra.select_block import SelectBlock
from headwater.views.compiler.operators.first_rows import leading
from headwater.views.compiler.sql.builtin_functions import aggregate_name, distinct_values
from headwater.views.compiler.sql.dialect import text
from headwater.views.compiler.sql.expressions import Node, bare, conjunction, named, output_name, unaliased

ORDERS = {"min": False, "max": True, "min_by": False, "max_by": True}  # whether the order descends


@dataclass(frozen=True)
class Extreme:
    """An aggregate that is a value of the first row in an order."""

    call: Node
    order: Node
    value: Node | None  # None: what is ordered by
    descends: bool


def extremes(block: SelectBlock, calls: list[Node], aggregate: Callable[[SelectBlock], None]) -> Product | None:
    """A flow of one row with the aggregates as ``a__0…``; None when it must be computed whole."""
    found = {place: extreme for place, call in enumerate(calls) if (extreme := _extreme(call)) is not None}
    if not found:
        return None
    others = {place: call for place, call in enumerate(calls) if place not in found}
    parts: dict[int, tuple[Product, str]] = {}
    if others:
        beside = _beside(block, others, aggregate)
        if beside is None:
            return None
        parts |= {place: (beside, f"p__{place}") for place in others}
    rows = _rows(block, found)
    for place, extreme in found.items():
        parts[place] = (_first(block.workshop, rows, place, extreme), f"v__{place}")
    items = {alias: item for product, _ in parts.values() for alias, item in product.items.items()}
    conditions = {id(part): part for product, _ in parts.values() for part in product.conditions}
    outputs = {f"a__{place}": parts[place][0].outputs[parts[place][1]] for place in range(len(calls))}
    return Product(items=items, outputs=outputs, conditions=tuple(conditions.values()))


def _extreme(call: Node) -> Extreme | None:
    condition: Node | None = None
    function = call
    if isinstance(call, exp.Filter):
        condition, function = call.expression.this, call.this
    name = aggregate_name(function)
    if name not in ORDERS:
        return None
    given = distinct_values(function) or (
        list(function.expressions)
        if isinstance(function, exp.Anonymous)
        else [function.this, *([function.expression] if function.args.get("expression") else [])]
    )
    if len(given) != (2 if name.endswith("_by") else 1):
        return None
    order = given[-1]
    known = exp.Not(this=exp.Is(this=exp.paren(order.copy()), expression=exp.Null()))
    value = _where(given[0], condition, known) if name.endswith("_by") else None
    return Extreme(call, _where(order, condition), value, ORDERS[name])


def _where(value: Node, *conditions: Node | None) -> Node:
    test = conjunction([part.copy() for part in conditions if part is not None])
    return value.copy() if test is None else exp.Case(ifs=[exp.If(this=test, true=value.copy())])


def _beside(block: SelectBlock, others: dict[int, Node], aggregate: Callable[[SelectBlock], None]) -> Product | None:
    """The other aggregates, as ``p__0…``; None when they are computed whole."""
    inner = SelectBlock(
        block.workshop, exp.Select(), dict(block.items), [*block.conditions], [*block.laterals], [*block.where]
    )
    for place, call in others.items():
        inner.rest.append("expressions", named(call, f"p__{place}"))
    aggregate(inner)
    product = inner.product({output_name(part): unaliased(part) for part in inner.rest.expressions})
    drafts = [block.workshop.drafts.get(item.relation) for item in product.items.values() if isinstance(item, TableRef)]
    whole = any(isinstance(draft, KeyedNode) and not draft.keys for draft in drafts)
    return None if whole else product


def _rows(block: SelectBlock, found: dict[int, Extreme]) -> Product:
    """What is ordered and what is wanted, ``o__0…`` and ``v__0…``, over one relation."""
    outputs: dict[str, Node] = {}
    for place, extreme in found.items():
        if extreme.value is not None:
            outputs[f"v__{place}"] = extreme.value
        outputs[f"o__{place}"] = extreme.order
    product = block.product(outputs)
    return product if sum(1 for _ in leaves(product)) == 1 else block.workshop.materialized(product)


def _first(workshop: CompileContext, rows: Product, place: int, extreme: Extreme) -> Product:
    """The stage that holds one aggregate, as ``v__<place>``."""
    by, value = f"o__{place}", f"v__{place}"
    outputs = (
        {value: rows.outputs[value], by: rows.outputs[by]} if extreme.value is not None else {value: rows.outputs[by]}
    )
    order = exp.Ordered(this=bare(by if extreme.value is not None else value), desc=extreme.descends, nulls_first=False)
    given = Product(rows.items, outputs, rows.conditions, rows.laterals)
    nulls: dict[str, Node] = {
        found.name: exp.cast(exp.Null(), found.type, dialect="spark") if found.type else exp.Null()
        for found in workshop.types_of(given)
    }
    what = text(extreme.call).lower().replace("`", "")
    flow = Sum((given, Product({}, nulls)))
    return leading(workshop, flow, [order], [value], first=1, last=1, what=what, key=())
