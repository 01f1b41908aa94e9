"""The compiler's list of functions is that of the Spark that is installed.

What it is: one comparison; a new Spark may bring new functions, and each must be put where it belongs.
Invariants: none missing, none too many.
Not here: what is refused (``tests/compiler/test_functions.py``).
Read next: ``src/headwater/views/compiler/sql/builtin_functions.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.views.compiler.sql.builtin_functions import KNOWN
from headwater.views.serving.query_admission import REFUSED_FUNCTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_names_are_those_of_the_installed_spark(spark: SparkSession) -> None:
    names = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}

    words = {name for name in names if name.replace("_", "a").isalnum()}
    assert sorted(words - KNOWN) == []
    assert sorted(KNOWN - words) == []
    assert sorted(REFUSED_FUNCTIONS - KNOWN) == []  # of a new function of Spark, say there whether queries may call it
