"""Names of all spellings are Spark's in views.

What it is: the queries of ``views/compiler/frontend/name_resolution.py`` as views.
Invariants: see ``trial.py``. Sampled by ``HEADWATER_SEED``; whole in ``make test-functions``.
Not here: the other families of trouble.
Read next: ``views/compiler/frontend/name_resolution.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.trouble import names
from tests.spark.trouble.findings import Findings, report, sampled
from tests.spark.trouble.trial import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = 12


@pytest.mark.timeout(3000)
def test_names_in_views_give_what_spark_gives(spark: SparkSession, findings: Findings) -> None:
    chosen = sampled(list(names.cases()), SAMPLE)
    bench = Bench(spark, names.scenario())

    findings.tried.update(names=len(chosen))
    wrong = findings.add(bench.run(chosen))

    assert not wrong, report(wrong)
