"""Which plans there are reaches another process, and nothing else does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from headwater.views.spark.plans.plan_cache import CachedQuery, PlanKey
from headwater.views.spark.plans.plan_record import PlanRecord

LEAVES = (("_a", pa.schema([("odd `name`", pa.list_(pa.string())), ("at", pa.timestamp("us", tz="UTC"))])),)
KEYS = [
    PlanKey(CachedQuery("SELECT 'O''Brien' FROM _a", (("_s", "SELECT 1"),)), LEAVES, few=True, compiled=False),
    PlanKey(CachedQuery("SELECT 2"), (), few=False, compiled=True),
    PlanKey(CachedQuery("SELECT 2"), (), few=False, compiled=True, built=("_a",), place=1),
]


def cache(made: int, keys: list[PlanKey]) -> Any:
    return SimpleNamespace(made=made, kept_keys=lambda: keys)


def test_keys_are_read_as_they_were_written_and_only_when_they_are_new(tmp_path: Path) -> None:
    writer, reader = (PlanRecord(tmp_path / "plans.json", "4.3.0") for _ in range(2))

    assert reader.read() == {}
    writer.save({"v": cache(1, KEYS[:1])})
    assert [reader.read(), reader.read()] == [{"v": KEYS[:1]}, {}]
    writer.save({"v": cache(1, [])})  # no plan was made: nothing is written
    assert reader.read() == {}
    writer.save({"v": cache(3, KEYS), "w": cache(0, [])})
    assert reader.read() == {"v": KEYS, "w": []}


def test_a_damaged_file_another_spark_and_a_folder_that_is_not_there_are_as_good_as_none(tmp_path: Path) -> None:
    PlanRecord(tmp_path / "none" / "plans.json", "4.3.0").save({"v": cache(1, KEYS)})
    PlanRecord(tmp_path / "plans.json", "4.3.0").save({"v": cache(1, KEYS)})
    whole = (tmp_path / "plans.json").read_text()

    assert PlanRecord(tmp_path / "plans.json", "4.3.1").read() == {}
    for damaged in (whole[:-9], whole.replace("leaves", "leave"), "[]", '{"version": "1 4.3.0", "views": [1]}'):
        (tmp_path / "plans.json").write_text(damaged)
        assert PlanRecord(tmp_path / "plans.json", "4.3.0").read() == {}
