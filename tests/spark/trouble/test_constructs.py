"""Every construct of SQL in a view gives what Spark gives.

What it is: the queries of ``constructs.py`` as views.
Invariants: see ``trial.py``. Sampled by ``HEADWATER_SEED``; whole in ``make test-functions``.
Not here: the other families of trouble.
Read next: ``constructs.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.trouble import constructs
from tests.spark.trouble.findings import Findings, report, sampled
from tests.spark.trouble.trial import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = 15


@pytest.mark.timeout(3000)
def test_constructs_in_views_give_what_spark_gives(spark: SparkSession, findings: Findings) -> None:
    chosen = sampled(list(constructs.cases()), SAMPLE)
    bench = Bench(spark, constructs.scenario())

    findings.tried.update(constructs=len(chosen))
    wrong = findings.add(bench.run(chosen))

    assert not wrong, report(wrong)
