"""Keyed stages: what is computed anew for each key that was touched, or for everything when there is no key.

What it is: how an input of such a stage is made: a relation read directly, or a flow that becomes a stage first.
Invariants: a key's expressions give, for every row of an input, the key of the results that row can have a part in;
for a row that has no part in any, whatever they give, they do not raise where the query does not.
Not here: which key (``aggregation.py``, ``joins.py``, ``window_functions.py``, ``set_operations.py``).
Read next: ``joins.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from headwater.views.compiler.algebra.flow import Flow, Product, TableRef, single, to_query
from headwater.views.compiler.algebra.plan_nodes import CompileContext, KeyedNode, LeadingNode
from headwater.views.compiler.sql.expressions import (
    Node,
    bare,
    conjunction,
    is_row_wise,
    named,
    sources,
    substitute,
    table,
)


@dataclass
class KeyedSource:
    """An input of a keyed stage: what stands in FROM, and the key of each relation that is read."""

    source: Node
    keys: dict[str, tuple[Node, ...]] = field(default_factory=dict)


def keyed_input(
    workshop: CompileContext, flow: Flow, alias: str, keys: tuple[str, ...], *, stored: bool = False
) -> KeyedSource:
    """The source ``alias`` with the flow's outputs, of which ``keys`` are the key. ``stored``: they are columns of a
    stage in any case, so that rows can be looked up by them."""
    name = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    direct = None if stored else _direct_keys(flow, keys)
    if direct is not None:
        leaf, expressions = direct
        return KeyedSource(exp.Subquery(this=to_query(flow), alias=name), {leaf: expressions})
    if not keys:
        return KeyedSource(exp.Subquery(this=whole_query(workshop, flow), alias=name))
    stage = workshop.materialized(flow)
    ((_, mention),) = stage.items.items()
    assert isinstance(mention, TableRef)
    return KeyedSource(table(mention.relation, alias), {alias: tuple(bare(key) for key in keys)})


def _direct_keys(flow: Flow, keys: tuple[str, ...]) -> tuple[str, tuple[Node, ...]] | None:
    """The key over the columns of the one relation that a flow reads, when it can be told from them alone."""
    leaf = single(flow)
    if leaf is None or not isinstance(flow, Product) or not isinstance(flow.items.get(leaf[0]), TableRef):
        return None
    expressions = [flow.outputs[key] for key in keys]
    if any(sources(part) != {leaf[0]} or not is_row_wise(part) for part in expressions):
        return None
    own = [part for part in flow.conditions if sources(part) == {leaf[0]} and is_row_wise(part)]
    return leaf[0], tuple(substitute(_where(part, own), lambda found: bare(found.name)) for part in expressions)


def _where(key: Node, conditions: Sequence[Node]) -> Node:
    """A key of the rows that pass; null for the others, of which it is asked too, and over which it may raise."""
    passes = conjunction([part.copy() for part in conditions])
    if passes is None or isinstance(key, exp.Column):
        return key
    return exp.Case(ifs=[exp.If(this=passes, true=key.copy())])


def whole_query(workshop: CompileContext, flow: Flow) -> exp.Query:
    """A flow as SQL to be computed from everything. A join becomes a stage first: its changes are cheaper."""
    return to_query(flow if single(flow) else workshop.materialized(flow))


def keyed(
    workshop: CompileContext,
    select: exp.Select,
    keys: list[Node],
    inputs: list[KeyedSource],
    *,
    what: str,
    key: tuple[str, ...] | None,
    spans: tuple[str, ...] = (),
    reason: str = "",
    numbered: LeadingNode | None = None,
    in_runs: bool = False,
) -> Product:
    """A keyed stage; ``select`` gives its columns, ``keys`` are the key in terms of its sources.

    ``reason``: why there may be no key, and so everything is computed.
    """
    names = [projection.alias for projection in select.expressions]
    for place, part in enumerate(keys):
        select.append("expressions", named(part, f"_k{place}"))
    found = workshop.types(select)
    draft = KeyedNode(
        name=workshop.new_name(),
        what=what,
        columns=found[: len(names)],
        key=key,
        spans=spans,
        query=select,
        keys=found[len(names) :],
        inputs={leaf: given for each in inputs for leaf, given in each.keys.items()} if keys else {},
        reason=reason,
        numbered=numbered,
        in_runs=in_runs,
    )
    return workshop.keep(draft)
