"""Why a view's query fails in plain Spark: what a view that fails is held against.

What it is: ``failure_of`` runs the user's own texts once, over frames made from rows that the test knows.
Invariants: nothing of the compiler, the log or the state has a part in it; the session is one that no view uses.
Not here: answers (``trouble/trial.py``, ``test_views_equal_batch.py``).
Read next: ``test_views_equal_batch.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tests.spark.trouble.rows import Row, TableOf
from tests.spark.trouble.trial import frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}


def failure_of(
    spark: SparkSession, tables: Mapping[str, tuple[str, Sequence[Row]]], texts: Mapping[str, str], view: str
) -> str | None:
    """Spark's condition for the text of ``view`` over tables of these schemas and rows; None when Spark answers.

    ``texts`` are the queries of the views, each behind those that it reads.
    """
    session = spark.newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    for name, (schema, rows) in tables.items():
        frame(session, TableOf(schema), rows).createOrReplaceTempView(f"`{name}`")
    try:
        for name, sql in texts.items():
            if name == view:
                break
            session.sql(sql).createOrReplaceTempView(f"`{name}`")
        session.sql(texts[view]).toArrow()
    except (PySparkException, Py4JError) as error:
        named = re.search(r"\[([A-Z][A-Z0-9_.]+)\]", str(error))
        condition = getattr(error, "getCondition", lambda: None)() or (named[1] if named else type(error).__name__)
        return str(condition).split(".")[0]
    return None
