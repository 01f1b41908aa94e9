"""The dialect: Spark's SQL, read so that it is written again as it was.

What it is: sqlglot's Spark dialect, less what it does to some functions. It is made for translating between databases:
it turns ``to_char(a, '9.99')`` into a cast, ``percentile_cont`` into an approximation, forgets the third argument of
``max_by`` and ``instr`` and the second of ``first``, and gives ``listagg`` a comma. Here such calls stay what they are.
Invariants: for every function of Spark, what is read by this dialect and written as Spark's gives the same rows and
types (``tests/spark/test_sql_is_written_as_read.py`` runs the examples of Spark's own documentation both ways).
Not here: which functions a view may call (``functions.py``).
Read next: ``parse.py``.
"""

from __future__ import annotations

from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

# Found by writing every function of Spark with up to five arguments, and by running Spark's own examples.
AS_WRITTEN = frozenset(
    {
        "APPROX_PERCENTILE",
        "CURRENT_CATALOG",
        "DATE_SUB",
        "DATE_TRUNC",
        "FIRST",
        "INSTR",
        "LAST",
        "LISTAGG",
        "MAX_BY",
        "MIN_BY",
        "PARSE_JSON",
        "PERCENTILE",
        "PERCENTILE_APPROX",
        "PERCENTILE_CONT",
        "PERCENTILE_DISC",
        "STRING_AGG",
        "TO_CHAR",
        "TO_VARCHAR",
        "TRUNC",
        "TRY_PARSE_JSON",
        "UNIX_DATE",
    }
)


class SparkAsWritten(Spark):
    """For ``sqlglot.parse_one(sql, read=SparkAsWritten)``; write with ``.sql("spark")``.

    >>> import sqlglot
    >>> sqlglot.parse_one("SELECT to_char(a, '9.99'), max_by(a, b, 2)", read=SparkAsWritten).sql("spark")
    "SELECT TO_CHAR(a, '9.99'), MAX_BY(a, b, 2)"
    """

    class Parser(SparkParser):
        FUNCTIONS = {name: made for name, made in SparkParser.FUNCTIONS.items() if name not in AS_WRITTEN}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: made for name, made in SparkParser.FUNCTION_PARSERS.items() if name not in AS_WRITTEN
        }
