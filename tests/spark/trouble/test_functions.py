"""Spark's functions in views give what Spark gives: every one of them, in every place.

What it is: the registry's functions, called over typed columns, in views of one app after another.
Invariants: see ``trial.py``. Sampled by ``HEADWATER_SEED``; whole in ``make test-functions``.
Not here: casts, literals, names, constructs (the other files).
Read next: ``function_trial.py``.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headwater as hw
from headwater.errors import InvalidView, ViewFailed
from headwater.views.compiler.sql.builtin_functions import TABLE_FUNCTIONS
from tests.spark.trouble import registry
from tests.spark.trouble.findings import EACH, PLACES_MAX, SEED, THOROUGH, WHOLE, Findings, of_this_part, report
from tests.spark.trouble.function_trial import NOT_OF_THE_INPUTS, UNCALLABLE, function_cases
from tests.spark.trouble.rows import Scenario, TableOf, Tick, typed_rows
from tests.spark.trouble.trial import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE, PLACED = 8, 2
ONCE_WRONG = ("collate", "date_format", "log10", "to_xml")
TABLE = TableOf("id BIGINT, i INT, s STRING, w STRING", ("id",))
RAISING = (
    "1 / i",
    "CAST(w AS INT)",
    "to_date(s, 'yyyy-MM-dd')",
    'to_timestamp(s, "yyyy-MM-dd")',
    "element_at(array(1), i)",
)


@pytest.mark.timeout(6000)
def test_functions_in_views_give_what_spark_gives(spark: SparkSession, findings: Findings) -> None:
    choice = random.Random(SEED)
    bench = Bench(spark, typed_rows())
    names = registry.names(spark)
    sample = choice.sample(names, min(len(names), SAMPLE * THOROUGH))
    chosen = of_this_part(names) if WHOLE else sorted({*sample, *ONCE_WRONG})
    functions = [registry.describe(spark, name) for name in chosen]

    made = function_cases(
        bench.sessions[-1],
        functions,
        SEED,
        each=EACH if WHOLE else 1,
        placed=len(functions) if WHOLE else PLACED * THOROUGH,
        places_max=PLACES_MAX,
    )
    findings.tried.update(functions=len(made.functions), calls=made.calls)
    findings.tried["functions without a call"] = len(made.uncalled)
    wrong = findings.add(bench.run(made.cases), answered=False)

    if WHOLE:  # with one call of each, the search may find none by chance
        assert set(made.uncalled) <= set(UNCALLABLE)
    assert not wrong, report(wrong)


def test_functions_that_are_none_of_the_inputs_are_refused(tmp_path: Path) -> None:
    with hw.App("refused", home=tmp_path) as app:
        app.table("t", "id BIGINT", key="id")
        for name in sorted(NOT_OF_THE_INPUTS - TABLE_FUNCTIONS):
            with pytest.raises(InvalidView, match=name):
                app.view("v", f"SELECT id, {name}() AS c FROM t")


@pytest.mark.parametrize("expression", RAISING)
def test_what_raises_in_spark_fails_in_a_view(spark: SparkSession, tmp_path: Path, expression: str) -> None:
    fine = {"id": 1, "i": 1, "s": "2016-12-31", "w": "1"}
    raising = {"id": 2, "i": 0, "s": "2016", "w": "x"}
    sql = f"SELECT id, {expression} AS c FROM t"
    bench = Bench(spark, Scenario({"t": TABLE}, [Tick({}, {"t": [fine]}), Tick({}, {"t": [raising]})]))

    with hw.App("raising", home=tmp_path) as app:
        table = app.table("t", TABLE.schema, key="id")
        app.view("v", sql)
        table.upsert([fine])
        app.tick()
        bench.sessions[0].sql(sql).toArrow()
        table.upsert([raising])
        with pytest.raises(Exception):  # noqa: B017 - whatever Spark raises
            bench.sessions[1].sql(sql).toArrow()
        with pytest.raises(ViewFailed):
            app.tick()
