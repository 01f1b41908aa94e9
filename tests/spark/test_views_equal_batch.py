"""Incremental = batch on Spark: random views over random tables, through the log, the state and the tick.

What it is: the queries, rows and ticks of ``tests/compiler``, declared in a real app. After every tick each view is
compared with its query, which ``verify`` computes from the log alone. A view may fail only where its query does.
Invariants: as in ``tests/compiler/test_incremental_equals_batch.py``; here Spark is both the engine and the oracle.
Not here: thousands of cases (DuckDB does those).
Read next: ``tests/compiler/test_incremental_equals_batch.py``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import headwater as hw
from headwater.errors import ViewFailed
from headwater.views import thresholds
from headwater.views.compiler.plan import PlanColumn, Relation
from headwater.views.state.remote import executor_files
from headwater.views.tick.engine import TickEngine
from tests.compiler.queries import views
from tests.compiler.schemas import Change, Tables, relations, ticks
from tests.spark.batch_failures import failure_of

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
few = settings(
    max_examples=4 * THOROUGH,
    deadline=None,
    print_blob=True,
    phases=[Phase.explicit, Phase.generate],  # making a case smaller takes many Spark jobs; DuckDB is there for that
    suppress_health_check=list(HealthCheck),
)

# As few rows go, as middling ones go (looked up, but too many for one task), and as many go: read by Spark throughout;
# at last as many changes of a table go that is larger still: its old rows are found in one pass, and what stays is not
# written.
WAYS: tuple[dict[str, int], ...] = (
    {},
    {"TASK_ROWS_MAX": 2, "LOCAL_ROWS_MAX": 1, "SMALL_RUN_BYTES_MAX": 0, "FEW_ROWS_MAX": 0},
    {
        **{"TASK_ROWS_MAX": 0, "LOCAL_ROWS_MAX": 0, "LOOKUP_KEYS_MAX": 0, "SETTLED_ROWS_MAX": 0, "TAIL_ROWS_MIN": 0},
        "SMALL_RUN_BYTES_MAX": 0,  # every run is a file, as those of many rows are
    },
    {"LOOKUP_KEYS_MOST": 0, "SMALL_RUN_BYTES_MAX": 0},
    # Groups are computed in slices: of tables, and of what is in files.
    {"SLICED_ROWS_MIN": 0, "BUILT_ROWS_MIN": 0},
    {
        **{"SLICED_ROWS_MIN": 0, "TASK_ROWS_MAX": 2, "LOCAL_ROWS_MAX": 0, "CONSOLIDATED_ROWS_MAX": 0},
        "SMALL_RUN_BYTES_MAX": 0,
    },
)


@few
@given(st.data())
def test_views_are_their_queries_over_the_log_after_every_tick(spark: SparkSession, data: st.DataObject) -> None:
    assert spark is not None
    tables = data.draw(relations(), label="tables")
    declared = data.draw(views(tables, most=8), label="views")
    happening = data.draw(ticks(tables, most=3), label="ticks")
    way = data.draw(st.sampled_from(WAYS), label="way")
    state = data.draw(st.sampled_from([None, f"file://{tempfile.mkdtemp()}"]), label="state")
    by_executors = state is not None and data.draw(st.booleans(), label="executors read and write the state")

    for view in declared:
        note(f"{view.name}: {view.query.sql}")
    with (
        hw.App("random", home=tempfile.mkdtemp(), state=state) as app,
        patch.dict(vars(thresholds), way),
        patch.object(executor_files, "on_cluster", lambda _: by_executors),
    ):
        check(spark, app, tables, {view.name: view.query.sql for view in declared}, happening)


DIVISION = (Relation("r", (PlanColumn("a", "INT"), PlanColumn("b", "INT")), append_only=True),)
DIVIDED = {"halves": "SELECT a div b AS half FROM r", "sums": "SELECT sum(half) AS total FROM halves"}


def test_a_view_may_fail_where_its_query_does(spark: SparkSession, tmp_path: Path) -> None:
    happening = [[Change("r", (4, 2), insert=True)], [Change("r", (4, 0), insert=True)]]

    with hw.App("failing", home=tmp_path) as app:
        check(spark, app, DIVISION, DIVIDED, happening)

        assert app._runtime.manifests.tick() == 1


SIDES = tuple(Relation(name, (PlanColumn("a", "INT"), PlanColumn("b", "INT"))) for name in ("r", "s", "t"))
OVER_SUMS = {
    "united": "SELECT r.b, u.b AS c FROM r JOIN (SELECT * FROM s UNION ALL SELECT * FROM t) AS u ON r.a = u.a",
    "filled": "SELECT r.b, x.b AS c FROM r JOIN (SELECT s.a, t.b FROM s LEFT JOIN t ON s.b < t.b) AS x ON r.a = x.a",
    "counted": "SELECT u.b, count(*) AS n FROM r JOIN (SELECT * FROM t UNION ALL SELECT * FROM s) AS u ON r.a = u.a "
    "GROUP BY u.b",
}


@pytest.mark.parametrize("way", WAYS[:2], ids=["few", "middling"])
def test_a_join_over_a_union_does_not_wait_for_all_its_branches(
    spark: SparkSession, tmp_path: Path, way: dict[str, int]
) -> None:
    one_branch = [Change("s", (1, 1), insert=True), Change("s", (2, 5), insert=True)]
    happening = [
        one_branch,
        [Change("r", (1, 10), insert=True)],
        [Change("t", (1, 3), insert=True), Change("r", (2, 20), insert=True)],
        [Change("s", put.row, insert=False) for put in one_branch],
        [Change("r", (1, 30), insert=True)],
    ]

    with hw.App("sums", home=tmp_path) as app, patch.dict(vars(thresholds), way):
        check(spark, app, SIDES, OVER_SUMS, happening)


def test_a_failure_that_is_not_the_querys_is_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ViewFailed("a defect", view="sums")

    with hw.App("failing", home=tmp_path) as app:
        monkeypatch.setattr(TickEngine, "_tick", fail)

        with pytest.raises(AssertionError, match="sums failed in tick 0, and Spark answers its query: a defect"):
            check(spark, app, DIVISION, DIVIDED, [[Change("r", (4, 2), insert=True)]])


def check(
    spark: SparkSession,
    app: hw.App,
    tables: Sequence[Relation],
    declared: Mapping[str, str],
    happening: Sequence[Sequence[Change]],
) -> None:
    made = {table.name: declare(app, table) for table in tables}
    model = Tables(tables)
    for name, sql in declared.items():
        app.view(name, sql)
    for number, tick in enumerate(happening):
        model.apply(tick)
        for change in tick:
            put(made[change.table], change, next(table for table in tables if table.name == change.table))
        failed = failure(app)
        if failed is not None:  # an overflow, a bad cast: the query's error too
            view = failed.data["view"]
            condition = failure_of(spark, held(model), declared, view)
            assert condition is not None, f"{view} failed in tick {number}, and Spark answers its query: {failed}"
            return
        for found in app.verify():
            served = app._runtime.serving.query(f'SELECT count(*) AS n FROM "{found.view}"').to_pylist()[0]["n"]
            assert found.equal, f"tick {number}, {found.view}: missing {found.missing}, surplus {found.surplus}"
            assert served == found.rows


def failure(app: hw.App) -> ViewFailed | None:
    """Tick; why a view could not be computed."""
    try:
        app.tick()
    except ViewFailed as error:
        return error
    return None


def held(model: Tables) -> dict[str, tuple[str, list[dict[str, object]]]]:
    """What the tables hold, with their schemas."""
    names = {table.name: [column.name for column in table.columns] for table in model.relations}
    return {
        table.name: (schema_of(table), [dict(zip(names[table.name], row, strict=True)) for row in rows])
        for table in model.relations
        for rows in [model.content[table.name]]
    }


def schema_of(table: Relation) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in table.columns)


def declare(app: hw.App, table: Relation) -> object:
    if table.append_only:
        return app.topic(table.name, schema_of(table))
    return app.table(table.name, schema_of(table), key=table.key or None)


def put(made: object, change: Change, table: Relation) -> None:
    row = dict(zip((column.name for column in table.columns), change.row, strict=True))
    if table.append_only:
        made.append([row])  # type: ignore[attr-defined]
    elif table.key:
        (made.upsert if change.insert else made.delete)([row])  # type: ignore[attr-defined]
    else:
        (made.insert if change.insert else made.delete)([row])  # type: ignore[attr-defined]
