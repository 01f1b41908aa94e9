"""SQL that the compiler reads and writes means to Spark what it meant.

What it is: the examples of Spark's own documentation of its functions, read by the compiler's dialect and written
again, and Spark's own parser as the judge.
Invariants: Spark's parser makes the same plan of both. By default a sample of the functions;
``HEADWATER_THOROUGH=10`` tries them all.
Not here: what the compiler makes of a query (``tests/compiler``); answers (``tests/spark/trouble``).
Read next: ``src/headwater/views/compiler/sql/dialect.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import sqlglot

from headwater.views.compiler.sql.builtin_functions import KNOWN, TABLE_FUNCTIONS
from headwater.views.compiler.sql.dialect import SparkAsWritten, text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EACH = max(1, 8 // int(os.environ.get("HEADWATER_THOROUGH", "1")))
EXAMPLE = re.compile(r"^\s*> (SELECT.*?);\s*$", re.MULTILINE | re.DOTALL)


def examples(spark: SparkSession) -> Iterator[str]:
    """The examples of Spark's functions."""
    for name in sorted(KNOWN - TABLE_FUNCTIONS)[::EACH]:
        described = spark.sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect()
        yield from EXAMPLE.findall("\n".join(row[0] for row in described))


def parsed(spark: SparkSession, sql: str) -> str:
    """Spark's plan of a text before anything is looked up: no numbers of expressions, functions in lower case."""
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql).toString()
    calls = re.sub(r"\w+(?=\()", lambda word: word[0].lower(), re.sub(r"#\d+|plan_id=\d+", "", plan))
    return re.sub(r"NOT isnull\(", "isnotnull(", calls)


def test_what_is_written_is_to_spark_what_was_read(spark: SparkSession) -> None:
    found = list(dict.fromkeys(examples(spark)))

    written = {sql: text(sqlglot.parse_one(sql, read=SparkAsWritten)) for sql in found}
    wrong = [(sql, again) for sql, again in written.items() if parsed(spark, sql) != parsed(spark, again)]

    assert wrong == []
    assert len(found) > 50
