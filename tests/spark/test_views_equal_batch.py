"""Incremental = batch on Spark: random views over random tables, through the log, the state and the tick.

What it is: the queries, rows and ticks of ``tests/compiler``, declared in a real app. After every tick each view is
compared with its query, which ``verify`` computes from the log alone.
Invariants: as in ``tests/compiler/test_incremental_equals_batch.py``; here Spark is both the engine and the oracle.
Not here: thousands of cases (DuckDB does those).
Read next: ``tests/compiler/test_incremental_equals_batch.py``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import headwater as hw
from headwater.errors import ViewFailed
from headwater.views import thresholds
from headwater.views.compiler.plan import Relation
from tests.compiler.queries import View, views
from tests.compiler.schemas import Change, relations, ticks

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
few = settings(
    max_examples=4 * THOROUGH,
    deadline=None,
    print_blob=True,
    phases=[Phase.explicit, Phase.generate],  # making a case smaller takes many Spark jobs; DuckDB is there for that
    suppress_health_check=list(HealthCheck),
)

# As few rows go, as middling ones go (looked up, but too many for one task), and as many go: read by Spark throughout.
WAYS: tuple[dict[str, int], ...] = (
    {},
    {"TASK_ROWS_MAX": 2, "LOCAL_ROWS_MAX": 1},
    {"TASK_ROWS_MAX": 0, "LOCAL_ROWS_MAX": 0, "LOOKUP_KEYS_MAX": 0, "SETTLED_ROWS_MAX": 0, "TAIL_ROWS_MIN": 0},
)


@few
@given(st.data())
def test_views_are_their_queries_over_the_log_after_every_tick(spark: SparkSession, data: st.DataObject) -> None:
    assert spark is not None
    tables = data.draw(relations(), label="tables")
    declared = data.draw(views(tables, most=8), label="views")
    happening = data.draw(ticks(tables, most=3), label="ticks")
    way = data.draw(st.sampled_from(WAYS), label="way")

    with hw.App("random", home=tempfile.mkdtemp()) as app, patch.dict(vars(thresholds), way):
        check(app, tables, declared, happening)


def check(app: hw.App, tables: Sequence[Relation], declared: Sequence[View], happening: Sequence) -> None:
    made = {table.name: declare(app, table) for table in tables}
    for view in declared:
        note(f"{view.name}: {view.query.sql}")
        app.view(view.name, view.query.sql)
    for number, tick in enumerate(happening):
        for change in tick:
            put(made[change.table], change, next(table for table in tables if table.name == change.table))
        try:
            app.tick()
        except ViewFailed:
            return  # an overflow or a bad cast is the batch query's error too
        for found in app.verify():
            served = app._runtime.serving.query(f'SELECT count(*) AS n FROM "{found.view}"').to_pylist()[0]["n"]
            assert found.equal, f"tick {number}, {found.view}: missing {found.missing}, surplus {found.surplus}"
            assert served == found.rows


def declare(app: hw.App, table: Relation) -> object:
    schema = ", ".join(f"{column.name} {column.type}" for column in table.columns)
    if table.append_only:
        return app.topic(table.name, schema)
    return app.table(table.name, schema, key=table.key or None)


def put(made: object, change: Change, table: Relation) -> None:
    row = dict(zip((column.name for column in table.columns), change.row, strict=True))
    if table.append_only:
        made.append([row])  # type: ignore[attr-defined]
    elif table.key:
        (made.upsert if change.insert else made.delete)([row])  # type: ignore[attr-defined]
    else:
        (made.insert if change.insert else made.delete)([row])  # type: ignore[attr-defined]
