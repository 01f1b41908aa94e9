"""Topics as relations: what the log tells of a table, as it is and as it was. No Spark."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from headwater.log.home import Log
from headwater.log.schema.event_metadata import Metadata
from headwater.log.table import Table, declare_table
from headwater.views.tick import inputs
from headwater.views.tick.inputs import InputRelation, inputs_of

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def filled(log: Log, **settings: Any) -> Table:
    """Three users in two partitions: the first moves twice, the second is deleted, the third stays."""
    schema = "id BIGINT, country STRING, since TIMESTAMP"
    users = declare_table(log, "users", schema, key="id", event_time="since", partitions=2, **settings)
    for day, (user, country) in enumerate([(1, "DE"), (2, "DE"), (1, "FR"), (3, "IT"), (1, "AT")]):
        users.upsert([{"id": user, "country": country, "since": START + dt.timedelta(days=day)}])
    users.delete([{"id": 2, "since": START}])
    return users


def rows(base: InputRelation, stop: dict[int, int]) -> list[dict[str, Any]]:
    batches = list(base.rows_up_to(stop))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


@pytest.mark.parametrize("chunk", [1, 2, 1 << 20])
def test_a_table_as_it_is_has_the_latest_row_of_each_key(log: Log, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(inputs, "CHUNK_ROWS", chunk)
    users = filled(log)

    found = rows(InputRelation(users.topic), users.topic.end_offsets())

    assert sorted((row["id"], row["country"], row["_weight"]) for row in found) == [(1, "AT", 1), (3, "IT", 1)]


@pytest.mark.parametrize("chunk", [1, 2, 1 << 20])
def test_a_tables_versions_are_all_its_records(log: Log, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(inputs, "CHUNK_ROWS", chunk)
    users = filled(log)
    base = inputs_of(log)["users$versions"]

    found = rows(base, users.topic.end_offsets())

    assert sorted((row["id"], row["country"] or "", row["_deleted"], row["_weight"]) for row in found) == [
        (1, "AT", False, 1),
        (1, "DE", False, 1),
        (1, "FR", False, 1),
        (2, "", True, 1),
        (2, "DE", False, 1),
        (3, "IT", False, 1),
    ]
    assert [column.name for column in base.relation.columns] == base.schema.names
    changes = base.changes({0: 0, 1: 0}, users.topic.end_offsets(), None)
    assert changes.table is not None
    assert changes.table.num_rows == len(found)


def test_nothing_is_told_of_a_range_that_is_empty(log: Log) -> None:
    users = filled(log)

    assert rows(InputRelation(users.topic), {0: 0, 1: 0}) == []
    assert rows(InputRelation(users.topic, versions=True), {0: 0, 1: 0}) == []


def test_a_table_without_an_event_time_and_a_topic_without_a_key_have_no_versions(log: Log) -> None:
    declare_table(log, "plain", "id BIGINT", key="id")
    log.topic("clicks", "at TIMESTAMP", event_time="at")

    assert not [name for name in inputs_of(log) if name.endswith("$versions")]


def test_all_but_a_table_without_a_key_have_their_metadata(log: Log) -> None:
    users = declare_table(log, "users", "id BIGINT", key="id")
    log.topic("clicks", "x BIGINT")
    declare_table(log, "bag", "x BIGINT")
    users.upsert([{"id": 1}, {"id": 2}], metadata=Metadata(actor="anna"))
    users.upsert([{"id": 1}], metadata=Metadata(actor="bob"))

    found = inputs_of(log)

    assert sorted(name for name in found if "$" in name) == ["clicks$metadata", "users$metadata"]
    told = rows(found["users$metadata"], {0: 3})
    assert [(row["id"], row["_offset"], row["_actor"]) for row in told] == [(2, 1, "anna"), (1, 2, "bob")]
    assert [column.name for column in found["users$metadata"].relation.columns] == found["users$metadata"].schema.names


@pytest.mark.parametrize("compact", [False, True])
def test_compaction_forgets_the_past_of_a_table_and_nothing_else(log: Log, compact: bool) -> None:
    filled(log, compact=compact)
    found = inputs_of(log)

    assert found["users$versions"].lost_rows == compact
    assert not found["users"].lost_rows
    assert not found["users$versions"].is_log_backed
