"""Changes: the same whether they are here or in files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import Misuse
from headwater.views import thresholds
from headwater.views.state.delta import Delta

TABLE = pa.table({"id": [1, 2, 1], "_weight": pa.array([1, 1, -1], pa.int64())})


def written(folder: Path, *tables: pa.Table) -> Delta:
    paths = [folder / f"{number}.parquet" for number in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path)
    return Delta.written(paths, tables[0].schema)


def test_the_weight_becomes_the_last_column():
    changes = Delta.local(pa.table({"_weight": [1], "id": [7]}))

    assert changes.schema.names == ["id", "_weight"]
    assert changes.table is not None
    assert changes.table.schema == changes.schema


def test_files_tell_by_themselves_what_is_in_them(tmp_path: Path):
    changes = written(tmp_path, TABLE.slice(0, 2), TABLE.slice(2))

    assert (changes.rows, changes.has_negative) == (3, True)
    assert changes.read().to_pylist() == TABLE.to_pylist()


def test_files_without_negative_weights_are_known_to_be_so(tmp_path: Path):
    assert not written(tmp_path, TABLE.slice(0, 2)).has_negative


def test_files_without_statistics_may_hold_anything(tmp_path: Path):
    path = tmp_path / "bare.parquet"
    pq.write_table(TABLE.slice(0, 2), path, write_statistics=False)

    assert Delta.written([path], TABLE.schema).has_negative


def test_files_without_rows_are_no_changes(tmp_path: Path):
    changes = written(tmp_path, TABLE.slice(0, 0))

    assert (changes.rows, changes.files) == (0, ())
    assert changes.table is not None


def test_keys_are_distinct_here_and_in_files(tmp_path: Path):
    for changes in (Delta.local(TABLE), written(tmp_path, TABLE)):
        keys = changes.keys(["id"])

        assert keys is not None
        assert keys.to_pylist() == [{"id": 1}, {"id": 2}]


def test_too_many_keys_are_not_fetched_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(thresholds, "LOOKUP_KEYS_MAX", 2)

    assert written(tmp_path, TABLE).keys(["id"]) is None
    assert Delta.local(TABLE).keys(["id"]) is not None


def test_local_changes_cannot_be_moved():
    with pytest.raises(Misuse, match="no files"):
        Delta.local(TABLE).moved([Path("elsewhere")])


def test_few_marked_rows_are_read_from_files_and_many_are_left_there(tmp_path: Path):
    marks = pa.array([True, False, None, True])
    rows = pa.table({"id": [1, 2, 3, 4], "_shown": marks, "_weight": pa.array([1, 1, 1, -1], pa.int64())})
    changes = written(tmp_path, rows.slice(0, 1), rows.slice(1))

    found = changes.few_marked("_shown", ["id", "_weight"], most=2)

    assert found is not None
    assert found.to_pylist() == [{"id": 1, "_weight": 1}, {"id": 4, "_weight": -1}]
    assert changes.few_marked("_shown", ["id"], most=1) is None
    assert changes.few_marked("_other", ["id"], most=9) is None
    assert Delta.local(rows).few_marked("_shown", ["id"], most=9) is None
