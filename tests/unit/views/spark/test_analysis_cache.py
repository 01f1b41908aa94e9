"""What Spark's analyser said is found again by everything that it depends on, and by nothing less."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headwater.views.spark.analysis_cache import AnalysisCache

TABLES = {"t": pa.schema([("a", pa.int32())])}
ANSWER = pa.schema([("n", pa.int64()), ("odd `name`", pa.list_(pa.string()))])


def test_an_answer_outlives_the_process(tmp_path: Path) -> None:
    first = AnalysisCache(tmp_path / "analysis.json", "4.3.0")
    first.keep(first.key("SELECT 1", TABLES), ANSWER, "it differs")
    first.save()

    again = AnalysisCache(tmp_path / "analysis.json", "4.3.0")

    assert again.find(again.key("SELECT 1", TABLES)) == (ANSWER, "it differs")


def test_another_text_table_or_spark_is_another_question(tmp_path: Path) -> None:
    cache = AnalysisCache(tmp_path / "analysis.json", "4.3.0")
    cache.keep(cache.key("SELECT 1", TABLES), ANSWER)
    cache.save()

    wider = {"t": pa.schema([("a", pa.int64())])}
    newer = AnalysisCache(tmp_path / "analysis.json", "4.3.1")

    assert cache.find(cache.key("SELECT 2", TABLES)) is None
    assert cache.find(cache.key("SELECT 1", wider)) is None
    assert newer.find(newer.key("SELECT 1", TABLES)) is None


def test_a_damaged_file_and_one_that_cannot_be_written_are_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "analysis.json").write_text('{"answers": ')
    (tmp_path / "file").write_text("")

    damaged = AnalysisCache(tmp_path / "analysis.json", "4.3.0")
    nowhere = AnalysisCache(tmp_path / "file" / "analysis.json", "4.3.0")
    nowhere.keep(nowhere.key("SELECT 1", TABLES), ANSWER)
    nowhere.save()

    assert damaged.find(damaged.key("SELECT 1", TABLES)) is None


def test_answers_that_are_not_asked_for_any_more_are_let_go(tmp_path: Path) -> None:
    first = AnalysisCache(tmp_path / "analysis.json", "4.3.0")
    first.keep(first.key("SELECT 1", TABLES), ANSWER)
    first.save()

    AnalysisCache(tmp_path / "analysis.json", "4.3.0").save()

    third = AnalysisCache(tmp_path / "analysis.json", "4.3.0")
    assert third.find(third.key("SELECT 1", TABLES)) is None
