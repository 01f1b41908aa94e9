"""Joins without an equality: which values have a match is kept, so that nothing is compared twice.

What it is: an outer join by any condition as the inner join, and the rows of a side that have no match, filled with
nulls; and EXISTS and NOT EXISTS by any condition. A stage holds the values of a side, as far as the condition looks at
them, for which there is a match; the rows with or without one are a stage keyed by these values.
Invariants: whether a row has a match depends on the columns that the condition mentions, and on nothing else of it.
A changed row is compared with all rows of the other side, and with no others.
Not here: joins by equalities (``joins.py``), whose rows find each other by key.
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
    shown: Mapping[str, str],
) -> Flow:
    """The outer join of two sides, by name, the left one first. ``visible`` names the columns of both; ``shown`` are
    the sides for people."""
    given = _mentioned_twice(workshop, sides)
    left, right = given
    parts: list[Flow] = [Product(dict(given), {name: column(*pair) for pair, name in visible.items()}, tuple(on))]
    for own, other in ((left, right), (right, left)):
        if side not in ("FULL", "LEFT" if own == left else "RIGHT"):
            continue
        types = {(other, found.name): found.type for found in workshop.types_of(given[other])}
        outputs = {name: column(*pair) if pair[0] == own else _null(types[pair]) for pair, name in visible.items()}
        what = f"{shown[own]} without a match in {shown[other]}"
        parts.append(_by_match(workshop, given, own, on, outputs, what=what, negative=True))
    return Sum(tuple(parts))


def unequal_semi_join(
    workshop: CompileContext,
    sides: Mapping[str, Product],
    on: Sequence[Node],
    visible: Mapping[Pair, str],
    *,
    what: str,
    negative: bool,
) -> Product:
    """The rows of the first of two sides that have a match in the other; with ``negative`` those that have none."""
    own = next(iter(sides))
    outputs: dict[str, Node] = {name: column(*pair) for pair, name in visible.items()}
    return _by_match(workshop, _mentioned_twice(workshop, sides), own, on, outputs, what=what, negative=negative)


def _mentioned_twice(workshop: CompileContext, sides: Mapping[str, Product]) -> dict[str, Product]:
    """The sides, for several stages to read: what is a join by itself becomes a stage first."""
    return {alias: flow if single(flow) else workshop.materialized(flow) for alias, flow in sides.items()}


def _by_match(
    workshop: CompileContext,
    given: Mapping[str, Product],
    own: str,
    on: Sequence[Node],
    outputs: Mapping[str, Node],
    *,
    what: str,
    negative: bool,
) -> Product:
    """The rows of one side that have a match in the other, or none."""
    names = list(dict.fromkeys(found.name for part in on for found in columns(part) if found.table == own))
    if not names:
        return _by_count(workshop, given, own, on, outputs, negative=negative)
    values: dict[str, Node] = {f"m__{place}": column(own, name) for place, name in enumerate(names)}
    matched = distinct(workshop, Product(dict(given), values, tuple(on)))
    alias = workshop.fresh("matches")
    rows = keyed_input(workshop, given[own], own, tuple(names))
    found = keyed_input(workshop, matched, alias, matched.names)
    same = [
        exp.NullSafeEQ(this=column(own, name), expression=column(alias, key))
        for name, key in zip(names, matched.names, strict=True)
    ]
    select = exp.Select(expressions=[named(output, name) for name, output in outputs.items()])
    select.set("from_", exp.From(this=rows.source))
    kind = "ANTI" if negative else "SEMI"
    select.append("joins", exp.Join(this=found.source, side="LEFT", kind=kind, on=conjunction(same)))
    keys: list[Node] = [column(own, name) for name in names]
    return keyed(workshop, select, keys, [rows, found], what=what, key=None)


def _by_count(
    workshop: CompileContext,
    given: Mapping[str, Product],
    own: str,
    on: Sequence[Node],
    outputs: Mapping[str, Node],
    *,
    negative: bool,
) -> Product:
    """The rows of a side at which the condition does not look: all of them, or none, as the other side has rows."""
    other = next(alias for alias in given if alias != own)
    count = exp.Select(expressions=[named(exp.Count(this=exp.Star()), "rows")])
    block = SelectBlock(workshop, count, {other: given[other]}, [part.copy() for part in on])
    aggregate(block)
    one = block.product({"rows": unaliased(block.rest.expressions[0])})
    test = (exp.EQ if negative else exp.GT)(this=one.outputs["rows"], expression=exp.Literal.number(0))
    # A stage of its own: the inner join beside it mentions the same relation by the same name.
    return workshop.materialized(Product({own: given[own], **one.items}, dict(outputs), (*one.conditions, test)))


def _null(kind: str | None) -> Node:
    return exp.cast(exp.Null(), kind, dialect="spark") if kind else exp.Null()
