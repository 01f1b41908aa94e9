"""Set operations: UNION, EXCEPT, INTERSECT, with and without ALL.

What it is: UNION ALL is a flow; UNION is DISTINCT over it; EXCEPT and INTERSECT are computed for each row that was
touched on either side, which is a keyed stage whose key is the whole row.
Invariants: both sides of a union get the types of the union, for each side's changes travel alone.
Not here: DISTINCT itself (``aggregation.py``).
Read next: ``aggregation.py``.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from headwater.views.compiler.algebra.flow import Flow, Product, Sum
from headwater.views.compiler.algebra.plan_nodes import CompileContext, Unsupported
from headwater.views.compiler.frontend.time_windows import OnePiece
from headwater.views.compiler.operators.aggregation import distinct
from headwater.views.compiler.operators.first_rows import first_rows
from headwater.views.compiler.operators.keyed_stages import keyed, keyed_input
from headwater.views.compiler.plan import PlanColumn
from headwater.views.compiler.sql.expressions import Node, column, named, output_name


def compile_set_operation(workshop: CompileContext, query: exp.SetOperation) -> Flow:
    """The flow of a set operation."""
    if query.args.get("by_name"):
        raise Unsupported("UNION BY NAME")
    for side in (query.this, query.expression):
        names = [output_name(projection).lower() for projection in side.selects]
        if len(set(names)) < len(names):  # a stage's columns are told apart by their names
            raise OnePiece("two columns of a side of a set operation have one name")
    left, right = workshop.compile(query.this), workshop.compile(query.expression)
    if not isinstance(query, exp.Union):
        left, right = _in_one_type(workshop, left, right)
    flow: Flow
    if isinstance(query, exp.Union):
        flow = union_all(workshop, left, right)
        if query.args.get("distinct"):
            flow = distinct(workshop, flow)
    else:
        flow = _by_row(workshop, query, left, right)
    if query.args.get("limit") or query.args.get("offset"):
        flow = first_rows(workshop, flow, query)
    return flow


def union_all(workshop: CompileContext, *flows: Flow) -> Sum:
    """All rows of all flows, in the types of the union."""
    parts = [part for flow in flows for part in _parts(flow)]
    types = workshop.types_of(Sum(tuple(parts)))
    return Sum(tuple(_cast(workshop, part, types) for part in parts))


def _in_one_type(workshop: CompileContext, *flows: Flow) -> list[Flow]:
    """Flows in the types of their union: EXCEPT and INTERSECT compare rows after these casts."""
    types = workshop.types_of(Sum(tuple(part for flow in flows for part in _parts(flow))))
    found: list[Flow] = []
    for flow in flows:
        cast = tuple(_cast(workshop, part, types) for part in _parts(flow))
        found.append(Sum(cast) if isinstance(flow, Sum) else cast[0])
    return found


def _parts(flow: Flow) -> tuple[Flow, ...]:
    return flow.parts if isinstance(flow, Sum) else (flow,)


def _cast(workshop: CompileContext, part: Flow, types: tuple[PlanColumn, ...]) -> Flow:
    """A branch with the names and types of the union."""
    assert isinstance(part, Product)
    outputs: dict[str, Node] = {}
    for output, own, common in zip(part.outputs.values(), workshop.types_of(part), types, strict=True):
        differs = common.type is not None and (own.type or "").lower() != common.type.lower()
        outputs[common.name] = (
            exp.cast(output.copy(), common.type, dialect="spark") if differs and common.type else output
        )
    return replace(part, outputs=outputs)


def _by_row(workshop: CompileContext, query: exp.SetOperation, left: Flow, right: Flow) -> Product:
    """EXCEPT or INTERSECT: which rows are left depends on equal rows only."""
    inputs, sides = [], []
    for flow in (left, right):
        alias = workshop.fresh("side")
        given = keyed_input(workshop, flow, alias, flow.names)
        inputs.append(given)
        select = exp.Select(expressions=[named(column(alias, name), name) for name in flow.names])
        select.set("from_", exp.From(this=given.source))
        sides.append(select)
    kind = exp.Except if isinstance(query, exp.Except) else exp.Intersect
    both = kind(this=sides[0], expression=sides[1], distinct=bool(query.args.get("distinct")))
    alias = workshop.fresh("rows")
    outer = exp.Select(expressions=[named(column(alias, name), name) for name in left.names])
    name = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    outer.set("from_", exp.From(this=exp.Subquery(this=both, alias=name)))
    key = left.names if query.args.get("distinct") else None
    keys: list[Node] = [column(alias, name) for name in left.names]
    return keyed(workshop, outer, keys, inputs, what=kind.__name__.lower(), key=key)
