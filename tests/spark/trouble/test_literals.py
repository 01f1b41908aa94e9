"""Literals and operators of all spellings mean in views what they mean to Spark.

What it is: the expressions of ``literals.py``, by themselves and in each other.
Invariants: see ``trial.py``. Sampled by ``HEADWATER_SEED``; whole in ``make test-functions``.
Not here: the other families of trouble.
Read next: ``literals.py``.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.spark.trouble import calls, literals
from tests.spark.trouble.arguments import Search
from tests.spark.trouble.findings import SEED, THOROUGH, WHOLE, Findings, report, sampled
from tests.spark.trouble.nesting import cases, nested
from tests.spark.trouble.trial import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE, NESTED, NESTED_WHOLE = 8, 4, 300


@pytest.mark.timeout(6000)
def test_literals_in_views_are_sparks(spark: SparkSession, findings: Findings) -> None:
    bench = Bench(spark, literals.scenario())
    chosen = sampled(list(literals.cases()), SAMPLE)

    findings.tried["literals and operators"] = len({part.subject for case in chosen for part in case.parts})
    wrong = findings.add(bench.run(chosen))

    assert not wrong, report(wrong)


@pytest.mark.timeout(6000)
def test_expressions_in_each_other_are_sparks(spark: SparkSession, findings: Findings) -> None:
    choice = random.Random(SEED)
    bench = Bench(spark, literals.scenario())
    count = NESTED_WHOLE if WHOLE else NESTED * THOROUGH

    made = nested(Search(bench.sessions[-1], choice), calls.Guard(bench.sessions[-1]), choice, count)
    chosen = sampled(list(cases(made, choice)), 2 * NESTED)
    findings.tried["nested expressions"] = len(made)
    wrong = findings.add(bench.run(chosen), answered=False)

    assert len(made) >= count // 2
    assert not wrong, report(wrong)
