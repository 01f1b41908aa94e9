"""Failures of a view: Spark's errors, told as ours.

What it is: ``in_view`` maps what Spark raises while a view is analysed or computed to one error that names the view,
the user's line and Spark's condition.
Invariants: no Java stack reaches a user; Spark's error condition (DIVIDE_BY_ZERO, …) is kept in ``data``.
Not here: the compiler's refusals (``views/compiler/sql/refusal.py``).
Read next: ``docs/errors.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.errors import HeadwaterError, InvalidDeclaration, ViewFailed
from headwater.views.spark.jvm import lost_contact
from headwater.views.spark.worker_errors import told_by_worker
from headwater.views.view_declaration import ViewDeclaration

ADVICE = {
    "DIVIDE_BY_ZERO": "Use try_divide, or nullif(divisor, 0).",
    "ARITHMETIC_OVERFLOW": "CAST to a wider type, or use try_add, try_multiply, try_sum.",
    "CAST_INVALID_INPUT": "Use try_cast, or correct the rows.",
    "CAST_OVERFLOW": "CAST to a wider type, or use try_cast.",
    "NUMERIC_VALUE_OUT_OF_RANGE": "CAST to a DECIMAL with more digits.",
    "SCALAR_SUBQUERY_TOO_MANY_ROWS": "Aggregate inside the subquery: max(…), or LIMIT with ORDER BY.",
    "INVALID_ARRAY_INDEX": "Use try_element_at or get.",
    "CANNOT_PARSE_TIMESTAMP": "Use try_to_timestamp, or correct the rows.",
    "DATATYPE_MISMATCH": "Change the query: put a CAST to the right type around what does not fit.",
    "INCOMPATIBLE_COLUMN_TYPE": "Change the query: CAST the column of one side to the type of the other.",
}


@contextmanager
def in_view(declared: ViewDeclaration) -> Iterator[None]:
    """Name the view in every error of the block."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except InvalidDeclaration as error:  # of a column, whose type is known without the view's name
        error.message = f"{declared.title}: {error.message}"
        raise
    except HeadwaterError:
        raise
    except (PySparkException, Py4JError) as error:
        if lost_contact(error):  # that is nothing of the view's
            raise
        told = told_by_worker(error)
        if told is not None:
            raise told from error
        raise mapped(declared, error) from error


def row_failures() -> tuple[type[Exception], ...]:
    """What Spark raises when an expression fails over a row; pyspark is imported no sooner than it is needed."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JJavaError


def mapped(declared: ViewDeclaration, error: Exception) -> ViewFailed:
    """Our error for one of Spark's."""
    condition = getattr(error, "getCondition", lambda: None)() or ""
    text = str(error)
    if not condition:
        found = re.search(r"\[([A-Z][A-Z0-9_.]+)\]", text)
        condition = found.group(1) if found else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    # Py4J's own first line names a call of ours and no reason; Java's reason stands in the next one.
    first = next((line for line in lines if not line.startswith(("An error occurred while calling", "at "))), lines[0])
    if condition and f"[{condition}" in text:  # behind Java's own words, the sentence for people
        first = text[text.index(f"[{condition}") :].splitlines()[0]
    first = re.sub(r"; line \d+ pos \d+;?$", "", first.strip())  # a place in our text, not in the user's
    name = condition.split(".")[0]
    return ViewFailed(
        f"{declared.title} cannot be computed",
        detail=first[:500],
        hint=ADVICE.get(name, "Change the query or the rows. The tick was not committed, and every view is as before.")
        + ("" if declared.on_error == "pause" else ' To let other views go on meanwhile: on_error="pause".'),
        view=declared.name,
        location=declared.location,
        condition=condition,
    )
