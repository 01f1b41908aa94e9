"""The file of an index of queries: what is damaged, or of others, is not used."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headwater.log.schema.ddl import parse_ddl
from headwater.searches import index_file
from headwater.searches.index_file import IndexFile, of_this_build
from headwater.searches.query_index import QueryIndex, StoredSearch
from headwater.searches.search_columns import SearchColumns

SCHEMA = parse_ddl("title STRING, cost DECIMAL(9,2), count BIGINT")
COLUMNS = SearchColumns(SCHEMA, ["title"])
SEARCHES = [
    StoredSearch("s1", 'river* OR "lake district"', 5, False, "ada", ("water",)),
    StoredSearch("s2", "cost:12.50 AND count:[3 TO 99999999999999999999}"),
    StoredSearch("broken", "(river"),
    StoredSearch("contradiction", "river AND NOT river"),
]


def kept(folder: Path, searches: list[StoredSearch] = SEARCHES) -> IndexFile:
    file, index = IndexFile(folder / "searches" / "watch.index"), QueryIndex(COLUMNS)
    index.replace_all(searches)
    file.write(index.packed())
    return file


def found(index: QueryIndex, **row: object) -> list[str]:
    matches = index.match(pa.Table.from_pylist([row], SCHEMA))
    return [index.search(int(slot)).id for slot in matches.slots]


def test_what_is_read_of_the_file_need_not_be_read_of_the_queries(tmp_path: Path) -> None:
    index = QueryIndex.read(kept(tmp_path).read(COLUMNS), COLUMNS)

    changed = index.replace_all(SEARCHES)

    assert changed == 1  # the broken one
    assert list(index.searches()) == [*SEARCHES[:2], SEARCHES[3], SEARCHES[2]]
    assert index.chosen("ada", ["water"]) == {"s1"}
    assert found(index, title="A lake district", cost=None, count=1) == ["s1"]
    assert found(index, title="x", cost=pa.scalar("12.5").cast(pa.decimal128(9, 2)).as_py(), count=3) == ["s2"]
    assert index.get("s1") == SEARCHES[0]


def test_searches_that_changed_since_the_file_was_written_are_as_they_are_now(tmp_path: Path) -> None:
    file = kept(tmp_path, [StoredSearch("s1", "lake"), StoredSearch("gone", "lake"), StoredSearch("same", "river")])

    index = QueryIndex.read(file.read(COLUMNS), COLUMNS)
    changed = index.replace_all([StoredSearch("s1", "river"), StoredSearch("same", "river"), StoredSearch("new", "x")])

    assert changed == 3
    assert found(index, title="river") == ["same", "s1"]
    assert found(index, title="lake") == []
    assert len(index.dictionary) == 2


def test_a_file_with_any_byte_flipped_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = kept(tmp_path)
    whole = file.path.read_bytes()
    for place in range(len(whole)):
        file.path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        caplog.clear()

        assert file.read(COLUMNS) is None, place

        assert [record.message for record in caplog.records if "made anew" in record.message] != []
    for length in (0, 5, 30, 50, len(whole) - 1):
        file.path.write_bytes(whole[:length])
        assert file.read(COLUMNS) is None


def test_a_file_of_other_code_or_other_columns_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = kept(tmp_path)
    others = [
        SearchColumns(SCHEMA, ["title"], tokenizer="en_stem"),
        SearchColumns(SCHEMA, []),
        SearchColumns(SCHEMA.append(pa.field("more", pa.int64())), ["title"]),
    ]

    assert [file.read(columns) for columns in others] == [None] * 3
    assert "written by another version, or for other columns" in caplog.text
    assert file.read(COLUMNS) is not None
    packed = file.path.read_bytes()
    assert of_this_build(packed, COLUMNS) is not None
    monkeypatch.setattr(index_file, "_code", lambda: "another")
    assert file.read(COLUMNS) is None
    assert of_this_build(packed, COLUMNS) is None  # as on executors with another Python


def test_a_disk_that_refuses_the_file_is_told_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "searches").write_text("a file in the place of the folder")

    file = kept(tmp_path)

    assert "is not kept in" in caplog.text
    assert QueryIndex.read(file.read(COLUMNS), COLUMNS).replace_all(SEARCHES) == 4
