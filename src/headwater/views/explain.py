"""Explaining a plan: what a view's tick will cost, and why.

What it is: a plan as lines for people, and as plain data for programs.
Invariants: every stage is shown with its kind; what makes a stage dear is said.
Not here: figures of real ticks (``views/tick/engine.py`` reports those).
Read next: ``compiler/plan.py``.
"""

from __future__ import annotations

from typing import Any

from headwater.views.compiler.plan import StageKind, ViewPlan, WholeStage, topic_of

COSTS = {
    StageKind.LINEAR: "the changes",
    StageKind.BILINEAR: "the changes and their matches",
    StageKind.ACCUMULATING: "the groups touched",
    StageKind.LEADING: "the changes and the leading rows",
    StageKind.KEYED: "the rows of the touched keys",
    StageKind.WHOLE: "everything",
}


def explain(plan: ViewPlan) -> str:
    """The plan as lines of text."""
    width = max(len(stage.name) for stage in plan.stages)
    lines = [f"view {plan.name}: a tick costs {COSTS[plan.kind]}"]
    for stage in plan.stages:
        reads = ", ".join(sorted(stage.reads)) or "nothing"
        lines.append(f"  {stage.name:<{width}}  {stage.kind:<12}  {stage.what}  (reads {reads})")
    lines += [
        f"  {each['stage']} reads all of {', '.join(each['reads']) or 'nothing'} at each change: {each['reason']}"
        for each in whole_stages(plan)
    ]
    lines += [f"  note: {note}" for note in plan.notes]
    return "\n".join(lines)


def whole_stages(plan: ViewPlan) -> list[dict[str, Any]]:
    """The stages that are computed from everything: what each reads, and why."""
    return [
        {"stage": stage.name, "reads": sorted(stage.reads), "reason": stage.reason}
        for stage in plan.stages
        if isinstance(stage, WholeStage)
    ]


def as_data(plan: ViewPlan) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "view": plan.name,
        "kind": str(plan.kind),
        "columns": [{"name": column.name, "type": column.type} for column in plan.columns],
        "key": list(plan.key),
        "reads": list(dict.fromkeys(map(topic_of, plan.reads))),
        "notes": list(plan.notes),
        "whole": whole_stages(plan),
        "stages": [
            {"name": stage.name, "kind": str(stage.kind), "what": stage.what, "reads": sorted(stage.reads)}
            for stage in plan.stages
        ],
    }
