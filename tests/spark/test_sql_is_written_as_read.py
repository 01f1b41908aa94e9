"""SQL that the compiler reads and writes means to Spark what it meant.

What it is: the examples of Spark's own documentation of its functions, run as they are and as the compiler's dialect
writes them again.
Invariants: the same rows, of the same types. By default the functions that need care and a sample of the others;
``HEADWATER_THOROUGH=10`` runs them all.
Not here: what the compiler makes of a query (``tests/compiler``).
Read next: ``src/headwater/views/compiler/dialect.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import sqlglot

from headwater.errors import InvalidView
from headwater.views.compiler.dialect import AS_WRITTEN, SparkAsWritten
from headwater.views.compiler.functions import KNOWN, TABLE_FUNCTIONS, check_functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EACH = max(1, 40 // int(os.environ.get("HEADWATER_THOROUGH", "1")))
EXAMPLE = re.compile(r"^\s*> (SELECT.*?);\s*$", re.MULTILINE | re.DOTALL)
# What the parser itself does not read. A view that says these is refused as unreadable, not computed wrongly.
UNREADABLE = re.compile(r"\bX '|>>>|\bTIME'|VALUES '")


def examples(spark: SparkSession) -> Iterator[str]:
    """The examples of the functions that a view may call."""
    names = sorted(KNOWN - TABLE_FUNCTIONS)
    for name in [*names[::EACH], *(name for name in names if name.upper() in AS_WRITTEN)]:
        text = "\n".join(row[0] for row in spark.sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect())
        for sql in EXAMPLE.findall(text):
            if not UNREADABLE.search(sql) and may_be_called(sql):
                yield sql


def may_be_called(sql: str) -> bool:
    try:
        check_functions(sqlglot.parse_one(sql, read=SparkAsWritten), sql)
    except InvalidView:
        return False
    return True


def answer(spark: SparkSession, sql: str) -> object:
    try:
        found = spark.sql(sql)
        return [field.dataType for field in found.schema], [repr(tuple(row)) for row in found.collect()]
    except Exception as error:  # some examples show an error
        return type(error)


def test_what_is_written_gives_the_rows_and_types_of_what_was_read(spark: SparkSession) -> None:
    compared, wrong = 0, []
    for sql in examples(spark):
        written = sqlglot.parse_one(sql, read=SparkAsWritten).sql("spark")
        if re.sub(r"\s+", "", written).lower() != re.sub(r"\s+", "", sql).lower():
            compared += 1
            expected = answer(spark, sql)
            if answer(spark, written) != expected and not isinstance(expected, type):
                wrong.append((sql, written))

    assert wrong == []
    assert compared > 10
