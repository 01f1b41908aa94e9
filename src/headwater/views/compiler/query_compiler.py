"""A query: from a settled syntax tree to a flow over relations and drafts.

What it is: the order in which a SELECT's clauses are compiled, and the way out: a SELECT that no step can do better
is computed whole from its sources.
Invariants: what comes back means what the query means, as a bag of rows. A query that is correlated is refused here;
the outer query takes the correlation out first (``views/compiler/operators/subqueries.py``).
Not here: the steps (``views/compiler/operators/joins.py``, ``views/compiler/operators/subqueries.py``,
``views/compiler/operators/aggregation.py``, ``views/compiler/operators/window_functions.py``,
``views/compiler/operators/set_operations.py``).
Read next: ``views/compiler/operators/joins.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from sqlglot import exp

from headwater.views.compiler.algebra.flow import ConstantRows, Flow, Product, Source, TableRef
from headwater.views.compiler.algebra.plan_nodes import CompileContext, Unsupported
from headwater.views.compiler.algebra.select_block import REST, SelectBlock
from headwater.views.compiler.frontend.as_of import ONE_AT
from headwater.views.compiler.frontend.time_windows import check_sessions
from headwater.views.compiler.operators.aggregation import aggregate, distinct
from headwater.views.compiler.operators.first_rows import bounded, first_rows, listed
from headwater.views.compiler.operators.grouping import group_expressions
from headwater.views.compiler.operators.joins import join
from headwater.views.compiler.operators.keyed_stages import whole_query
from headwater.views.compiler.operators.set_operations import compile_set_operation
from headwater.views.compiler.operators.subqueries import filter_by_subqueries, project_subqueries
from headwater.views.compiler.operators.window_functions import has_windows, windows
from headwater.views.compiler.sql.expressions import (
    Node,
    aggregates,
    column,
    conjuncts,
    is_grouped,
    is_row_wise,
    output_name,
    outside,
    sources,
    unaliased,
)


def compile_query(workshop: CompileContext, query: exp.Query) -> Flow:
    """The flow of a query."""
    if outside(query):
        raise Unsupported(f"it mentions {', '.join(sorted(outside(query)))} of the query around it")
    if isinstance(query, exp.Subquery):
        flow = compile_query(workshop, query.this)
        return first_rows(workshop, flow, query) if query.args.get("limit") or query.args.get("offset") else flow
    try:
        if isinstance(query, exp.SetOperation):
            return compile_set_operation(workshop, query)
        if isinstance(query, exp.Select):
            return _select(workshop, query)
        raise Unsupported(f"{query.key} is not known")
    except Unsupported as reason:
        return _whole(workshop, query, str(reason))


def _select(workshop: CompileContext, query: exp.Select) -> Flow:
    names = [output_name(projection) for projection in query.expressions]
    if len(set(names)) < len(names):
        raise Unsupported("two columns have one name")
    check_sessions(query, group_expressions(query, aggregates)[0])
    rest = exp.Select(**{part: query.args[part] for part in REST if query.args.get(part)}).copy()
    block = SelectBlock(workshop, rest)
    where = query.args.get("where")
    block.where = [part.copy() for part in conjuncts(where.this)] if where else []
    block.joins = [part.copy() for part in query.args.get("joins") or []]
    # Until they are joined, after everything else, their columns go along with what becomes of the sources.
    block.watch(*query.args.get("laterals") or [])
    clause = query.args.get("from_")
    if clause is not None:
        add_source(block, clause.this)
    while block.joins:
        join(block, block.joins.pop(0), compile_source)
    for lateral in block.unwatch():
        add_lateral(block, cast(exp.Lateral, lateral))
    filter_by_subqueries(block)
    if is_grouped(block.rest):
        aggregate(block)
        filter_by_subqueries(block)
    project_subqueries(block)
    if has_windows(block.rest):
        windows(block)
    return _finish(block)


def _finish(block: SelectBlock) -> Flow:
    """Projection, DISTINCT, ORDER BY … LIMIT."""
    workshop, rest = block.workshop, block.rest
    limited = bool(rest.args.get("limit") or rest.args.get("offset"))
    visible = {output_name(projection): unaliased(projection) for projection in rest.expressions}
    order = rest.args.get("order")
    by = listed(order.expressions) if order is not None else ""
    extra: dict[str, Node] = {}
    if limited and order is not None:
        for place, ordered in enumerate(order.expressions):
            if sources(ordered.this):  # not an output, or an expression over the sources
                extra[f"order__{place}"] = ordered.this.copy()
                ordered.set("this", exp.column(exp.to_identifier(f"order__{place}", quoted=True)))
    flow: Flow = absorbed(workshop, block.product({**visible, **extra}))
    if rest.args.get("distinct"):
        if extra:
            raise Unsupported("ORDER BY something that DISTINCT leaves out")
        flow = distinct(workshop, flow)
    if limited:
        flow = first_rows(workshop, flow, rest, tuple(visible), by)
    return flow


def absorbed(workshop: CompileContext, product: Product) -> Product:
    """The product, with the filters that concern one stage only taken into that stage, or all of it if it reads one."""
    product = _sink_filters(workshop, bounded(workshop, product))
    if len(product.items) != 1 or product.laterals:
        return product
    ((alias, item),) = product.items.items()
    draft = workshop.drafts.get(item.relation) if isinstance(item, TableRef) else None
    if (
        draft is None
        or not draft.absorbs(product.outputs, product.conditions)
        or not all(map(is_row_wise, (*product.outputs.values(), *product.conditions)))
    ):
        return product
    columns = workshop.types_of(product)
    draft.absorb(alias, product.outputs, product.conditions)
    draft.columns = columns
    return Product(items={alias: item}, outputs={name: column(alias, name) for name in product.outputs})


def _sink_filters(workshop: CompileContext, product: Product) -> Product:
    conditions = list(product.conditions)
    for alias, item in product.items.items():
        draft = workshop.drafts.get(item.relation) if isinstance(item, TableRef) else None
        own = [part for part in conditions if sources(part) == {alias} and is_row_wise(part)]
        if draft is None or not own or len(product.items) == 1:
            continue
        same: dict[str, Node] = {found.name: column(alias, found.name) for found in draft.columns}
        if not draft.absorbs(same, tuple(own)):
            continue
        draft.absorb(alias, same, tuple(own))
        conditions = [part for part in conditions if not any(part is other for other in own)]
    return replace(product, conditions=tuple(conditions))


def add_source(block: SelectBlock, source: Node) -> None:
    """Join a source of FROM."""
    if isinstance(source, exp.Lateral):
        add_lateral(block, source)
    else:
        block.add(source.alias_or_name, compile_source(block.workshop, source))


def add_lateral(block: SelectBlock, lateral: exp.Lateral) -> None:
    """Join a generator."""
    if isinstance(lateral.this, exp.Subquery):
        raise Unsupported("LATERAL (SELECT …)")
    lateral.set("view", True)
    lateral.set("ordinality", None)
    block.laterals.append(lateral)


def compile_source(workshop: CompileContext, source: Node) -> Source:
    """What stands in FROM: a relation, a query, or rows that are given."""
    given = source.args.get("alias")
    names = [name.name for name in given.columns] if given else []
    if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
        relation = source.name
        if not names:
            return TableRef(relation)
        alias = workshop.fresh("t")
        found = [each.name.lower() for each in workshop.columns_of(relation)]
        outputs = {new: column(alias, old) for new, old in zip(names, found, strict=True)}
        return Product(items={alias: TableRef(relation)}, outputs=outputs)  # type: ignore[arg-type]
    if isinstance(source, exp.Subquery):
        flow = compile_query(workshop, source.this)
        if ONE_AT in source.meta:
            _remember_versions(workshop, flow, source.meta[ONE_AT])
        if not names or list(flow.names) == names:
            return flow
        alias = workshop.fresh("t")
        outputs = {new: column(alias, old) for new, old in zip(names, flow.names, strict=True)}
        return Product(items={alias: flow}, outputs=outputs)  # type: ignore[arg-type]
    if isinstance(source, exp.Values | exp.Table):
        return ConstantRows(source.copy())
    raise Unsupported(f"{source.key} in FROM")


def _remember_versions(workshop: CompileContext, flow: Flow, names: tuple[str, ...]) -> None:
    """Tell the stage that holds a table's versions how one of them is found."""
    if not isinstance(flow, Product) or len(flow.items) != 1:
        return
    ((alias, item),) = flow.items.items()
    plain = all(flow.outputs.get(name) == column(alias, name) for name in names)
    if plain and isinstance(item, TableRef) and item.relation in workshop.drafts:
        workshop.drafts[item.relation].one_at = names


def _whole(workshop: CompileContext, query: exp.Query, reason: str) -> Flow:
    """The query itself, computed from everything; the queries in its FROM are compiled for themselves."""
    query = query.copy()
    clauses = [query.args.get("from_"), *(query.args.get("joins") or [])]
    for clause in clauses:
        source = clause.this if clause is not None else None
        if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Query):
            flow = compile_query(workshop, source.this)
            source.set("this", whole_query(workshop, flow))
    return workshop.keep_whole(query, what=f"computed whole: {reason}", reason=reason)
