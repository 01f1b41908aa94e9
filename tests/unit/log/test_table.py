"""Tables with a key, and what a declaration may and may not say."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import DeclarationConflict, InvalidDeclaration, Misuse, RowRefused, UnknownTopic
from headwater.log.home import Log
from headwater.log.maintenance.sealing import seal_partition
from headwater.log.table import Table, declare_table, open_table
from tests.crash.ledger import QuietLog

USERS = "id BIGINT, country STRING"


def events(table: Table) -> list[dict[str, Any]]:
    return list(table.topic.rows(columns=["id", "country", "_deleted"]))


def test_upsert_and_delete_are_records_of_the_topic(log: Log) -> None:
    users = declare_table(log, "users", USERS, key="id")

    users.upsert([{"id": 1, "country": "DE"}])
    users.upsert(pa.table({"id": [1], "country": ["FR"]}))
    token = users.delete([{"id": 1}])

    assert events(users) == [
        {"id": 1, "country": "DE", "_deleted": False},
        {"id": 1, "country": "FR", "_deleted": False},
        {"id": 1, "country": None, "_deleted": True},
    ]
    assert str(token) == "users:0=3"


@pytest.mark.parametrize(
    "given",
    [{"id": 1}, [{"id": 1, "country": "DE"}], pa.table({"id": [1]}), pa.table({"country": ["DE"], "id": [1]})],
    ids=["one dict", "a whole row", "Arrow keys", "Arrow rows"],
)
def test_delete_takes_keys_or_whole_rows(log: Log, given: Any) -> None:
    users = declare_table(log, "users", USERS, key="id")

    users.delete(given)

    assert events(users) == [{"id": 1, "country": None, "_deleted": True}]


def test_a_delete_keeps_the_event_time_that_it_gives(log: Log) -> None:
    users = declare_table(log, "users", f"{USERS}, since TIMESTAMP", key="id", event_time="since")
    then = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)

    users.upsert([{"id": 1, "country": "DE", "since": then}])
    users.delete([{"id": 1, "country": "DE", "since": then + dt.timedelta(days=1)}, {"id": 2}])
    users.delete(pa.table({"id": [3]}))
    users.topic.delete([{"id": 4, "since": then + dt.timedelta(days=2)}, {"id": 5}])

    assert [(row["id"], row["country"], row["since"], row["_deleted"]) for row in records(users)] == [
        (1, "DE", then, False),
        (1, None, then + dt.timedelta(days=1), True),
        (2, None, None, True),
        (3, None, None, True),
        (4, None, then + dt.timedelta(days=2), True),
        (5, None, None, True),
    ]


def records(table: Table) -> list[dict[str, Any]]:
    return list(table.topic.rows(columns=["id", "country", "since", "_deleted"]))


def test_a_delete_can_be_found_by_its_event_time_and_stays_so_when_sealed(tmp_path: Path) -> None:
    with QuietLog(tmp_path / "home") as log:
        users = declare_table(log, "users", f"{USERS}, since TIMESTAMP", key="id", event_time="since")
        then = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
        users.upsert([{"id": 1, "country": "DE", "since": then}])
        users.delete([{"id": 1}])
        users.delete([{"id": 1, "since": then + dt.timedelta(days=1)}])

        found = users.topic.offsets_at(then + dt.timedelta(hours=1))
        users.topic.partition(0).roll()
        assert seal_partition(users.topic, 0)

        assert found == {0: 2}
        assert users.topic.offsets_at(then + dt.timedelta(hours=1)) == {0: 2}
        assert log.check().ok


def test_a_time_of_a_delete_must_be_a_time(log: Log) -> None:
    users = declare_table(log, "users", f"{USERS}, since TIMESTAMP", key="id", event_time="since")

    with pytest.raises(RowRefused) as caught:
        users.delete([{"id": 1, "since": "yesterday"}])

    assert caught.value.data["column"] == "since"
    assert users.topic.end_offsets() == {0: 0}


def test_a_table_says_what_it_is(log: Log) -> None:
    users = declare_table(log, "users", USERS, key="id", partitions=2)

    assert (users.name, users.key, users.is_multiset) == ("users", ("id",), False)
    assert users.schema.names == ["id", "country"]
    assert users.topic is log.get_topic("users")
    assert repr(users) == "Table(users, id BIGINT NOT NULL, country STRING, key=id)"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda users: users.insert([{"id": 1}, {"id": 1}]), "have the same key"),
        (lambda users: users.upsert([{"country": "DE"}]), 'column "id"'),
        (lambda users: users.upsert([{"id": None}]), "must not be null"),
        (lambda users: users.delete([{"country": "DE"}]), 'column "id"'),
        (lambda users: users.delete([{"id": 1, "city": "Ulm"}]), "unknown column 'city'"),
        (lambda users: users.delete([1]), "row 0"),
    ],
)
def test_a_wrong_call_is_told_what_to_do_and_writes_nothing(log: Log, call: Any, words: str) -> None:
    users = declare_table(log, "users", USERS, key="id")

    with pytest.raises(Misuse) as refused:
        call(users)

    assert words in str(refused.value)
    assert users.topic.end_offsets() == {0: 0}


def test_a_table_is_opened_again_by_its_name_alone(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        declare_table(log, "users", USERS, key="id")
        declare_table(log, "basket", "fruit STRING")

    with Log(tmp_path) as log:
        users, basket = open_table(log, "users"), open_table(log, "basket")

        assert (users.key, users.is_multiset) == (("id",), False)
        assert (basket.key, basket.is_multiset, basket.schema.names) == ((), True, ["fruit"])
        with pytest.raises(UnknownTopic):
            open_table(log, "user")


def test_a_topic_with_a_key_is_a_table(log: Log) -> None:
    log.topic("users", USERS, key="id").append([{"id": 1, "country": "DE"}])

    users = declare_table(log, "users", USERS, key="id")
    users.delete([{"id": 1}])

    assert len(events(users)) == 2


def test_a_topic_without_a_key_is_no_table(log: Log) -> None:
    log.topic("clicks", "url STRING")

    with pytest.raises(DeclarationConflict, match="is a topic without a key, not a table"):
        open_table(log, "clicks")
    with pytest.raises(DeclarationConflict, match="cannot become a table without a key"):
        declare_table(log, "clicks", "url STRING")
    with pytest.raises(DeclarationConflict, match="key of topic"):
        declare_table(log, "clicks", "url STRING", key="url")


def test_a_table_with_a_key_and_one_without_do_not_become_each_other(log: Log) -> None:
    declare_table(log, "users", USERS, key="id")
    declare_table(log, "basket", "fruit STRING")

    with pytest.raises(DeclarationConflict, match="has the key 'id', and cannot become a table without a key"):
        declare_table(log, "users", USERS)
    with pytest.raises(DeclarationConflict, match="is a table without a key and cannot be declared as anything else"):
        declare_table(log, "basket", "fruit STRING", key="fruit")
    with pytest.raises(DeclarationConflict, match="is a table without a key and cannot be declared as anything else"):
        log.topic("basket", "fruit STRING")


def test_weights_are_not_for_users(log: Log) -> None:
    with pytest.raises(InvalidDeclaration, match="reserved name"):
        declare_table(log, "basket", "fruit STRING, _weight BIGINT")

    basket = declare_table(log, "basket", "fruit STRING")

    with pytest.raises(RowRefused, match="unknown column"):
        basket.insert([{"fruit": "apple", "_weight": -1}])
    with pytest.raises(Misuse, match="is a table without a key"):
        basket.topic.append([{"fruit": "apple", "_weight": -1}])
    with pytest.raises(Misuse, match="is a table without a key"):
        basket.topic.append_json('{"fruit": "apple", "_weight": -1}')
    with pytest.raises(Misuse, match="is a table without a key"), basket.topic.producer() as producer:
        producer.send({"fruit": "apple", "_weight": -1})
    assert basket.topic.end_offsets() == {0: 0}


@pytest.mark.parametrize("setting", ["retention", "retention_bytes"])
@pytest.mark.parametrize("key", [None, "id"])
def test_a_table_never_forgets_rows_by_itself(log: Log, setting: str, key: str | None) -> None:
    with pytest.raises(InvalidDeclaration, match=f'table "users" cannot have {setting}'):
        declare_table(log, "users", USERS, key=key, **{setting: 1000})

    assert log.topics() == []


def test_a_table_without_a_key_has_one_partition_and_is_not_compacted(log: Log) -> None:
    with pytest.raises(InvalidDeclaration, match="one partition"):
        declare_table(log, "basket", "fruit STRING", partitions=2)
    with pytest.raises(InvalidDeclaration, match="compact=True needs a key"):
        declare_table(log, "basket", "fruit STRING", compact=True)
