"""The runner itself, on plans written by hand.

What it is: one small plan of each kind of stage, run over a few ticks and compared with what a person expects.
Invariants: no compiler takes part, so that a mistake of the runner is not taken for one of the compiler.
Not here: compiled plans (``test_incremental_equals_batch.py``).
Read next: ``duck.py``.
"""

from __future__ import annotations

from random import Random

import pytest

from headwater.views.compiler.plan import (
    AccumulateStage,
    FlowStage,
    KeyedInput,
    KeyedStage,
    Leaf,
    LeafContent,
    Lookup,
    PlanColumn,
    Relation,
    Stage,
    StageKind,
    Term,
    ViewPlan,
    WholeStage,
)
from tests.compiler.duck import DuckRunner

ORDERS = Relation(
    "orders", (PlanColumn("id", "INT"), PlanColumn("user", "INT"), PlanColumn("amount", "INT")), key=("id",)
)
USERS = Relation("users", (PlanColumn("id", "INT"), PlanColumn("country", "STRING")), key=("id",))
each_seed = pytest.mark.parametrize("seed", range(4))


def view(name: str, *stages: Stage) -> ViewPlan:
    return ViewPlan(name, "", stages, stages[-1].columns, (), "")


def joined_terms(select: str) -> tuple[Term, Term]:
    first = Term(
        f"SELECT {select}, o._weight * u._weight AS _weight FROM _l0 AS o JOIN _l1 AS u ON o.user = u.id",
        (
            Leaf("_l0", "orders", LeafContent.CHANGES, ("user", "amount")),
            Leaf("_l1", "users", LeafContent.BEFORE, ("id", "country"), Lookup(("id",), "_l0", ("user",))),
        ),
        "_l0",
        ("_l0", "_l1"),
    )
    second = Term(
        f"SELECT {select}, o._weight * u._weight AS _weight FROM _l3 AS u JOIN _l2 AS o ON o.user = u.id",
        (
            Leaf("_l2", "orders", LeafContent.AFTER, ("user", "amount"), Lookup(("user",), "_l3", ("id",))),
            Leaf("_l3", "users", LeafContent.CHANGES, ("id", "country")),
        ),
        "_l3",
        ("_l3", "_l2"),
    )
    return first, second


@each_seed
def test_a_flow_follows_both_sides_of_a_join(seed: int) -> None:
    columns = (PlanColumn("country", "STRING"), PlanColumn("amount", "INT"))
    stage = FlowStage("v", StageKind.BILINEAR, columns, (), "", terms=joined_terms("u.country, o.amount"))
    runner = DuckRunner([ORDERS, USERS], [view("v", stage)], random=Random(seed))

    runner.tick({"orders": [(1, 7, 10, 1), (2, 7, 20, 1), (3, 8, 5, 1)], "users": [(7, "DE", 1)]})
    first = sorted(runner.rows("v"))
    runner.tick({"orders": [(1, 7, 10, -1)], "users": [(7, "DE", -1), (7, "FR", 1), (8, "NO", 1)]})

    assert first == [("DE", 10), ("DE", 20)]
    assert sorted(runner.rows("v")) == [("FR", 20), ("NO", 5)]
    assert sorted(runner.changes("v")) == [("DE", 10, -1), ("DE", 20, -1), ("FR", 20, 1), ("NO", 5, 1)]


@each_seed
def test_an_accumulating_stage_touches_its_groups_and_hides_what_having_excludes(seed: int) -> None:
    stage = AccumulateStage(
        "v",
        StageKind.ACCUMULATING,
        (PlanColumn("country", "STRING"), PlanColumn("revenue", "BIGINT")),
        tuple(PlanColumn(name, kind) for name, kind in HIDDEN.items()),
        "",
        terms=joined_terms("u.country AS _g0, o.amount AS _x0"),
        groups=(PlanColumn("_g0", "STRING"),),
        partial="SELECT _g0, SUM(_weight) AS _n, SUM(_x0 * _weight) AS _a0 FROM _flow GROUP BY _g0",
        combine="""SELECT p._g0 AS country, COALESCE(b._a0, 0) + p._a0 AS revenue, p._g0,
            COALESCE(b._n, 0) + p._n AS _n,
            COALESCE(b._a0, 0) + p._a0 AS _a0, COALESCE(b._a0, 0) + p._a0 > 5 AS _shown
            FROM _partial AS p LEFT JOIN _before AS b ON p._g0 <=> b._g0 WHERE COALESCE(b._n, 0) + p._n > 0""",
    )
    runner = DuckRunner([ORDERS, USERS], [view("v", stage)], random=Random(seed))

    runner.tick({"orders": [(1, 7, 10, 1), (2, 8, 4, 1)], "users": [(7, "DE", 1), (8, "NO", 1)]})
    first = runner.rows("v")
    runner.tick({"orders": [(1, 7, 10, -1), (3, 8, 4, 1)]})

    assert first == [("DE", 10)]
    assert runner.rows("v") == [("NO", 8)]


HIDDEN = {"_g0": "STRING", "_n": "BIGINT", "_a0": "BIGINT", "_shown": "BOOLEAN"}


def test_one_row_is_there_from_the_first_tick() -> None:
    stage = AccumulateStage(
        "v",
        StageKind.ACCUMULATING,
        (PlanColumn("n", "BIGINT"),),
        (PlanColumn("_n", "BIGINT"), PlanColumn("_shown", "BOOLEAN")),
        "",
        terms=(Term("SELECT _weight FROM _l0", (Leaf("_l0", "users", LeafContent.CHANGES, ()),), "_l0", ("_l0",)),),
        partial="SELECT COALESCE(SUM(_weight), 0) AS _n FROM _flow",
        combine="""SELECT p._n + COALESCE(b._n, 0) AS n, p._n + COALESCE(b._n, 0) AS _n, TRUE AS _shown
            FROM _partial AS p LEFT JOIN _before AS b ON TRUE""",
        one_row=True,
    )
    runner = DuckRunner([USERS], [view("v", stage)])

    seen = []
    for changes in ({}, {"users": [(1, "DE", 1)]}, {}, {"users": [(1, "DE", -1)]}):
        runner.tick(changes)
        seen.append(runner.rows("v"))

    assert seen == [[(0,)], [(1,)], [(1,)], [(0,)]]


def test_a_keyed_stage_computes_the_touched_keys_anew_nulls_too() -> None:
    stage = KeyedStage(
        "v",
        StageKind.KEYED,
        (PlanColumn("country", "STRING"), PlanColumn("least", "INT")),
        (PlanColumn("_k0", "STRING"),),
        "",
        inputs=(KeyedInput(Leaf("_l0", "users", LeafContent.BAG, ("id", "country")), ("upper(country)",), None),),
        keys=(PlanColumn("_k0", "STRING"),),
        sql="""SELECT upper(country) AS country, min(id) AS least, upper(country) AS _k0
            FROM _l0 GROUP BY upper(country)""",
    )
    runner = DuckRunner([USERS], [view("v", stage)])

    runner.tick({"users": [(1, "de", 1), (2, "DE", 1), (3, None, 1), (9, "NO", 1)]})
    runner.tick({"users": [(1, "de", -1), (3, None, -1), (4, None, 1)]})

    assert sorted(runner.rows("v"), key=str) == [("DE", 2), ("NO", 9), (None, 4)]
    assert sorted(runner.changes("v"), key=str) == [("DE", 1, -1), ("DE", 2, 1), (None, 3, -1), (None, 4, 1)]


def test_a_whole_stage_emits_only_the_difference_and_a_view_may_read_a_view() -> None:
    top = WholeStage(
        "top",
        StageKind.WHOLE,
        (PlanColumn("id", "INT"),),
        (),
        "",
        inputs=(Leaf("_l0", "users", LeafContent.BAG, ("id",)),),
        sql="SELECT id FROM _l0 ORDER BY id DESC LIMIT 2",
    )
    above = FlowStage(
        "above",
        StageKind.LINEAR,
        (PlanColumn("id", "INT"),),
        (),
        "",
        terms=(
            Term(
                "SELECT id + 1 AS id, _weight FROM _l0",
                (Leaf("_l0", "top", LeafContent.CHANGES, ("id",)),),
                "_l0",
                ("_l0",),
            ),
        ),
        constant="SELECT 100 AS id, 1 AS _weight",
    )
    runner = DuckRunner([USERS], [view("top", top), view("above", above)])

    runner.tick({"users": [(1, None, 1), (2, None, 1)]})
    runner.tick({"users": [(3, None, 1)]})

    assert sorted(runner.changes("top")) == [(1, -1), (3, 1)]
    assert sorted(runner.rows("above")) == [(3,), (4,), (100,)]
