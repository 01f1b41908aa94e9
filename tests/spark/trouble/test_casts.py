"""Implicit casts in views are Spark's, wherever something is derived from an equality.

What it is: the pairs of types that Spark compares, in the queries of ``casts.py``.
Invariants: see ``trial.py``. Sampled by ``HEADWATER_SEED``; whole in ``make test-functions``.
Not here: the other families of trouble.
Read next: ``casts.py``.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.spark.trouble import casts
from tests.spark.trouble.arguments import Search
from tests.spark.trouble.findings import SEED, WHOLE, Findings, report, sampled
from tests.spark.trouble.trial import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE, EACH = 20, 4


@pytest.mark.timeout(9000)
def test_implicit_casts_in_views_are_sparks(spark: SparkSession, findings: Findings) -> None:
    choice = random.Random(SEED)
    bench = Bench(spark, casts.scenario())
    pairs = casts.pairs(Search(bench.sessions[-1], choice))

    chosen = sampled(list(casts.cases(pairs, choice, each=EACH if WHOLE else 1)), SAMPLE)
    findings.tried["cast pairs"] = len({case.subject for case in chosen})
    wrong = findings.add(bench.run(chosen), answered=False)

    assert len(pairs) > 80
    assert not wrong, report(wrong)
