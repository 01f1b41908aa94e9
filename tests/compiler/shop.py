"""A small shop: the relations and shorthands that the compiler's own tests share.

What it is: four relations and ``plan_of``.
Not here: anything random (``queries.py``).
"""

from __future__ import annotations

from headwater.views.compiler.compile import compile_view
from headwater.views.compiler.plan import PlanColumn, Relation, Stage, ViewPlan

ORDERS = Relation(
    "orders",
    (
        PlanColumn("order_id", "BIGINT"),
        PlanColumn("user_id", "BIGINT"),
        PlanColumn("amount", "INT"),
        PlanColumn("placedAt", "TIMESTAMP"),
        PlanColumn("tags", "ARRAY<STRING>"),
    ),
    key=("order_id",),
    not_null=("order_id",),
)
USERS = Relation(
    "users",
    (PlanColumn("id", "BIGINT"), PlanColumn("country", "STRING"), PlanColumn("age", "INT")),
    key=("id",),
    not_null=("id",),
)
VISITS = Relation(
    "visits", (PlanColumn("user_id", "BIGINT"), PlanColumn("page", "STRING"), PlanColumn("ms", "INT")), append_only=True
)
NOTES = Relation("notes", (PlanColumn("user_id", "BIGINT"), PlanColumn("text", "STRING")))
RELATIONS = {relation.name: relation for relation in (ORDERS, USERS, VISITS, NOTES)}


def plan_of(sql: str) -> ViewPlan:
    """The plan of a view named v, with inferred types."""
    return compile_view("v", sql, RELATIONS)


def kinds(sql: str) -> list[str]:
    """The kinds of a view's stages, in order."""
    return [stage.kind.value for stage in plan_of(sql).stages]


def only_stage(sql: str) -> Stage:
    """The stage of a view that has just one."""
    (stage,) = plan_of(sql).stages
    return stage
