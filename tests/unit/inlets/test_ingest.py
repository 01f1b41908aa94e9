"""Ingest: a message is written once, whoever sends it again, and keeps what it says about itself."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest

from headwater.errors import InvalidDeclaration
from headwater.inlets.counters import CounterStore
from headwater.inlets.dead_messages import DeadMessage, DeadMessages
from headwater.inlets.ingest import IncomingMessage, Ingest, Ingested
from headwater.log.home import Log
from headwater.log.schema.event_metadata import Metadata
from headwater.log.topic import Topic
from headwater.testing import ManualClock

SENDER = """
import sys
from headwater.inlets.counters import CounterStore
from headwater.inlets.ingest import IncomingMessage, Ingest
from headwater.log.home import Log
with Log(sys.argv[1]) as log:
    ingest = Ingest(log.get_topic("hooks"), CounterStore(log, "", "hooks"), id_column="id")
    print("ready", flush=True)
    sys.stdin.readline()
    taken = [ingest.take([IncomingMessage(({"x": n},), id=str(n))]) for n in range(50)]
    print(sum(one.appended_rows for one in taken), sum(one.repeated for one in taken))
"""


@pytest.fixture
def topic(log: Log) -> Topic:
    return log.topic("hooks", "x INT, id STRING", partitions=2)


def ingest_of(topic: Topic) -> Ingest:
    return Ingest(topic, CounterStore(topic.log, "", "hooks"), id_column="id")


def ids(topic: Topic) -> list[str | None]:
    return sorted((row["id"] for row in topic.rows()), key=str)


def messages(*ids: str | None) -> Sequence[IncomingMessage]:
    return [IncomingMessage(({"x": 1},), id=each) for each in ids]


def test_what_another_process_ingested_is_known(log: Log, topic: Topic) -> None:
    with Log(log.home) as other:
        ingest_of(other.get_topic("hooks")).take(messages("a"))

    taken = ingest_of(topic).take(messages("a", "b"))

    assert (taken.appended_rows, taken.repeated) == (1, 1)
    assert ids(topic) == ["a", "b"]


def test_an_id_that_comes_twice_in_one_batch_is_written_once(topic: Topic) -> None:
    taken = ingest_of(topic).take(messages("a", "a", None, None))

    assert (taken.appended_rows, taken.repeated) == (3, 1)
    assert ids(topic) == [None, None, "a"]


def test_ids_in_the_rows_are_recognised_row_by_row(topic: Topic) -> None:
    ingest = ingest_of(topic)
    ingest.take([IncomingMessage(({"x": 1, "id": "a"}, {"x": 2, "id": "b"}))])
    taken = ingest.take([IncomingMessage(({"x": 2, "id": "b"}, {"x": 3, "id": "c"}))])

    assert (taken.appended_rows, taken.repeated) == (1, 0)
    assert ids(topic) == ["a", "b", "c"]


def test_a_message_that_comes_twice_at_once_is_written_once(topic: Topic) -> None:
    ingest, taken, begin = ingest_of(topic), list[Ingested](), threading.Barrier(4)

    def send() -> None:
        begin.wait()
        taken.extend(ingest.take(messages(str(n))) for n in range(20))

    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()

    assert sum(one.appended_rows for one in taken) == 20
    assert sum(one.repeated for one in taken) == 60
    assert sum(topic.end_offsets().values()) == 20


def test_two_processes_that_are_sent_the_same_messages_write_them_once(log: Log, topic: Topic) -> None:
    command = [sys.executable, "-c", SENDER, str(log.home)]
    senders = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for sender in senders:
        assert sender.stdout is not None
        assert sender.stdout.readline() == "ready\n"
    answers = []
    for sender in senders:
        assert sender.stdin is not None
        sender.stdin.write("go\n")
        sender.stdin.flush()
    for sender in senders:
        answers.append(sender.communicate()[0].split())

    assert sum(int(appended) for appended, _ in answers) == 50
    assert sum(int(repeated) for _, repeated in answers) == 50
    assert len(ids(topic)) == len(set(ids(topic))) == 50


def test_ids_are_remembered_for_the_topics_time(tmp_path) -> None:
    clock = ManualClock()
    with Log(tmp_path / "home", clock=clock) as log:
        ingest = ingest_of(log.topic("hooks", "x INT, id STRING", remember_ids="1 day"))
        ingest.take(messages("a"))
        clock.advance(23 * 3600)
        log.maintain()
        within = ingest.take(messages("a"))
        clock.advance(2 * 3600)
        log.maintain()
        after = ingest.take(messages("a"))

    assert (within.repeated, after.repeated) == (1, 0)


def test_each_message_keeps_its_metadata(topic: Topic) -> None:
    said = Metadata(correlation_id="c-7", actor="anna")
    ingest_of(topic).take(
        [
            IncomingMessage(({"x": 1},), id="a"),
            IncomingMessage(({"x": 2}, {"x": 3}), id="b", metadata=said),
            IncomingMessage(({"x": 4},), id="c"),
        ]
    )

    found = {row["x"]: row["_actor"] for row in topic.rows(columns=["x", "_actor"])}
    assert found == {1: None, 2: "anna", 3: "anna", 4: None}


def test_a_topic_without_the_column_is_refused(topic: Topic) -> None:
    with pytest.raises(InvalidDeclaration, match='topic "hooks" has no STRING column "x" for the ids of messages'):
        Ingest(topic, CounterStore(topic.log, "", "hooks"), id_column="x")


def test_dead_messages_with_an_id_are_kept_once(log: Log) -> None:
    error = InvalidDeclaration("no row")
    for _ in range(2):
        DeadMessages(log, "shop").bury([DeadMessage(b"1", error, id=each) for each in ("a", "a", None, None)])

    assert [row["message_id"] for row in log.get_topic("shop.dead").rows()] == ["a", None, None, None, None]


def test_dead_messages_keep_their_metadata(log: Log) -> None:
    error = InvalidDeclaration("no row")

    DeadMessages(log, "shop").bury(
        [DeadMessage(b"1", error, metadata=Metadata(actor="anna")), DeadMessage(b"2", error)]
    )

    found = [(row["body"], row["_actor"]) for row in log.get_topic("shop.dead").rows(columns=["body", "_actor"])]
    assert found == [(b"1", "anna"), (b"2", None)]
