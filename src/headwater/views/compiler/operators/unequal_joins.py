"""Joins without an equality: which rows have a partner is kept, so that nothing is compared twice.

What it is: an outer join by any condition as the inner join, and the rows of a side that have no partner, filled with
nulls. A stage holds the values of that side, as far as the condition looks at them, for which there is a partner; the
rows without one are a stage keyed by these values.
Invariants: whether a row has a partner depends on the columns that the condition mentions, and on nothing else of it.
A changed row is compared with all rows of the other side, and with no others.
Not here: joins by equalities (``joins.py``), whose rows find their partners by key.
Read next: ``joins.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from headwater.views.compiler.algebra.flow import Flow, Product, Sum, single
from headwater.views.compiler.algebra.plan_nodes import CompileContext
from headwater.views.compiler.algebra.select_block import SelectBlock
from headwater.views.compiler.operators.aggregation import aggregate, distinct
from headwater.views.compiler.operators.keyed_stages import keyed, keyed_input
from headwater.views.compiler.sql.expressions import Node, column, columns, conjunction, named, unaliased

Pair = tuple[str, str]


def unequal_outer_join(
    workshop: CompileContext,
    sides: Mapping[str, Product],
    on: Sequence[Node],
    side: str,
    visible: Mapping[Pair, str],
    what: Mapping[str, str],
) -> Flow:
    """The outer join of two sides, by name, the left one first; ``visible`` names the columns of both."""
    given = {alias: flow if single(flow) else workshop.materialized(flow) for alias, flow in sides.items()}
    left, right = given
    inner = Product(dict(given), {name: column(*pair) for pair, name in visible.items()}, tuple(on))
    parts: list[Flow] = [inner]
    if side in ("LEFT", "FULL"):
        parts.append(_without_partner(workshop, given, left, right, on, visible, what))
    if side in ("RIGHT", "FULL"):
        parts.append(_without_partner(workshop, given, right, left, on, visible, what))
    return Sum(tuple(parts))


def _without_partner(
    workshop: CompileContext,
    given: Mapping[str, Product],
    own: str,
    other: str,
    on: Sequence[Node],
    visible: Mapping[Pair, str],
    what: Mapping[str, str],
) -> Product:
    """The rows of one side for which the other has none, with nulls for the columns of the other."""
    types = {(other, found.name): found.type for found in workshop.types_of(given[other])}
    outputs = {name: column(*pair) if pair[0] == own else _null(types[pair]) for pair, name in visible.items()}
    names = list(dict.fromkeys(found.name for part in on for found in columns(part) if found.table == own))
    if not names:
        return _unless_any(workshop, given, own, other, on, outputs)
    matched = distinct(
        workshop,
        Product(dict(given), {f"m__{place}": column(own, name) for place, name in enumerate(names)}, tuple(on)),
    )
    matches = workshop.fresh("matches")
    rows = keyed_input(workshop, given[own], own, tuple(names))
    found = keyed_input(workshop, matched, matches, matched.names)
    same = [
        exp.NullSafeEQ(this=column(own, name), expression=column(matches, key))
        for name, key in zip(names, matched.names, strict=True)
    ]
    select = exp.Select(expressions=[named(output, name) for name, output in outputs.items()])
    select.set("from_", exp.From(this=rows.source))
    select.append("joins", exp.Join(this=found.source, side="LEFT", kind="ANTI", on=conjunction(same)))
    keys: list[Node] = [column(own, name) for name in names]
    return keyed(workshop, select, keys, [rows, found], what=f"{what[own]} without a match in {what[other]}", key=None)


def _unless_any(
    workshop: CompileContext,
    given: Mapping[str, Product],
    own: str,
    other: str,
    on: Sequence[Node],
    outputs: dict[str, Node],
) -> Product:
    """The rows of a side at which the condition does not look: all of them, or none when the other side has a row."""
    count = exp.Select(expressions=[named(exp.Count(this=exp.Star()), "rows")])
    block = SelectBlock(workshop, count, {other: given[other]}, [part.copy() for part in on])
    aggregate(block)
    one = block.product({"rows": unaliased(block.rest.expressions[0])})
    none = exp.EQ(this=one.outputs["rows"], expression=exp.Literal.number(0))
    # A stage of its own: the inner join beside it mentions the same relation by the same name.
    return workshop.materialized(Product({own: given[own], **one.items}, outputs, (*one.conditions, none)))


def _null(kind: str | None) -> Node:
    return exp.cast(exp.Null(), kind, dialect="spark") if kind else exp.Null()
