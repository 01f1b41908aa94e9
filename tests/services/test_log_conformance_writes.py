"""Writes that are repeated, asked of every log: sequences of producers, request ids, messages, positions.

What it is: the second part of the conformance suite. What was written is not written again, by whichever handle or
process; a process that is killed in the middle leaves nothing half or twice.
Invariants: another handle of the log stands for another process, but where one is killed, which is real.
Not here: the rest of the contract (``test_log_conformance.py``).
Read next: ``kafka/kafka_receipts.py``.
"""

from __future__ import annotations

import os
import random
import threading

import pytest

import headwater as hw
from headwater.errors import Fenced, OutOfOrder, RequestConflict
from headwater.kafka.kafka_log import KafkaLog
from headwater.log.commits.request_ids import IdsKnown
from headwater.log.commits.sequence_ranges import CHUNKS_PER_SEQUENCE
from headwater.log.commits.stored_positions import PositionMoved
from headwater.log.contract import EventLog
from headwater.log.table import declare_table
from tests.app_process import running
from tests.services.logs import beside, log, name, rows_of
from tests.services.producer_runner import ROWS

__all__ = ["log", "name"]
THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))


def test_a_number_of_a_producer_is_written_once_and_one_that_was_skipped_may_come(log: EventLog, name: str) -> None:
    topic = log.topic(name, "n INT, again INT", partitions=2)

    for again in range(2):
        for number in (1, 2, 5):
            token = topic.append([{"n": number, "again": again}], producer="importer", sequence=number)
            other = beside(log)
            other.wait_for(token, timeout=0)
            other.close()
    topic.append([{"n": 4, "again": 0}], producer="importer", sequence=4)
    topic.append([{"n": 5, "again": 9}], producer="another", sequence=5)

    assert sorted(rows_of(topic, "n", "again")) == [(1, 0), (2, 0), (4, 0), (5, 0), (5, 9)]
    assert set(topic.producer_names().values()) == {"importer", "another"}
    by_name = {topic.producer_names()[number] for (number,) in rows_of(topic, "_producer")}
    assert by_name == {"importer", "another"}


def test_a_newer_producer_of_a_name_shuts_the_older_one_out_and_goes_on_after_it(log: EventLog, name: str) -> None:
    topic, other = log.topic(name, "n INT"), beside(log)
    older = topic.producer("importer")
    older.append([{"n": 1}], sequence=7)

    newer = other.get_topic(name).producer("importer")
    assert newer.last_sequence == 7
    with pytest.raises(Fenced, match='producer "importer" was taken over by a newer one'):
        older.append([{"n": 2}])
    with pytest.raises(Fenced), log.transaction(producer=older) as t:
        t.append(topic, [{"n": 3}])
    newer.append([{"n": 4}])
    with other.transaction(producer=newer) as t:
        t.append(other.get_topic(name), [{"n": 5}])

    assert rows_of(topic, "n") == [(1,), (4,), (5,)]
    assert topic.open_producer("importer").last_sequence // CHUNKS_PER_SEQUENCE == 8
    other.close()


def test_a_repeated_request_gets_the_first_answer_and_other_rows_are_refused(log: EventLog, name: str) -> None:
    topic, table = (
        log.topic(name, "n INT"),
        declare_table(log, f"{name}.table", "id INT, n INT", key="id", partitions=2),
    )
    other = beside(log)

    first = topic.append([{"n": 1}, {"n": 2}], request_id="r-1")
    second = other.get_topic(name).append([{"n": 1}, {"n": 2}], request_id="r-1")
    tokens = []
    for _ in range(2):
        with log.transaction(request_id="r-1") as t:
            t.append(topic, [{"n": 3}])
            t.upsert(table, [{"id": each, "n": 3} for each in range(5)])
        tokens.append(t.token)

    assert (str(first), first.repeated, str(second), second.repeated) == (str(second), False, str(first), True)
    assert (tokens[0] == tokens[1], [each.repeated for each in tokens]) == (True, [False, True])
    with pytest.raises(RequestConflict, match='request id "r-1" was used before, with other rows'):
        topic.append([{"n": 7}], request_id="r-1")
    assert rows_of(topic, "n") == [(1,), (2,), (3,)]
    assert len(rows_of(table.topic, "id")) == 5
    other.close()


def test_of_one_request_sent_by_many_at_once_one_is_written(log: EventLog, name: str) -> None:
    topic, tokens, others = log.topic(name, "n INT"), list[hw.Token](), [log, beside(log), beside(log)]

    def send(which: EventLog, number: int) -> None:
        tokens.append(which.get_topic(name).append([{"n": number}], request_id=f"r-{number}"))

    threads = [threading.Thread(target=send, args=(which, n)) for n in range(4) for which in (*others, *others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert sorted(rows_of(topic, "n")) == [(0,), (1,), (2,), (3,)]
    assert (len(tokens), sum(not token.repeated for token in tokens)) == (24, 4)
    for other in others[1:]:
        other.close()


def test_ids_of_messages_are_remembered_with_their_rows(log: EventLog, name: str) -> None:
    topic, other = log.topic(name, "id STRING"), beside(log)

    topic.append_messages(topic.row_batch([{"id": "a"}, {"id": "b"}]), ["a", "b"])

    there = other.get_topic(name)
    assert there.known_ids(["a", "b", "c"]) == {"a", "b"}
    with pytest.raises(IdsKnown):
        there.append_messages(there.row_batch([{"id": "b"}, {"id": "c"}]), ["b", "c"])
    assert rows_of(topic, "id") == [("a",), ("b",)]
    other.close()


def test_a_position_moves_with_the_rows_and_only_from_where_it_was(log: EventLog, name: str) -> None:
    topic, other = log.topic(name, "n INT"), beside(log)

    def move(which: EventLog, n: int, before: str | None, after: str) -> None:
        with which.transaction() as t:
            t.append(which.get_topic(name), [{"n": n}])
            t.store_position(f"{name} reader", before=before, after=after)

    move(log, 1, None, "one")
    with pytest.raises(PositionMoved):
        move(other, 7, None, "seven")
    move(other, 2, "one", "two")
    with pytest.raises(PositionMoved):
        move(log, 8, "one", "eight")

    assert (log.stored_position(f"{name} reader"), other.stored_position(f"{name} reader")) == ("two", "two")
    assert rows_of(topic, "n") == [(1,), (2,)]
    other.close()


def test_a_producer_that_is_killed_leaves_nothing_half_or_twice(log: EventLog, name: str) -> None:
    topic, chance, seen = log.topic(name, "batch BIGINT, row INT", partitions=2), random.Random(7), -1

    for _ in range(3 * THOROUGH):
        with running("tests.services.producer_runner", log.address, name, "importer") as process:
            assert process.stdout is not None
            began = process.stdout.readline()
            assert int(began.removeprefix("began ")) >= seen, "what was confirmed is there for the next one"
            for _ in range(chance.randrange(1, 6)):
                seen = int(process.stdout.readline())
    last = topic.producer("importer").last_sequence

    assert last >= seen
    assert sorted(rows_of(topic, "batch", "row")) == [(n, row) for n in range(last + 1) for row in range(ROWS)]


def test_gaps_that_are_forgotten_on_kafka_are_told(log: EventLog, name: str) -> None:
    count = 130 if isinstance(log, KafkaLog) else 8200
    topic = log.topic(name, "n INT")
    for number in range(0, 2 * count, 2):
        topic.append([{"n": number}], producer="importer", sequence=number)

    with pytest.raises(OutOfOrder, match='sequence 3 of producer "importer" comes too late'):
        topic.append([{"n": 3}], producer="importer", sequence=3)
    topic.append([{"n": 2 * count - 3}], producer="importer", sequence=2 * count - 3)

    assert len(rows_of(topic, "n")) == count + 1
