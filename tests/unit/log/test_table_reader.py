"""A table is read from the log: the latest row of each key, and rows of a bag as often as they are there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import Misuse, RowRefused
from headwater.log import table_reader
from headwater.log.home import Log
from headwater.log.maintenance.sealing import seal_partition
from headwater.log.table import declare_table

CHANGES = st.lists(
    st.tuples(st.sampled_from(["put", "put", "delete"]), st.integers(0, 5), st.sampled_from([None, "DE", "FR"])),
    max_size=40,
)


@given(CHANGES, st.integers(1, 3), st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_table_with_a_key_is_a_dict(changes: list[tuple[str, int, Any]], partitions: int, spare: bool) -> None:
    expected: dict[int, Any] = {}
    with TemporaryDirectory() as home, Log(home) as log, pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_reader, "SPARE_ROWS", 65_536 if spare else 0)
        users = declare_table(log, "users", "id BIGINT, country STRING", key="id", partitions=partitions)

        for what, number, country in changes:
            if what == "put":
                users.upsert([{"id": number, "country": country}])
                expected[number] = country
            else:
                users.delete([{"id": number}])
                expected.pop(number, None)

        assert {row["id"]: row["country"] for row in users.rows()} == expected
        assert len(list(users.rows())) == len(expected)
        for number in range(6):
            assert users.get(number) == ([{"id": number, "country": expected[number]}] if number in expected else [])
        german = sorted(number for number, country in expected.items() if country is None)
        assert sorted(row["id"] for row in users.get(country=None)) == german


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, -0.0, float("nan"), None, 1.5])), max_size=40))
@settings(max_examples=25, deadline=None)
def test_a_bag_has_each_row_as_often_as_it_was_put_and_not_taken(changes: list[tuple[bool, Any]]) -> None:
    expected: Counter[str] = Counter()
    with TemporaryDirectory() as home, Log(home) as log, pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_reader, "SPARE_ROWS", 0)
        bag = declare_table(log, "bag", "x DOUBLE")

        for put, value in changes:
            name = repr(value + 0.0) if value is not None else "None"
            if put:
                bag.insert([{"x": value}])
                expected[name] += 1
            elif expected[name]:
                bag.delete([{"x": value}])
                expected[name] -= 1

        found = Counter(repr(row["x"] + 0.0) if row["x"] is not None else "None" for row in bag.rows())
        assert found == +expected
        assert len(bag.get(x=-0.0)) == expected["0.0"]


def test_rows_of_sealed_segments_and_of_older_schemas_are_read_with_the_others(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        users = declare_table(log, "users", "id BIGINT, country STRING", key="id")
        users.upsert([{"id": number, "country": "DE"} for number in range(5)])
        users.topic.partition(0).roll()
        seal_partition(users.topic, 0)
        wider = declare_table(log, "users", "id BIGINT, country STRING, name STRING", key="id")
        wider.upsert([{"id": 3, "country": "FR", "name": "Zoë"}])
        wider.delete([{"id": 4}])

        table = users.to_arrow()

        assert table.schema == wider.schema
        assert table.to_pylist() == [
            *({"id": number, "country": "DE", "name": None} for number in range(3)),
            {"id": 3, "country": "FR", "name": "Zoë"},
        ]


def test_an_empty_table_has_its_columns(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        users = declare_table(log, "users", "id BIGINT, at TIMESTAMP", key="id", partitions=2)
        basket = declare_table(log, "basket", "fruit STRING")

        assert users.to_arrow().schema == users.schema
        assert (users.to_arrow().num_rows, list(basket.rows()), basket.to_arrow().schema.names) == (0, [], ["fruit"])
        assert users.schema.field("at").type == pa.timestamp("us", "UTC")
        assert list(users.to_pandas().columns) == ["id", "at"]


def test_what_cannot_be_asked_is_told(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        users = declare_table(log, "users", "id BIGINT, country STRING", key="id")
        basket = declare_table(log, "basket", "fruit STRING")

        with pytest.raises(Misuse, match='table "users" has the key id, and 2 values were given'):
            users.get(1, 2)
        with pytest.raises(Misuse, match='table "basket" has no key, and 1 value was given'):
            basket.get("apple")
        with pytest.raises(Misuse, match='table "users" has no column "countri"') as refused:
            users.get(countri="DE")
        assert refused.value.hint == 'Did you mean "country"?'
        with pytest.raises(Misuse, match="get needs a key or columns"):
            users.get()
        with pytest.raises(RowRefused):
            users.get("one")
