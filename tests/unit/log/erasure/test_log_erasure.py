"""Erasure in the log: a person's values leave every segment, side topic and archive, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest

import headwater as hw
from headwater.errors import Conflict, Misuse
from headwater.log.erasure.erasure_records import LOG, ErasureRecords
from headwater.log.erasure.log_erasure import erase_person, resume
from headwater.log.home import Log
from headwater.log.maintenance.removal_pin import RemovalPin
from headwater.log.topic import Topic
from tests.every_byte import places_with

MARK = "zq-marker-zq"
OF_ORDERS = {"user_id": hw.Personal("user_id"), "address": hw.Personal("user_id", by="user_id")}


def orders(log: Log, **settings: Any) -> Topic:
    return log.topic("orders", "id BIGINT, user_id BIGINT, address STRING NOT NULL", privacy=OF_ORDERS, **settings)


def put(topic: Topic, *users: int) -> None:
    topic.append([{"id": n, "user_id": user, "address": MARK if user == 7 else "else"} for n, user in enumerate(users)])


def rows(topic: Topic) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in topic.rows(columns=["_offset", *topic.schema.names])]


def test_rows_keep_their_offsets_and_lose_the_personal_values_in_sealed_and_active_segments(log: Log) -> None:
    topic = orders(log)
    put(topic, 6, 7)
    topic.partition(0).roll()
    put(topic, 7, 8)

    _, found = erase_person(log, "user_id", "7")

    assert [(each.name, each.erased.rows) for each in found] == [("orders", 2)]
    assert rows(topic) == [(0, 0, 6, "else"), (1, 1, None, ""), (2, 0, None, ""), (3, 1, 8, "else")]
    assert places_with(log.home, MARK) == []
    assert log.check().problems == ()
    put(topic, 9)
    assert topic.end_offsets() == {0: 5}


def test_a_person_whose_id_is_the_key_leaves_whole_and_others_keep_their_place(log: Log) -> None:
    of_users = {"id": hw.Personal("user_id"), "name": hw.Personal("user_id", by="id")}
    topic = log.topic("users", "id STRING, name STRING", key="id", partitions=2, privacy=of_users)
    for name in ("a", "b"):
        topic.append([{"id": key, "name": name if key != MARK else MARK} for key in ("x", MARK, "y", "z")])
    before = {row for row in rows(topic) if MARK not in row}

    erase_person(log, "user_id", MARK)

    assert set(rows(topic)) == before
    assert places_with(log.home, MARK) == []
    assert log.check().problems == ()
    assert topic.delete([{"id": "x"}]).frontier["users"]


def test_archived_segments_dead_letters_and_late_rows_are_erased_too(log: Log) -> None:
    topic = orders(log, retention="1 second", archive="attic")
    put(topic, 7)
    clock: Any = log.clock
    clock.advance(10)
    log.maintain()
    put(topic, 7, 8)
    with topic.worker("mailers") as worker:
        for message in worker.take(2, timeout=10):
            worker.reject([message], reason=f"no such place: {message.row['address']}")
    late = log.topic("busy.late", "id BIGINT, user_id BIGINT, address STRING, late_ms BIGINT")
    late.append([{"id": 1, "user_id": 7, "address": MARK, "late_ms": 5}])
    assert {place.split(":")[0].split("/")[0] for place in places_with(log.home, MARK)} == {
        "attic",
        "catalog.sqlite-wal",
        "topics",
    }

    _, found = erase_person(log, "user_id", "7")

    assert {each.name: (each.erased.rows, each.erased.archived) for each in found} == {
        "orders": (2, 1),
        "orders.mailers.dead": (1, 0),
        "busy.late": (1, 0),
    }
    assert places_with(log.home, MARK) == []
    letters = list(log.get_topic("orders.mailers.dead").rows(columns=["row", "reason"]))
    assert letters == [
        {"row": '{"id":0,"user_id":null,"address":null}', "reason": "erased"},
        {"row": '{"id":1,"user_id":8,"address":"else"}', "reason": "no such place: else"},
    ]


def test_a_capture_brings_nobody_back_and_a_program_may(log: Log) -> None:
    captured = orders(log, captured_by="shop")
    free = log.topic("visits", "user_id BIGINT", privacy={"user_id": hw.Personal("user_id")})
    erase_person(log, "user_id", "7")

    put(captured, 7, 8)
    free.append([{"user_id": 7}])

    assert rows(captured) == [(0, 0, None, ""), (1, 1, 8, "else")]
    assert rows(free) == [(0, 7)]


def test_the_record_has_no_id_and_finds_the_person_again(log: Log) -> None:
    of_mails = {"mail": hw.Personal("mail")}
    log.topic("mails", "mail STRING", privacy=of_mails).append([{"mail": f"{MARK}@example.org"}])

    record, _ = erase_person(log, "mail", f"{MARK}@example.org")

    records = ErasureRecords(log.catalog)
    assert records.find("mail", f"{MARK}@example.org") is not None
    assert records.find("mail", "other@example.org") is None
    assert MARK not in repr((records.all(), record))
    assert places_with(log.home, MARK) == []


def test_a_subject_that_nobody_declared_is_refused(log: Log) -> None:
    orders(log)

    with pytest.raises(Misuse, match='no topic of this home has personal columns of the subject "user"'):
        erase_person(log, "user", "7")


def test_beside_a_backup_nothing_is_begun_and_what_was_begun_waits_for_its_end(log: Log) -> None:
    topic = orders(log)
    put(topic, 7)
    records, backup = ErasureRecords(log.catalog), RemovalPin(log.home)

    backup.acquire()
    with pytest.raises(Conflict, match="is copying files") as refused:
        erase_person(log, "user_id", "7")
    assert refused.value.detail == "Nothing was changed."
    assert not records.in_phase(LOG)

    records.request("user_id", "7", now_us=log.clock.now_us())  # the backup began just after an erasure had
    assert not resume(log)
    assert records.in_phase(LOG)
    assert rows(topic) == [(0, 0, 7, MARK)]

    backup.release()
    assert resume(log)
    assert not records.in_phase(LOG)
    assert rows(topic) == [(0, 0, None, "")]
