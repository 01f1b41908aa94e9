"""Aggregation: GROUP BY and DISTINCT.

What it is: a block with aggregates becomes a block over a stage that holds one row per group, with the groups as
``g__0…`` and the aggregates as ``a__0…``. The stage accumulates when every aggregate can, and is keyed by the group
otherwise.
Invariants: the rest of the SELECT (expressions over aggregates, HAVING, windows) is rewritten to the stage's columns
and compiled like any other SELECT.
Not here: GROUPING SETS and DISTINCT aggregates, which become plain ones first (``grouping.py``); min and max without
groups (``extremes.py``); how an aggregate is kept (``views/compiler/algebra/accumulators.py``).
Read next: ``grouping.py``.
"""

from __future__ import annotations

from sqlglot import exp

from headwater.views.compiler.algebra.accumulators import Accumulator, accumulator
from headwater.views.compiler.algebra.flow import Flow, Product, to_query
from headwater.views.compiler.algebra.plan_nodes import AccumulateNode, CompileContext, Unsupported
from headwater.views.compiler.algebra.select_block import SelectBlock, output_names, renaming
from headwater.views.compiler.algebra.sketches import NOT_UNITED, is_sketch
from headwater.views.compiler.frontend.time_windows import CALLS, OnePiece, is_call, is_session
from headwater.views.compiler.operators.extremes import extremes
from headwater.views.compiler.operators.grouping import expand_distinct, expand_sets, group_expressions
from headwater.views.compiler.operators.keyed_stages import keyed, keyed_input
from headwater.views.compiler.operators.registers import COUNTED, ERROR_MIN, expand_registers
from headwater.views.compiler.operators.session_buckets import BUCKET, bucket_of
from headwater.views.compiler.plan import PlanColumn
from headwater.views.compiler.sql.builtin_functions import aggregate_name
from headwater.views.compiler.sql.dialect import text
from headwater.views.compiler.sql.expressions import (
    WRAPPERS,
    Node,
    aggregates,
    bare,
    canonical,
    column,
    columns,
    conjuncts,
    has_subquery,
    named,
    position,
    substitute,
)
from headwater.views.compiler.sql.refusal import refuse


def aggregate(block: SelectBlock) -> None:
    """Replace GROUP BY and aggregates by a stage."""
    groups, sets = group_expressions(block.rest, aggregates)
    session = next(iter(filter(is_session, groups)), None)
    if sets is not None:
        if session is not None:
            raise Unsupported("several sets of groups with session_window")
        groups = expand_sets(block, groups, sets)
    calls = _distinct_calls(block.rest)
    if any(map(has_subquery, groups)):  # written out in two places it is two subqueries to Spark
        raise OnePiece("a subquery in GROUP BY")
    if any(map(has_subquery, calls)):
        raise Unsupported("a subquery inside an aggregate")
    if session is not None:  # told by all rows of the other groups
        _read_from(block, _by_group(block, groups, calls, session), groups, calls)
        return
    by_value = expand_distinct(block, groups, calls, aggregate=aggregate, accumulates=_accumulates)
    if by_value or expand_registers(block, groups, calls, aggregate=aggregate, accumulates=_accumulates):
        by_value = True
        groups, calls = group_expressions(block.rest, aggregates)[0], _distinct_calls(block.rest)
    flow = _accumulate(block, groups, calls)
    if flow is None and not groups:
        flow = extremes(block, calls, aggregate)
    if flow is None:
        block.workshop.notes += _sketch_notes(block, calls) if not by_value else []
        flow = _by_group(block, groups, calls)
    _read_from(block, flow, groups, calls)


def _distinct_calls(select: exp.Select) -> list[Node]:
    found: list[Node] = []
    for call in aggregates(select):
        if position(call, found) is None:
            found.append(call.copy())
    return found


def unwrapped(call: Node) -> Node:
    """An aggregate call without its FILTER or WITHIN GROUP."""
    while isinstance(call, WRAPPERS):
        call = call.this
    return call


def arguments(call: Node) -> list[Node]:
    """The arguments of an aggregate call."""
    call = unwrapped(call)
    given = (
        list(call.expressions)
        if isinstance(call, exp.Anonymous)
        else [call.this, *(call.args.get("expressions") or [])]
    )
    given = [part.this if isinstance(part, exp.Paren) else part for part in given if isinstance(part, exp.Expr)]
    return [part for part in given if not isinstance(part, exp.Star)]


def accumulators_of(block: SelectBlock, calls: list[Node]) -> list[Accumulator] | None:
    """The accumulator of each aggregate; None when one has none."""
    flow = block.product({})
    outputs = {
        f"x__{place}_{number}": part for place, call in enumerate(calls) for number, part in enumerate(arguments(call))
    }
    if any(isinstance(part, exp.Distinct | exp.Order) for part in outputs.values()):
        return None
    typed = block.workshop.types_of(Product(flow.items, outputs, flow.conditions, flow.laterals)) if outputs else ()
    types = {found.name: found.type for found in typed}
    append_only = block.workshop.is_append_only(flow)
    found: list[Accumulator] = []
    for place, call in enumerate(calls):
        given = tuple(types[f"x__{place}_{number}"] for number in range(len(arguments(call))))
        kept = accumulator(call, given, append_only=append_only)
        if kept is None:
            return None
        found.append(kept)
    return found


def _accumulates(block: SelectBlock, calls: list[Node]) -> bool:
    return accumulators_of(block, calls) is not None


def _accumulate(block: SelectBlock, groups: list[Node], calls: list[Node]) -> Flow | None:
    kept = accumulators_of(block, calls)
    if kept is None:
        return None
    outputs: dict[str, Node] = {f"_g{place}": group for place, group in enumerate(groups)}
    finals: dict[str, Node] = {f"g__{place}": bare(f"_g{place}") for place in range(len(groups))}
    count = 0
    for place, each in enumerate(kept):
        for part in each.arguments:
            outputs[f"_x{len(outputs) - len(groups)}"] = part
        names = tuple(f"_a{count + number}" for number in range(len(each.types)))
        count += len(names)
        finals[f"a__{place}"] = each.final(names, "_n")
    what = _what(groups, calls)
    return accumulated(block.workshop, block.product(outputs), groups, calls, kept, finals, what=what)


def accumulated(
    workshop: CompileContext,
    flow: Product,
    groups: list[Node],
    calls: list[Node],
    kept: list[Accumulator],
    finals: dict[str, Node],
    *,
    what: str,
) -> Product:
    """The accumulating stage of a flow that yields ``_g0…`` and ``_x0…``."""
    typed = workshop.types(_grouped(flow, groups, calls))
    draft = AccumulateNode(
        name=workshop.new_name(),
        what=what,
        columns=typed,
        key=tuple(f"g__{place}" for place in range(len(groups))),
        spans=_spans(groups),
        flow=flow,
        groups=tuple(PlanColumn(f"_g{place}", typed[place].type) for place in range(len(groups))),
        accumulators=tuple(kept),
        outputs=finals,
        one_row=not groups,
    )
    return workshop.keep(draft)


def _grouped(flow: Product, groups: list[Node], calls: list[Node]) -> exp.Select:
    """The aggregation as one plain SELECT, to be asked for its types."""
    select = to_select(Product(flow.items, {}, flow.conditions, flow.laterals))
    for place, group in enumerate(groups):
        select.append("expressions", named(group, f"g__{place}"))
    for place, call in enumerate(calls):
        select.append("expressions", named(call, f"a__{place}"))
    if not calls and not groups:
        select.append("expressions", named(exp.Count(this=exp.Star()), "rows__"))
    if groups:
        select.set("group", exp.Group(expressions=[group.copy() for group in groups]))
    return select


def to_select(product: Product) -> exp.Select:
    """A product as SQL."""
    query = to_query(product)
    assert isinstance(query, exp.Select)
    return query


def _sketch_notes(block: SelectBlock, calls: list[Node]) -> list[str]:
    """Why sketches are made again from all rows of a touched group."""
    found: list[str] = []
    names = {id(call): aggregate_name(unwrapped(call)) or "" for call in calls}
    if not any(is_sketch(name) or name in NOT_UNITED for name in names.values()):
        return found
    can_leave = not block.workshop.is_append_only(block.product({}))
    hindering = [call for call in calls if accumulators_of(block, [call]) is None]
    for call in calls:
        name = names[id(call)]
        if name not in NOT_UNITED and not is_sketch(name):
            continue
        if can_leave:
            reason = "rows can leave, and nothing can be taken out of a sketch"
        elif name == COUNTED:
            reason = (
                f"its values are FLOAT or DOUBLE, its error is below {ERROR_MIN}, or a min, max or sketch is beside it"
            )
        elif name in NOT_UNITED:
            reason = "Spark has no SQL that unites two of them"
        elif call not in hindering:
            reason = f"it stands beside {text(unwrapped(hindering[0])).replace('`', '')}"
        elif any(isinstance(part, exp.Distinct) for part in arguments(call)):
            reason = "its values are DISTINCT"
        else:
            reason = "its size is not given, or its arguments are named"
        found.append(f"{name} is made again from all rows of a touched group, since {reason}")
    return found


def _by_group(block: SelectBlock, groups: list[Node], calls: list[Node], session: Node | None = None) -> Flow:
    """A stage keyed by the groups: the touched groups are aggregated anew. With a session among the groups, a stage
    keyed by the others: a row may lengthen, join or divide any session of its key. A session by itself is keyed by
    buckets of time."""
    workshop = block.workshop
    within = calls if session is None else [*calls, session]
    pairs = list(dict.fromkeys((found.table, found.name) for part in within for found in columns(part)))
    names = output_names(pairs)
    outputs: dict[str, Node] = {f"g__{place}": group for place, group in enumerate(groups) if group is not session}
    bucket = bucket_of(block, session) if session is not None and not outputs else None
    if bucket is not None:
        outputs[BUCKET] = bucket
    keys = tuple(outputs)
    outputs |= {names[pair]: column(*pair) for pair in pairs}
    if not outputs:
        raise Unsupported("an aggregate over no column")
    alias = workshop.fresh("rows")
    given = keyed_input(workshop, block.product(outputs), alias, keys, stored=bucket is not None)
    change = renaming(alias, names)
    select, by = exp.Select(), exp.Group()
    for place, group in enumerate(groups):
        part = substitute(group, change) if group is session else column(alias, f"g__{place}")
        select.append("expressions", named(part, f"g__{place}"))
        by.append("expressions", part.copy())
    for place, call in enumerate(calls):
        select.append("expressions", named(substitute(call, change), f"a__{place}"))
    select.set("from_", exp.From(this=given.source))
    if groups:
        select.set("group", by)
    unique = tuple(f"g__{place}" for place in range(len(groups)))
    key_columns: list[Node] = [column(alias, key) for key in keys]
    if bucket is not None:  # a session is found by the bucket that it begins in
        key_columns = [exp.Min(this=part) for part in key_columns]
    reason = "aggregates that take every row"
    if session is not None:
        reason = "session_window without another group, whose gap is not a plain number of units"
    return keyed(
        workshop,
        select,
        key_columns,
        [given],
        what=_what(groups, calls),
        key=unique,
        spans=_spans(groups),
        reason=reason,
        in_runs=bucket is not None,
    )


def _spans(groups: list[Node]) -> tuple[str, ...]:
    return tuple(f"g__{place}" for place, group in enumerate(groups) if is_call(group, *CALLS))


def _read_from(block: SelectBlock, flow: Flow, groups: list[Node], calls: list[Node]) -> None:
    """Rewrite the rest of the SELECT to the columns of the stage."""
    old = {*block.items, *(lateral.alias for lateral in block.laterals)}
    alias = block.start_over(flow)
    known = {canonical(group): column(alias, f"g__{place}") for place, group in reversed(list(enumerate(groups)))}
    known |= {canonical(call): column(alias, f"a__{place}") for place, call in enumerate(calls)}

    def change(node: Node) -> Node:
        new = known.get(canonical(node)) if not isinstance(node, exp.Alias | exp.Identifier) else None
        return new.copy() if new is not None else node

    having = block.rest.args.get("having")
    block.where = [part.transform(change) for part in conjuncts(having.this)] if having else []
    for clause in ("group", "having"):
        block.rest.set(clause, None)
    rest = block.rest.transform(change)
    assert isinstance(rest, exp.Select)
    block.rest = rest
    for part in (*block.where, block.rest):
        for found in columns(part):
            if found.table in old:
                if found.find_ancestor(exp.Select) not in (None, block.rest):
                    raise Unsupported("a subquery over an aggregate of the query around it")
                if _may_be_grouped(found, groups):
                    raise Unsupported(f"{found.name} is grouped in other words")
                refuse(
                    block.workshop.sql,
                    found,
                    f'column "{found.name}" is neither grouped nor aggregated',
                    f"Add it to GROUP BY, or aggregate it: any_value({found.name}).",
                )
    block.settle(alias)


def _may_be_grouped(mention: exp.Column, groups: list[Node]) -> bool:
    """Whether an expression around a column looks at just what some group looks at: b + a is a + b to Spark, and
    ucase(s) is upper(s). Spark knows; a column by itself is a mistake."""
    looked_at = [_pairs(group) for group in groups if not isinstance(group, exp.Column)]
    above = mention.parent
    while above is not None and not isinstance(above, exp.Alias | exp.Select):
        if _pairs(above) in looked_at:
            return True
        above = above.parent
    return False


def _pairs(expression: Node) -> set[tuple[str, str]]:
    return {(found.table, found.name) for found in columns(expression)}


def distinct(workshop: CompileContext, flow: Flow) -> Product:
    """DISTINCT: groups without aggregates."""
    alias = workshop.fresh("rows")
    product = Product(items={alias: flow}, outputs={name: column(alias, name) for name in flow.names})
    if isinstance(flow, Product):
        product = flow
    groups = list(product.outputs.values())
    numbered = Product(
        product.items, {f"_g{place}": group for place, group in enumerate(groups)}, product.conditions, product.laterals
    )
    typed = workshop.types_of(flow)
    draft = AccumulateNode(
        name=workshop.new_name(),
        what=f"distinct {', '.join(flow.names)}",
        columns=typed,
        key=flow.names,
        flow=numbered,
        groups=tuple(PlanColumn(f"_g{place}", found.type) for place, found in enumerate(typed)),
        outputs={name: bare(f"_g{place}") for place, name in enumerate(flow.names)},
    )
    return workshop.keep(draft)


def _what(groups: list[Node], calls: list[Node]) -> str:
    values = ", ".join(text(call).lower().replace("`", "") for call in calls)
    by = ", ".join(text(group).lower().replace("`", "") for group in groups)
    return f"group by {by}: {values}" if by else values or "one row"
