"""Compiling: a view's SQL becomes a plan.

What it is: ``compile_view``, the one thing that the rest of Headwater calls of this package.
Invariants: pure. The same SQL over the same relations gives the same plan; what is refused raises ``InvalidView`` and
underlines the clause.
Not here: running plans (``views/tick/engine.py``).
Read next: ``plan.py`` for what comes out, ``query_compiler.py`` for how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from headwater.errors import HeadwaterError, InvalidView
from headwater.views.compiler.algebra.flow import Flow, Product, TableRef, leaves
from headwater.views.compiler.algebra.plan_nodes import (
    AccumulateNode,
    CompileContext,
    Describe,
    FlowNode,
    KeyedNode,
    PlanNode,
    Unsupported,
    describe_flow,
)
from headwater.views.compiler.algebra.uniqueness import unique_outputs
from headwater.views.compiler.frontend.as_of import check_as_of, with_versions
from headwater.views.compiler.frontend.name_resolution import (
    check_output_names,
    check_tables,
    settle,
    without_added_names,
)
from headwater.views.compiler.frontend.parse import Parsed, is_read_whole, parse
from headwater.views.compiler.frontend.time_windows import OnePiece, check_regrouping
from headwater.views.compiler.operators.first_rows import is_orderable
from headwater.views.compiler.plan import PlanColumn, Relation, Stage, ViewPlan
from headwater.views.compiler.query_compiler import absorbed, compile_query
from headwater.views.compiler.render import StageRenderer
from headwater.views.compiler.sql.builtin_functions import check_functions
from headwater.views.compiler.sql.dialect import text
from headwater.views.compiler.sql.expressions import bare, column, parenthesised
from headwater.views.compiler.whole_query import STATES, Read, fingerprint, opaque_plan, unread_plan

STRICT = False  # the tests' setting: what the compiler trips over is an error there


@dataclass(frozen=True)
class SparkAnalysis:
    """What Spark says of a user's text: its columns, and where another text means something else ("" for nowhere)."""

    columns: tuple[PlanColumn, ...]
    difference: str


Confirm = Callable[[str, str, Mapping[str, tuple[PlanColumn, ...]]], SparkAnalysis]


def compile_view(
    name: str,
    sql: str,
    relations: Mapping[str, Relation],
    *,
    describe: Describe | None = None,
    waiting: Mapping[str, str] | None = None,
    rewrite: Callable[[Parsed], None] | None = None,
    confirm: Confirm | None = None,
    like: ViewPlan | None = None,
    read: Read | None = None,
) -> ViewPlan:
    """The plan of a view.

    ``describe(sql, tables)`` tells the columns of a query over tables of these columns; without it types are
    inferred as far as that goes, and what needs a type it does not have gets a dearer kind. ``waiting`` has the views
    that were refused before, and what each did not find: views that read each other are told so. ``rewrite`` may
    change the tree that was read. ``confirm`` compares what was read with the user's text, as Spark understands the
    two; where they differ, the view is computed whole from the user's text. ``like`` is the plan of the same text
    without ``rewrite``, which was confirmed. ``read`` asks Spark's parser about a text that ours cannot read: the view
    is computed whole then.

    >>> columns = (PlanColumn("id", "BIGINT"), PlanColumn("country", "STRING"), PlanColumn("amount", "INT"))
    >>> orders = Relation("orders", columns)
    >>> sql = "SELECT country, sum(amount) AS revenue FROM orders GROUP BY country"
    >>> plan = compile_view("revenue", sql, {"orders": orders})
    >>> [(stage.name, stage.kind.value, stage.what) for stage in plan.stages]
    [('revenue', 'accumulating', 'group by orders.country: sum(orders.amount)')]
    >>> plan.key
    ('country',)
    """
    workshop = CompileContext(with_versions(relations), describe, sql)
    workshop.compile = lambda query: compile_query(workshop, query)
    try:
        return _read_plan(name, sql, relations, workshop, waiting or {}, rewrite, confirm, like)
    except InvalidView:
        reading = read(sql) if read is not None and rewrite is None and not is_read_whole(sql) else None
        if reading is None:
            raise
        return unread_plan(name, sql, reading, relations, workshop, waiting or {})


def _read_plan(
    name: str,
    sql: str,
    relations: Mapping[str, Relation],
    workshop: CompileContext,
    waiting: Mapping[str, str],
    rewrite: Callable[[Parsed], None] | None,
    confirm: Confirm | None,
    like: ViewPlan | None,
) -> ViewPlan:
    """The plan of a text that our parser reads."""
    parsed = parse(sql)
    if rewrite is not None:
        rewrite(parsed)
    check_functions(parsed.tree, sql)
    reads = check_tables(parsed.tree, relations, sql, view=name, waiting=waiting)
    check_as_of(parsed.tree, relations, sql, parsed.opaque)
    if parsed.opaque is None and like is not None and like.opaque:
        parsed.opaque = like.opaque
    if parsed.opaque is not None:
        return opaque_plan(name, sql, parsed, reads, workshop, rewritten=rewrite is not None)
    try:
        settled = settle(parsed.query, relations, sql)
    except HeadwaterError:
        raise
    except Exception as reason:
        return _in_one_piece(reason, name, sql, parsed, reads, workshop, rewritten=rewrite is not None)
    names = settled.names
    if like is not None:
        shown = tuple(found.name for found in like.columns)
        names = (*shown, *names[len(shown) :])
    elif confirm is not None and not settled.written_out:
        confirmed = confirm(
            parsed.as_bag(sql),
            text(parenthesised(without_added_names(settled.shown))),
            {found: workshop.relations[found.lower()].columns for found in reads},
        )
        names = tuple(found.name for found in confirmed.columns)
        check_output_names(names, sql)
        if confirmed.difference or len(names) != len(settled.names):
            parsed.opaque = f"computed as one piece, since Spark reads it otherwise: {confirmed.difference}"
            parsed.notes.append(parsed.opaque)
            return opaque_plan(name, sql, parsed, reads, workshop)
    try:
        check_regrouping(settled.query)
        flow = _named(compile_query(workshop, settled.query), names)
        last = _last(workshop, flow)
        stages = _assemble(name, workshop, last)
    except HeadwaterError:
        raise
    except Exception as reason:
        if settled.written_out:
            parsed.tree = settled.shown  # AS OF is no SQL of Spark's: written out it is
        rewritten = settled.written_out or rewrite is not None
        return _in_one_piece(reason, name, sql, parsed, reads, workshop, rewritten=rewritten)
    own_rule = settled.written_out or settled.query.args.get("order") is not None or rewrite is not None
    return ViewPlan(
        name=name,
        sql=sql,
        stages=stages,
        columns=stages[-1].columns,
        reads=reads,
        fingerprint=fingerprint(settled.canonical, reads, workshop.relations, _states(workshop)),
        key=last.key or (),
        notes=(*parsed.notes, *dict.fromkeys(workshop.notes)),
        query=_in_order(settled.shown, stages[-1].columns),
        own_rule=bool(own_rule),
    )


def _states(workshop: CompileContext) -> tuple[int | str, ...]:
    """What tells the state that the stages keep from that of older versions: another one is filled anew."""
    groups = [draft for draft in workshop.drafts.values() if isinstance(draft, AccumulateNode)]
    sketches = {"sketches"} if any(each.is_sketch for draft in groups for each in draft.accumulators) else set()
    return (STATES, *sorted(workshop.kept_otherwise | sketches))


def _in_one_piece(
    reason: Exception,
    name: str,
    sql: str,
    parsed: Parsed,
    reads: tuple[str, ...],
    workshop: CompileContext,
    *,
    rewritten: bool,
) -> ViewPlan:
    """Right before cheap: what the compiler trips over is computed as one piece."""
    if STRICT and not isinstance(reason, Unsupported | OnePiece):
        raise reason
    parsed.opaque = f"computed as one piece: {str(reason) or type(reason).__name__}"
    return opaque_plan(name, sql, parsed, reads, workshop, rewritten=rewritten)


def _named(flow: Flow, names: tuple[str, ...]) -> Flow:
    """The flow with the user's names for its outputs."""
    if isinstance(flow, Product):
        return replace(flow, outputs=dict(zip(names, flow.outputs.values(), strict=True)))
    return replace(flow, parts=tuple(_named(part, names) for part in flow.parts))


def _last(workshop: CompileContext, flow: Flow) -> PlanNode:
    """The draft that is the view: the stage that the flow merely reads, or a stage for the flow."""
    if isinstance(flow, Product):
        for source in flow.items.values():
            read = workshop.drafts.get(source.relation) if isinstance(source, TableRef) else None
            if isinstance(read, KeyedNode):
                read.numbered = None  # no filter above can tell a bound any more
        flow = absorbed(workshop, flow)
        ((alias, item), *others) = flow.items.items() or [("", None)]
        plain = all(output == column(alias, name) for name, output in flow.outputs.items())
        alone = not others and not flow.conditions and not flow.laterals
        if isinstance(item, TableRef) and item.relation in workshop.drafts and alone and plain:
            return workshop.drafts[item.relation]
    draft = FlowNode(
        name=workshop.new_name(),
        what=describe_flow(flow, workshop),
        columns=workshop.types_of(flow),
        key=unique_outputs(workshop, flow),
        flow=flow,
    )
    workshop.drafts[draft.name] = draft
    return draft


def _reads(draft: PlanNode) -> list[str]:
    if isinstance(draft, KeyedNode):
        return [mention.name for mention in draft.query.find_all(exp.Table)]
    return [relation for _, relation in leaves(draft.flow)]  # type: ignore[attr-defined]


def _assemble(view: str, workshop: CompileContext, last: PlanNode) -> tuple[Stage, ...]:
    """The stages that the view needs, each once: two drafts that say the same become one stage."""
    needed: set[str] = set()
    waiting = [last.name]
    while waiting:
        name = waiting.pop()
        if name in workshop.drafts and name not in needed:
            needed.add(name)
            waiting += _reads(workshop.drafts[name])
    names: dict[str, str] = {}
    stages: dict[Stage, Stage] = {}
    renderer = StageRenderer(workshop, names)
    for draft in workshop.drafts.values():
        if draft.name not in needed or draft is last:
            continue
        stage = renderer.stage(draft, f"{view}${len(stages) + 1}")
        same = stages.setdefault(replace(stage, name="", what=""), stage)
        names[draft.name] = same.name
    return (*stages.values(), renderer.stage(last, view))


def _in_order(query: exp.Query, columns: tuple[PlanColumn, ...]) -> str:
    """The query as text. ORDER BY … LIMIT gets the view's own rule for rows that the order does not tell apart."""
    order = query.args.get("order")
    if order is not None:
        mentioned = {ordered.this.name for ordered in order.expressions if isinstance(ordered.this, exp.Column)}
        for found in columns:
            if found.name.lower() not in mentioned and is_orderable(found.type):
                order.append("expressions", exp.Ordered(this=bare(found.name), desc=False, nulls_first=True))
    return text(query)
