"""What Spark refuses is told as ours, with what to do.

What it is: queries that read well and cannot be computed, and the hints that go with Spark's conditions.
Invariants: the hint says what to change; no place in a text that the user did not write is named.
Not here: failures in the middle of a tick (``test_views_replay.py``).
Read next: ``views/spark/spark_errors.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater.errors import ViewFailed
from tests.spark.batch_failures import failure_of

USERS = "id BIGINT, country STRING, born DATE"


@pytest.mark.parametrize(
    ("sql", "condition", "hint"),
    [
        ("SELECT id FROM users WHERE born = 3", "DATATYPE_MISMATCH", "a CAST to the right type"),
        ("SELECT id FROM users WHERE country", "DATATYPE_MISMATCH", "a CAST to the right type"),
        (
            "SELECT id AS x FROM users UNION ALL SELECT born AS x FROM users",
            "INCOMPATIBLE_COLUMN_TYPE",
            "CAST the column of one side",
        ),
    ],
)
def test_a_clash_of_types_is_mended_in_the_query(
    spark: SparkSession, tmp_path: Path, sql: str, condition: str, hint: str
) -> None:
    with hw.App("shop", home=tmp_path) as app:
        app.table("users", USERS, key="id")
        app.view("clash", sql)

        with pytest.raises(ViewFailed) as caught:
            app.tick()

    assert caught.value.data["condition"].split(".")[0] == condition
    assert failure_of(spark, {"users": (USERS, [])}, {"clash": sql}, "clash") == condition
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("Change the query: ")
    assert hint in caught.value.hint
    assert "pos" not in str(caught.value.detail).split()
