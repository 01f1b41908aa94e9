"""Spark's functions in views give what Spark gives: every one of them, in every place.

What it is: the registry's functions, called over typed columns, in views of one app after another.
Invariants: see ``trial.py``. Sampled by ``HEADWATER_SEED``; whole in ``make test-functions``.
Not here: casts, literals, names, constructs (the other files).
Read next: ``function_trial.py``.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.spark.trouble import calls, registry
from tests.spark.trouble.arguments import Search
from tests.spark.trouble.findings import SEED, THOROUGH, WHOLE, Findings
from tests.spark.trouble.function_trial import function_cases
from tests.spark.trouble.rows import typed_rows
from tests.spark.trouble.trial import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = 40


@pytest.mark.timeout(6000)
def test_functions_in_views_give_what_spark_gives(spark: SparkSession, findings: Findings) -> None:
    choice = random.Random(SEED)
    bench = Bench(spark, typed_rows())
    names = registry.names(spark)
    chosen = names if WHOLE else sorted(choice.sample(names, min(len(names), SAMPLE * THOROUGH)))
    functions = [registry.describe(spark, name) for name in chosen]
    search = Search(bench.sessions[-1], choice)

    made = function_cases(
        search, calls.Guard(bench.sessions[-1]), functions, choice, each=2 if WHOLE else 1, places=2 if WHOLE else 1
    )
    findings.tried.update(functions=len(made.functions), calls=made.calls)
    wrong = findings.add(bench.run(made.cases))

    assert wrong == []
