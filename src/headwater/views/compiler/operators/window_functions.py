"""Windows: functions over a partition.

What it is: window functions become columns of a stage keyed by the expressions that all of them partition by.
Invariants: without an expression common to all windows of a SELECT the stage is computed whole, unless a filter above
bounds a row_number, rank or dense_rank (``first_rows.py``).
Not here: window(at, '1 minute'), which is a grouping by time and has only the name in common.
Read next: ``keyed_stages.py``.
"""

from __future__ import annotations

from sqlglot import exp

from headwater.views.compiler.algebra.flow import Product, TableRef, single
from headwater.views.compiler.algebra.plan_nodes import CompileContext, LeadingNode, Unsupported
from headwater.views.compiler.algebra.select_block import SelectBlock, output_names, renaming
from headwater.views.compiler.algebra.uniqueness import unique_outputs
from headwater.views.compiler.frontend.as_of import VERSIONS
from headwater.views.compiler.operators.first_rows import leading_node
from headwater.views.compiler.operators.keyed_stages import keyed, keyed_input
from headwater.views.compiler.operators.top_k import is_number
from headwater.views.compiler.plan import NUMBER
from headwater.views.compiler.sql.dialect import text
from headwater.views.compiler.sql.expressions import (
    Node,
    bare,
    canonical,
    column,
    conjuncts,
    has_subquery,
    is_row_wise,
    named,
    position,
    substitute,
)


def has_windows(select: exp.Select) -> bool:
    """Whether a SELECT has window functions of its own."""
    return bool(_calls(select))


def _calls(select: exp.Select) -> list[exp.Window]:
    found: list[exp.Window] = []
    for call in select.find_all(exp.Window):
        inner = call.find_ancestor(exp.Select)
        if (
            (inner is select or inner is None)
            and position(call, found) is None
            and call.find_ancestor(exp.Window) is None
        ):
            found.append(call)
    return found


def windows(block: SelectBlock) -> None:
    """Replace the window functions of a block by the columns of a stage."""
    _write_out_named(block.rest)
    calls = [call.copy() for call in _calls(block.rest)]
    if any(map(has_subquery, calls)):
        raise Unsupported("a subquery inside a window function")
    partitions = _common(calls)
    workshop = block.workshop
    pairs = block.used(*block.items, *(lateral.alias for lateral in block.laterals))
    names = output_names(pairs)
    outputs: dict[str, Node] = {names[pair]: column(*pair) for pair in pairs}
    outputs |= {f"k__{place}": part for place, part in enumerate(partitions)}
    keys = tuple(f"k__{place}" for place in range(len(partitions)))
    alias = workshop.fresh("rows")
    flow = block.product(outputs)
    numbered = None
    if not partitions and len(calls) == 1 and is_number(calls[0]) and calls[0].args.get("order"):
        flow = flow if single(flow) else workshop.materialized(flow)
        numbered = _numbered(workshop, flow, names, calls[0])
    given = keyed_input(workshop, flow, alias, keys)
    change = renaming(alias, names)
    select = exp.Select(expressions=[named(column(alias, name), name) for name in names.values()])
    for place, call in enumerate(calls):
        select.append("expressions", named(substitute(call, change), f"w__{place}"))
    select.set("from_", exp.From(this=given.source))
    what = _what(block, calls, partitions)
    # A row stays a row: what tells the rows apart tells the results apart.
    unique = unique_outputs(workshop, block.product({names[pair]: column(*pair) for pair in pairs}))
    columns: list[Node] = [column(alias, key) for key in keys]
    reason = "a window function without PARTITION BY"
    if numbered is not None:
        reason += ", and no filter that bounds the number"
    stage = keyed(workshop, select, columns, [given], what=what, key=unique, reason=reason, numbered=numbered)
    _read_from(block, stage, names, calls)


def _numbered(
    workshop: CompileContext, flow: Product, names: dict[tuple[str, str], str], call: exp.Window
) -> LeadingNode:
    """The first row by a number; which ones are wanted, a filter has to tell."""
    order = [
        substitute(part, lambda found: bare(names[found.table, found.name])) for part in call.args["order"].expressions
    ]
    leads = leading_node(workshop, flow, order, flow.names, what="")
    leads.shown["w__0"] = NUMBER
    leads.number = call.this.name.lower() if isinstance(call.this, exp.Anonymous) else call.this.sql_name().lower()
    return leads


def _what(block: SelectBlock, calls: list[exp.Window], partitions: list[Node]) -> str:
    """The stage in a few words."""
    for item in block.items.values():
        if isinstance(item, TableRef) and item.relation.endswith(VERSIONS):
            return f"versions of {block.workshop.relations[item.relation].name.removesuffix(VERSIONS)}"
    by = ", ".join(text(part).replace("`", "") for part in partitions)
    what = ", ".join(text(call.this).lower().replace("`", "") for call in calls)
    return f"{what} over {by or 'all'}"


def _read_from(block: SelectBlock, flow: Product, names: dict[tuple[str, str], str], calls: list[exp.Window]) -> None:
    alias = block.start_over(flow)
    known = {canonical(call): column(alias, f"w__{place}") for place, call in enumerate(calls)}

    def change(node: Node) -> Node:
        new = known.get(canonical(node)) if isinstance(node, exp.Window) else None
        return new.copy() if new is not None else node

    rest = block.rest.transform(change)
    assert isinstance(rest, exp.Select)
    block.rest = rest
    qualify = rest.args.get("qualify")
    block.where = conjuncts(qualify.this) if qualify else []
    rest.set("qualify", None)
    block.substitute(renaming(alias, names))
    block.settle(alias)


def _write_out_named(select: exp.Select) -> None:
    """``OVER w`` with WINDOW w AS (…) written in full."""
    known = {window.name.lower(): window for window in select.args.get("windows") or []}
    for call in select.find_all(exp.Window):
        definition = known.get(call.alias.lower()) if call.alias else None
        if definition is None:
            continue
        for part in ("partition_by", "order", "spec"):
            given = definition.args.get(part)
            if given:
                call.set(part, [each.copy() for each in given] if isinstance(given, list) else given.copy())
        call.set("alias", None)
    select.set("windows", None)


def _common(calls: list[exp.Window]) -> list[Node]:
    """The expressions by which all windows partition."""
    first, *others = [[part.unnest() for part in call.args.get("partition_by") or []] for call in calls]
    common = [part for part in first if all(position(part, other) is not None for other in others)]
    return [part.copy() for part in common if is_row_wise(part)]
