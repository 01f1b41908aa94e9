"""Special times: texts such as 'today', of which Spark makes a moment of the day.

What it is: ``check_special_times`` refuses a view in which Spark would do so: its answer would change while nothing
changes. Spark does it wherever a text that stands in the query becomes a time, also by an implicit cast:
``WHERE day = 'today'``, ``to_date('now')``.
Invariants: Spark's own rule is asked, over the plan as Spark understands it; a column, or a text that stays a text, may
say 'today'. Nothing runs, and queries without such a word cost nothing.
Not here: casts that are written, which the compiler refuses at once (``views/compiler/sql/builtin_functions.py``).
Read next: ``views/tick/prepare.py``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.views.compiler.sql.builtin_functions import REASONS, SPECIAL_TIMES
from headwater.views.compiler.sql.refusal import refuse

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

EPOCH = re.compile(r"(?i)'\s*epoch\s*'")  # Spark's rule knows it too, and it is one moment for ever
WORDS = re.compile(rf"(?i)\b({'|'.join(sorted(SPECIAL_TIMES))})\b")


def check_special_times(spark: SparkSession, sql: str, written: str) -> None:
    """Refuse the view of ``sql`` if Spark makes a moment of a text in ``written``, a query over tables it knows."""
    found = WORDS.search(sql)
    if found is None:
        return
    plan = spark.sql(EPOCH.sub("'1970-01-01'", written))._jdf.queryExecution().analyzed()
    plan = _rule(spark, "ReplaceExpressions").apply(plan)  # to_date('today') is a cast
    if any(_changes(spark, part) for part in (plan, *_subqueries(plan))):
        hint = REASONS[0][2]
        refuse(sql, found.span(), f"'{found[0]}' becomes a time here, and depends on the time of day", hint)


def _subqueries(plan: JavaObject) -> list[JavaObject]:
    every = plan.subqueriesAll()
    return [every.apply(place) for place in range(every.size())]


def _changes(spark: SparkSession, plan: JavaObject) -> bool:
    return not _rule(spark, "SpecialDatetimeValues").apply(plan).equals(plan)


def _rule(spark: SparkSession, name: str) -> JavaObject:
    """One of the optimiser's rules, by its name."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return getattr(getattr(jvm.org.apache.spark.sql.catalyst.optimizer, f"{name}$"), "MODULE$")
