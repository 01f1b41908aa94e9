"""A pattern tried over recorded rows: what ``headwater pattern test`` shows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater.errors import HeadwaterError, InvalidDeclaration
from headwater.views.lifecycle.pattern_trial import try_pattern

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
QUERY = """
    SELECT n FROM (SELECT * FROM payments WHERE amount <> 7) MATCH_RECOGNIZE (
      PARTITION BY card ORDER BY at MEASURES count(small.*) AS n
      PATTERN (small{2,} large) WITHIN INTERVAL 10 MINUTES DEFINE small AS amount < 5, large AS amount > 100)"""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[hw.Log]:
    log = hw.Log(tmp_path / "home")
    payments = log.topic("payments", "card STRING, amount INT, at TIMESTAMP", event_time="at")
    rows = [("x", 1, 0), ("x", 500, 3), ("y", 50, 0), ("x", 2, 1), ("x", 7, 2), ("y", 1, 3)]
    payments.append([{"card": c, "amount": a, "at": BEGIN + dt.timedelta(minutes=m)} for c, a, m in rows])
    yield log
    log.close()


def test_every_row_is_shown_with_its_match_and_its_variable(log: hw.Log, spark: SparkSession, tmp_path: Path) -> None:
    rows = try_pattern(log, QUERY, spark)

    shown = [(row["card"], row["amount"], row["match__"], row["variable__"]) for row in rows]
    assert shown == [
        ("x", 1, 1, "small"),
        ("x", 2, 1, "small"),
        ("x", 500, 1, "large"),
        ("y", 50, None, None),
        ("y", 1, None, None),
    ]
    assert [row["amount"] for row in try_pattern(log, QUERY, spark, partition="y")] == [50, 1]
    assert not (tmp_path / "home" / "views").exists()


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT 1", "has no MATCH_RECOGNIZE"),
        (QUERY.replace("(small{2,} large)", "(small [^large])"), "absence or exclusion"),
        (QUERY.replace("FROM payments", "FROM nothing"), "nothing"),
    ],
)
def test_what_cannot_be_tried_is_said(log: hw.Log, spark: SparkSession, sql: str, said: str) -> None:
    with pytest.raises((InvalidDeclaration, HeadwaterError), match=said):
        try_pattern(log, sql, spark)
