"""``headwater plan APP.py`` and ``headwater explain APP.py VIEW``: an app before it runs.

What it is: the graph of an app's views with kinds, columns and declarations; and the stages of one view with the cost
of a tick.
Invariants: no query runs and no state is written. Column types need Spark, unless ``--no-types`` is given.
Not here: compiling (``views/compiler``), typing (``views/tick/prepare.py``).
Read next: ``views/explain.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import JsonOption
from headwater.cli.output import console, say, show_facts, show_table, write_json
from headwater.errors import UnknownView

if TYPE_CHECKING:
    from headwater.app import App

NoTypes = Annotated[bool, typer.Option("--no-types", help="Do not start Spark: faster, but without column types.")]


def plan(file: AppFileArgument, no_types: NoTypes = False, as_json: JsonOption = False) -> None:
    """Show an app's views: inputs, cost of a tick, columns, and place of declaration.

    [cyan]headwater plan shop.py[/cyan]
    [cyan]headwater plan shop.py --json | jq '.views[].kind'[/cyan]
    """
    from headwater.views.compiler.plan import topic_of
    from headwater.views.tick.reports import KEPT, PlanCounts, TickReports, plan_counts

    counts: dict[str, PlanCounts] = {}
    with app_of(file) as app:
        views = described(app, types=not no_types)
        read = {topic_of(name) for view in views for name in view["reads"]}
        inputs = sorted(read - {view["name"] for view in views})
        sources = [
            {"name": name, "key": list(topic.settings.key), "schema": _ddl(topic)}
            for name in inputs
            for topic in [app.log.get_topic(name)]
        ]
        paused = {view.name: view.paused for view in app.views}
        reports = TickReports(app.log.local.catalog, app.name).last(KEPT)
        for each in views:
            each["paused"] = paused[each["name"]]
            counts[each["name"]] = plan_counts(reports, each["name"])
            each["plans"] = vars(counts[each["name"]])
            each["rows_read"] = _rows_read(reports, each["name"])
        state = None if app.state is None else str(app.state)
        document = {"app": app.name, "home": str(app.home), "state": state, "inputs": sources, "views": views}
    if as_json:
        write_json(document)
        return
    say(f"[bold]{document['app']}[/bold] in {document['home']}" + (f", state at {state}" if state else ""))
    if not views:
        say('no views yet; declare one: app.view("name", "SELECT …")')
        return
    given = [(each["name"], ", ".join(each["key"]), each["schema"]) for each in sources]
    show_table(["input", "key", "columns"], given)
    rows = [
        (
            each["name"],
            each["kind"],
            ", ".join(dict.fromkeys(map(topic_of, each["reads"]))),
            ", ".join(each["key"]),
            _columns(each),
            each["declared_at"],
        )
        for each in views
    ]
    show_table(["view", "kind", "reads", "key", "columns", "declared at"], rows)
    for each in views:
        if each["paused"]:
            reason = f"{each['name']} is paused since {each['paused']['since']}: {each['paused']['reason']}"
            console(stderr=True).print(reason, markup=False, soft_wrap=True)
        for said in _read_whole(each):
            console(stderr=True).print(said, markup=False, soft_wrap=True)
        for note in each["notes"]:
            console(stderr=True).print(f"{each['name']}: {note}", markup=False)
        if counts[each["name"]].ticks:
            console(stderr=True).print(f"{each['name']}: {counts[each['name']]}", markup=False, soft_wrap=True)


def explain(
    file: AppFileArgument,
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view's name.", show_default=False)],
    sql: Annotated[bool, typer.Option("--sql", help="Also show the queries of each stage.")] = False,
    no_types: NoTypes = False,
    as_json: JsonOption = False,
) -> None:
    """Show the plan of a view: its stages, and the cost of a tick of each.

    [cyan]headwater explain shop.py revenue[/cyan]
    """
    with app_of(file) as app:
        found = [each for each in described(app, types=not no_types) if each["name"] == view]
        if not found:
            names = ", ".join(each.name for each in app.views) or "none"
            raise UnknownView(f'no view "{view}" was declared', hint=f"Declared are: {names}.", view=view)
    if as_json:
        write_json(found[0])
    else:
        _show_stages(found[0], sql=sql)


def _show_stages(view: dict[str, Any], *, sql: bool) -> None:
    show_facts(
        [
            ("view", view["name"]),
            ("declared at", view["declared_at"]),
            ("kind", view["kind"]),
            ("reads", ", ".join(view["reads"])),
            ("key", ", ".join(view["key"]) or None),
            ("columns", _columns(view)),
        ]
    )
    from headwater.views.compiler.plan import StageKind
    from headwater.views.explain import COSTS

    rows = [
        (each["name"], each["kind"], each["what"], ", ".join(each["reads"]), COSTS[StageKind(each["kind"])])
        for each in view["stages"]
    ]
    show_table(["stage", "kind", "does", "reads", "a tick costs"], rows)
    for said in _read_whole(view):
        say(said)
    for note in view["notes"]:
        say(f"note: {note}")
    if sql:
        for stage in view["stages"]:
            for name, text in stage["sql"]:
                say(f"\n[dim]{stage['name']}: {name}[/dim]")
                console().print(text, markup=False, soft_wrap=True)


def described(app: App, *, types: bool) -> list[dict[str, Any]]:
    """Every view of the app as JSON values."""
    from headwater.views.explain import whole_stages

    prepared = app._runtime.prepared.views if types else {}
    described = []
    for view in app.views:
        declared = view.declared
        known = prepared.get(view.name)  # None: without types, or paused because it cannot be prepared
        plan = view.plan if known is None else known.plan
        columns = [] if plan is None else [(column.name, column.type) for column in plan.columns]
        if known is not None:
            from headwater.views.stages.stage_schemas import columns_of

            columns = [(column.name, column.type) for column in columns_of(known.schema)]
        described.append(
            {
                "name": view.name,
                "declared_at": declared.location,
                "kind": None if plan is None else str(plan.kind),
                "reads": list(declared.inputs if plan is None else plan.reads),
                "key": [] if plan is None else list(plan.key),
                "columns": [{"name": name, "type": type} for name, type in columns],
                "notes": [] if plan is None else list(plan.notes),
                "whole": [] if plan is None else whole_stages(plan),
                "stages": [] if plan is None else [_stage(stage) for stage in plan.stages],
            }
        )
    return described


def _stage(stage: Any) -> dict[str, Any]:
    from headwater.views.compiler.plan import LeadingStage

    sql: list[tuple[str, str]] = []
    for number, term in enumerate(getattr(stage, "terms", ()), start=1):
        sql.append((f"changes of {term.changes}, term {number}", term.sql))
    if isinstance(stage, LeadingStage):
        sql.append((f"changes of {stage.term.changes}", stage.term.sql))
    for name in ("constant", "partial", "combine", "merge", "fill", "sql"):
        if getattr(stage, name, None):
            sql.append((name, getattr(stage, name)))
    return {"name": stage.name, "kind": str(stage.kind), "what": stage.what, "reads": sorted(stage.reads), "sql": sql}


def _read_whole(view: dict[str, Any]) -> Iterator[str]:
    """A sentence for each stage that is computed from everything: what it costs, and why."""
    read = view.get("rows_read")
    cost = f" ({read:,} rows in an ordinary tick of the view)" if read is not None else ""
    for stage in view["whole"]:
        reads = ", ".join(stage["reads"]) or "nothing"
        yield f"{stage['stage']} reads all of {reads} at each change{cost}: {stage['reason']}"


def _rows_read(reports: list[dict[str, Any]], view: str) -> int | None:
    """The median of the rows that a view read in a tick; None when it had none."""
    found = [each["rows_read"] for report in reports for each in report["views"] if each["view"] == view]
    return int(median(found)) if found else None


def _columns(view: dict[str, Any]) -> str:
    return ", ".join(f"{each['name']} {each['type'] or ''}".rstrip() for each in view["columns"])


def _ddl(topic: Any) -> str:
    import pyarrow as pa

    from headwater.log.schema.ddl import to_ddl
    from headwater.log.schema.normalization import WEIGHT

    return to_ddl(pa.schema([field for field in topic.schema if field.name != WEIGHT]))
