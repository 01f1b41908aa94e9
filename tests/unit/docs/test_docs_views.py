"""What docs/views.md says of TPC-H and Nexmark is what the compiler does.

What it is: the table of kinds, made from the plans and compared with the page.
Invariants: nothing is counted by hand. ``HEADWATER_WRITE_DOCS=1`` writes the table into the page instead.
Not here: whether the views are right (``tests/spark``).
Read next: ``docs/views.md``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from headwater.views.compiler.compile import compile_view
from headwater.views.compiler.plan import Relation, StageKind, ViewPlan
from headwater.views.stages.stage_schemas import columns_of
from tests.workloads.nexmark import catalogue, events
from tests.workloads.tables import Table
from tests.workloads.tpch import schema as tpch

PAGE = Path(__file__).parents[3] / "docs" / "views.md"
BEGIN, END = "<!-- kinds: begin -->\n", "<!-- kinds: end -->"


def plans(tables: Sequence[Table], queries: Mapping[str, str]) -> dict[str, ViewPlan]:
    relations = {
        table.name: Relation(table.name, columns_of(table.schema), tuple(table.key), append_only=not table.key)
        for table in tables
    }
    return {name: compile_view(name, sql, relations) for name, sql in queries.items()}


def without_whole(found: Mapping[str, ViewPlan]) -> int:
    return sum(plan.kind is not StageKind.WHOLE for plan in found.values())


def written(found: Mapping[str, ViewPlan]) -> list[str]:
    rows = ["| query | dearest kind | stages |", "|---|---|---|"]
    rows += [
        f"| {name} | {plan.kind} | {' · '.join(str(stage.kind) for stage in plan.stages)} |"
        for name, plan in found.items()
    ]
    return rows


def section() -> str:
    of_tpch, of_nexmark = plans(tpch.TABLES, tpch.queries(1.0)), plans(events.TABLES, catalogue.queries())
    whole = [name for name, plan in of_tpch.items() if plan.kind is StageKind.WHOLE]
    those = f"; those that have one are {', '.join(whole)}" if whole else ""
    lines = [
        f"**TPC-H**: {without_whole(of_tpch)} of {len(of_tpch)} queries have no `whole` stage{those}.",
        "",
        *written(of_tpch),
        "",
        f"**Nexmark**: {without_whole(of_nexmark)} of {len(of_nexmark)} have no `whole` stage. "
        + " ".join(f"{name} is refused: {reason}." for name, reason in catalogue.REFUSED.items()),
        "",
        *written(of_nexmark),
        "",
    ]
    return "\n".join(lines)


def test_the_table_of_kinds_is_what_the_compiler_does() -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)

    expected = before + BEGIN + section() + END + after
    if os.environ.get("HEADWATER_WRITE_DOCS"):
        PAGE.write_text(expected, encoding="utf-8")

    assert PAGE.read_text(encoding="utf-8") == expected
