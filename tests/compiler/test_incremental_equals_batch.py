"""Incremental = batch: whatever the query, the rows and the ticks, a view is the query over what is there now.

What it is: random views over random tables, compiled, run tick by tick on DuckDB, and after every tick compared with
the user's own SQL over the current tables, as bags.
Invariants: doubles are compared to rounding, everything else exactly. A failure prints the case; hypothesis makes it
small and prints the seed. ``HEADWATER_THOROUGH=n`` tries n times as many.
Not here: the same on Spark (``tests/spark``).
Read next: ``duck.py``, ``queries.py``.
"""

from __future__ import annotations

import os
from random import Random

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.compiler.comparing import bag_difference
from tests.compiler.duck import Batch, DuckRunner, compile_all
from tests.compiler.queries import View, views
from tests.compiler.schemas import Change, Tables, relations, ticks

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
many = settings(
    max_examples=60 * THOROUGH,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@many
@given(st.data())
def test_a_view_is_its_query_over_the_current_tables_after_every_tick(data: st.DataObject) -> None:
    tables = data.draw(relations(), label="tables")
    declared = data.draw(views(tables, united=True), label="views")
    happening = data.draw(ticks(tables), label="ticks")
    seed = data.draw(st.integers(0, 3), label="seed of the runner")

    check(tables, declared, happening, seed)


def check(tables: tuple, declared: tuple[View, ...], happening: tuple[tuple[Change, ...], ...], seed: int) -> None:
    queries = [(view.name, view.query.sql) for view in declared]
    for name, sql in queries:
        note(f"{name}: {sql}")
    plans = compile_all(tables, queries)
    for plan in plans:
        note("\n".join(str(stage) for stage in plan.stages))
    model, batch = Tables(tables), Batch(tables, queries)
    runner = DuckRunner(tables, plans, random=Random(seed))

    for number, tick in enumerate(happening):
        runner.tick(model.apply(tick))
        expected = batch.answers(model.content)
        for name, _ in queries:
            difference = bag_difference(runner.rows(name), expected[name])
            assert not difference, f"tick {number}, view {name}:\n{difference}"
