"""The Kafka inlet with a real broker: nothing lost, nothing doubled, whoever is killed."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.inlets.counters import stored
from headwater.inlets.kafka import kafka_inlet
from headwater.inlets.kafka.kafka_inlet import KafkaInlet
from headwater.log.home import Log
from headwater.log.table import declare_table
from headwater.log.topic import Topic
from headwater.log_address import open_log
from tests.app_process import running
from tests.services.kafka_broker import PASSWORD, USER, KafkaBroker
from tests.waiting import eventually

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
TRANSACTIONAL = {"transactional.id": "writer"}
APP = """
import headwater as hw

app = hw.App("shop", home={home!r}, log={log!r})
orders = app.topic("orders", "order_id BIGINT, at BIGINT", key="order_id", partitions=2)
app.inlet("shop", hw.inlets.Kafka(orders, {servers!r}, source={source!r}, offset_column="at"))
"""


@pytest.fixture
def source(kafka: KafkaBroker, request: pytest.FixtureRequest) -> str:
    return kafka.create(re.sub("[^a-z_]", "_", request.node.name)[:200], 2)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "home") as log:
        yield log


@pytest.fixture
def orders(log: Log) -> Topic:
    return log.topic("orders", "order_id BIGINT, item STRING", key="order_id", partitions=2)


def opened(topic: Topic, kafka: KafkaBroker, source: str, **options: Any) -> KafkaInlet:
    return hw.inlets.Kafka(topic, kafka.servers, source=source, **options).open(topic.log, "shop")


def settle(inlet: KafkaInlet, received: int) -> None:
    eventually(lambda: inlet.counters.received >= received, f"{received} messages; {inlet.counters}; {inlet.problem}")


def numbered(*numbers: int, item: str = "cup") -> list[tuple[str, str]]:
    return [(str(number), json.dumps({"order_id": number, "item": item})) for number in numbers]


def ids(topic: Topic) -> list[int]:
    return sorted(row["order_id"] for row in topic.rows())


def test_messages_become_rows_once_over_restarts(kafka: KafkaBroker, source: str, orders: Topic) -> None:
    kafka.send(source, numbered(*range(100)))
    with opened(orders, kafka, source) as inlet:
        settle(inlet, 100)
        address = inlet.address
    kafka.send(source, numbered(*range(100, 110)))
    with opened(orders, kafka, source) as again:
        settle(again, 10)
        eventually(lambda: again.lag == 0, "it has read everything")

    assert ids(orders) == list(range(110))
    assert stored(orders.log, "", ["shop"])["shop"]["lag"] == 0
    assert (inlet.counters.appended, again.counters.appended) == (100, 10)
    assert address == f"kafka://{kafka.servers} {source}"
    assert committed(kafka, source, "headwater.shop") == 110


def committed(kafka: KafkaBroker, source: str, group: str) -> int:
    """What Kafka's own tools show of a group: the sum of its offsets."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    places = [TopicPartition(source, number) for number in (0, 1)]
    (future,) = kafka.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values()
    return sum(place.offset for place in future.result(30).topic_partitions)


def test_only_what_was_committed_is_read_and_holes_are_passed_over(
    kafka: KafkaBroker, source: str, orders: Topic
) -> None:
    from confluent_kafka import Producer

    kafka.send(source, numbered(1, 2), **TRANSACTIONAL)
    aborted = Producer({"bootstrap.servers": kafka.servers, **TRANSACTIONAL})
    aborted.init_transactions(30)
    aborted.begin_transaction()
    for key, value in numbered(66, 67):
        aborted.produce(source, value, key)
    aborted.flush(30)
    aborted.abort_transaction(30)
    kafka.send(source, numbered(3), **TRANSACTIONAL)

    with opened(orders, kafka, source) as inlet:
        settle(inlet, 3)
        eventually(lambda: inlet.lag == 0, "the markers at the end are no lag")

    assert ids(orders) == [1, 2, 3]
    ends = kafka.ends(source)
    assert {number: each.offset for number, each in inlet.positions.load().items()} == ends
    assert sum(ends.values()) > 5, "there are no holes to pass over"


def test_the_order_of_each_key_is_kept_and_tombstones_delete(kafka: KafkaBroker, source: str, log: Log) -> None:
    users = declare_table(log, "users", "id BIGINT, name STRING", key="id", partitions=3)
    sent = [(str(n % 20), json.dumps({"id": n % 20, "name": f"v{n}"})) for n in range(400)]
    sent[200:200] = [("3", None), ("4", None)]
    sent += [("5", None), ("6", None), ("6", json.dumps({"id": 6, "name": "again"})), ("99", None)]
    kafka.send(source, sent)

    with opened(users.topic, kafka, source) as inlet:
        settle(inlet, len(sent))

    expected = {n: f"v{380 + n}" for n in range(20)} | {6: "again"}
    del expected[5]
    assert {row["id"]: row["name"] for row in users.rows()} == expected
    assert inlet.counters.refused == 0


def test_a_topic_without_a_key_keeps_a_kafka_partition_together(kafka: KafkaBroker, source: str, log: Log) -> None:
    clicks = log.topic("clicks", "n BIGINT, partition INT, offset BIGINT", partitions=2)
    kafka.send(source, [(None, json.dumps({"n": n}), n % 2) for n in range(300)])

    with opened(clicks, kafka, source, partition_column="partition", offset_column="offset") as inlet:
        settle(inlet, 300)

    for number in (0, 1):
        rows = [row for batch in clicks.read_partition(number, 0) for row in batch.data.to_pylist()]
        assert [(row["n"], row["partition"], row["offset"]) for row in rows] == [
            (n, number, place) for place, n in enumerate(range(number, 300, 2))
        ]


def test_what_is_beside_the_value_goes_to_columns_and_metadata(kafka: KafkaBroker, source: str, log: Log) -> None:
    schema = "line STRING, who STRING, at TIMESTAMP, said MAP<STRING, STRING>"
    lines = log.topic("lines", schema)
    headers = [("actor", b"anna"), ("correlation_id", b"basket-7"), ("trace", b"1")]
    kafka.send(source, [("ada", "GET /", 0, headers), (None, "GET /x", 0)])
    columns = {"key_column": "who", "timestamp_column": "at", "headers_column": "said"}

    with opened(lines, kafka, source, value="raw", value_column="line", **columns) as inlet:
        settle(inlet, 2)

    first, second = lines.rows(columns=["line", "who", "at", "said", "_actor", "_correlation_id"])
    assert abs(first.pop("at") - dt.datetime.now(dt.UTC)) < dt.timedelta(hours=1)
    assert first == {
        "line": "GET /",
        "who": "ada",
        "said": {"actor": "anna", "correlation_id": "basket-7", "trace": "1"},
        "_actor": "anna",
        "_correlation_id": "basket-7",
    }
    assert (second["who"], second["said"], second["_actor"]) == (None, {}, None)


def test_poison_goes_to_the_dead_topic_once_and_does_not_block(kafka: KafkaBroker, source: str, orders: Topic) -> None:
    poison = [b"\xff\x00", b"not json", b'{"order_id": "one"}', b'{"id": 1}']
    kafka.send(source, [("a", poison[0], 0), *[(k, v, 0) for k, v in numbered(1)], *[("b", p, 0) for p in poison[1:]]])
    kafka.send(source, [("x", None, 0), *[(k, v, 0) for k, v in numbered(2)]])

    with opened(orders, kafka, source) as inlet:
        settle(inlet, 7)
    with opened(orders, kafka, source) as again:
        eventually(lambda: again.lag == 0, "nothing comes again")

    dead = list(orders.log.get_topic("shop.dead").rows())
    assert ids(orders) == [1, 2]
    assert {(row["message_id"], row["body"]) for row in dead} == {
        (f"{source}/0/{offset}", body) for offset, body in ((0, poison[0]), *enumerate([*poison[1:], b""], start=2))
    }
    assert len(dead) == 5
    assert dead[0]["headers"] == {"kafka-key": "a"}
    assert any("'one' is of type str, expected BIGINT" in row["reason"] for row in dead)
    assert any("the key 'x' does not fit its column" in row["reason"] for row in dead)
    assert (inlet.counters.refused, inlet.counters.appended, again.counters.received) == (5, 2, 0)


def test_arrow_tables_are_rows(kafka: KafkaBroker, source: str, orders: Topic) -> None:
    def stream(table: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())

    many = pa.table({"order_id": range(1000), "item": ["cup"] * 1000})
    sent = [many.slice(0, 400), many.slice(400, 0), many.slice(400), pa.table({"order_id": ["x"]})]
    kafka.send(source, [(None, stream(table), 0) for table in sent])

    with opened(orders, kafka, source, value="arrow") as inlet:
        settle(inlet, 4)

    assert ids(orders) == list(range(1000))
    assert inlet.counters.refused == 1


def test_debeziums_envelopes_become_rows_and_deletes(kafka: KafkaBroker, source: str, log: Log) -> None:
    users = declare_table(log, "users", "id BIGINT, name STRING, born DATE, paid DECIMAL(6,2), at TIMESTAMP", key="id")
    ada = {"id": 1, "name": "Ada", "born": 20000, "paid": "BTk=", "at": 1_700_000_000_000_000, "more": 1}
    bob = {"id": 2, "name": "Bob", "born": None, "paid": None, "at": None}
    envelopes = [
        {"op": "r", "before": None, "after": ada},
        {"op": "c", "before": None, "after": bob},
        {"op": "u", "before": {"id": 1}, "after": {**ada, "id": 3, "name": "Ada L."}},
        {"op": "d", "before": {"id": 2}, "after": None},
        {"op": "t"},
        {"op": "c", "after": {**bob, "name": "__debezium_unavailable_value"}},
    ]
    kafka.send(source, [("k", json.dumps(each), 0) for each in envelopes] + [("k", None, 0), ("k", "{}", 0)])

    with opened(users.topic, kafka, source, value="debezium") as inlet:
        settle(inlet, 8)

    (row,) = users.rows()
    assert (row["id"], row["name"], row["born"], str(row["paid"])) == (3, "Ada L.", dt.date(2024, 10, 4), "13.37")
    assert row["at"] == dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)
    reasons = [row["reason"] for row in log.get_topic("shop.dead").rows()]
    assert [reason.split("\n")[0] for reason in reasons] == [
        "the message empties its table, which an inlet cannot do",
        'the message does not have the value of "name", which its change left as it was',
        "the message is not a message of Debezium",
    ]


@pytest.mark.parametrize("start", ["earliest", "latest", "time"])
def test_the_first_run_begins_where_it_is_told(kafka: KafkaBroker, log: Log, start: str) -> None:
    source = kafka.create(f"starts-{start}", 2)
    orders = log.topic("orders", "order_id BIGINT, item STRING", key="order_id")
    kafka.send(source, numbered(1, 2))
    now = after_this_millisecond()
    kafka.send(source, numbered(3))
    begin: Any = now if start == "time" else start

    with opened(orders, kafka, source, start=begin) as inlet:
        eventually(lambda: inlet.lag == 0, f"begun: {inlet.problem}")
    kafka.send(source, numbered(4))  # while it is away: the first run has decided where it begins
    with opened(orders, kafka, source, start=begin) as again:
        eventually(lambda: 4 in ids(orders), f"the last one; {again.problem}")

    assert ids(orders) == {"earliest": [1, 2, 3, 4], "latest": [4], "time": [3, 4]}[start]


def after_this_millisecond() -> dt.datetime:
    """A time that differs from those of what was sent before and of what is sent afterwards: Kafka's are in ms."""
    begun = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 < begun + 2:
        pass
    return dt.datetime.fromtimestamp((begun + 1) / 1000, dt.UTC)


def test_partitions_that_come_later_are_read_from_their_beginning(
    kafka: KafkaBroker, source: str, orders: Topic
) -> None:
    kafka.send(source, numbered(1))
    with opened(orders, kafka, source, start="latest") as inlet:
        eventually(lambda: inlet.lag == 0, "begun")
        kafka.grow(source, 4)
        kafka.send(source, [(key, value, 3) for key, value in numbered(2, 3)])
        settle(inlet, 2)

    assert ids(orders) == [2, 3]


def test_a_topic_that_is_missing_is_waited_for(kafka: KafkaBroker, orders: Topic) -> None:
    with opened(orders, kafka, "not-there-yet") as inlet:
        eventually(lambda: inlet.problem, "the problem is told")
        problem = inlet.problem
        kafka.create("not-there-yet")
        kafka.send("not-there-yet", numbered(1))
        settle(inlet, 1)
        assert inlet.problem is None

    assert problem == f'Kafka at {kafka.servers} has no topic "not-there-yet"'


@pytest.mark.parametrize("on_loss", ["stop", "continue"])
def test_messages_that_retention_took_are_told_and_what_follows_is_as_declared(
    kafka: KafkaBroker, log: Log, on_loss: Any
) -> None:
    source = kafka.create(f"expired-{on_loss}")
    orders = log.topic("orders", "order_id BIGINT, item STRING", key="order_id")
    kafka.send(source, numbered(1, 2))
    with opened(orders, kafka, source) as inlet:
        settle(inlet, 2)
    kafka.send(source, numbered(*range(3, 10)))
    kafka.drop_before(source, 7)

    with opened(orders, kafka, source, on_loss=on_loss) as again:
        if on_loss == "stop":
            eventually(lambda: again.problem, "the loss is told")
            problem = again.problem or ""
            assert "retention has dropped up to 5 messages, from offset 2 to 7" in problem
        else:
            settle(again, 2)

    assert ids(orders) == ([1, 2] if on_loss == "stop" else [1, 2, 8, 9])
    assert again.counters.dropped == (0 if on_loss == "stop" else 5)


def test_a_topic_that_was_made_again_is_another_one(kafka: KafkaBroker, source: str, orders: Topic) -> None:
    kafka.send(source, numbered(*range(10)))
    with opened(orders, kafka, source) as inlet:
        settle(inlet, 10)
        kafka.delete(source)
        eventually(lambda: inlet.problem, "the topic is missed")
        kafka.create(source, 2)
        kafka.send(source, numbered(*range(10, 30)))
        eventually(lambda: "deleted and made again" in (inlet.problem or ""), f"it is noticed; {inlet.problem}")
    assert ids(orders) == list(range(10))

    with opened(orders, kafka, source, on_loss="continue") as again:
        settle(again, 20)

    assert ids(orders) == list(range(30))


def test_a_broker_that_does_not_answer_is_a_problem_and_not_the_end(kafka: KafkaBroker, orders: Topic) -> None:
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}
    wrong = {
        "127.0.0.1:9": ({}, "does not answer"),
        f"127.0.0.1:{kafka.password_port}": ({**settings, "sasl.password": "hush"}, "refuses the credentials"),
        f"localhost:{kafka.tls_port}": ({**settings, "security.protocol": "SASL_SSL", "sasl.password": "hush"}, "TLS"),
    }
    for servers, (given, expected) in wrong.items():
        declared = hw.inlets.Kafka(orders, servers, settings=given)
        with declared.open(orders.log, "shop") as inlet:
            problems: list[str] = []  # while it is tried again, a busy machine may tell of a time-out too

            def told(inlet: KafkaInlet = inlet, expected: str = expected, problems: list[str] = problems) -> bool:
                problems.append(inlet.problem or "")
                return expected in problems[-1]

            eventually(told, f"the problem is told: {expected}")
            problem = problems[-1]

        assert problem.startswith(f"Kafka at {servers}")
        assert "hush" not in problem + repr(inlet) + repr(declared) + str(inlet.address)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_password_and_tls_are_settings(kafka: KafkaBroker, log: Log, protocol: str) -> None:
    source = kafka.create(f"guarded-{protocol}")
    orders = log.topic("orders", "order_id BIGINT, item STRING", key="order_id")
    kafka.send(source, numbered(1))
    port = kafka.tls_port if protocol == "SASL_SSL" else kafka.password_port
    settings = {"security.protocol": protocol, "sasl.mechanism": "PLAIN", "sasl.username": USER}
    settings |= {"sasl.password": PASSWORD, "ssl.ca.location": str(kafka.certificate)}

    declared = hw.inlets.Kafka(orders, f"127.0.0.1:{port}", source=source, settings=settings)
    with declared.open(log, "shop") as inlet:
        settle(inlet, 1)

    assert ids(orders) == [1]


def test_nothing_moves_on_that_the_log_does_not_have(kafka: KafkaBroker, source: str, log: Log) -> None:
    full = log.topic(
        "full", "order_id BIGINT, item STRING", overflow="block", overflow_rows_max=1, block_timeout="10 ms"
    )
    kafka.send(source, numbered(*range(1, 6)))
    with full.consumer("slow") as consumer:
        full.append([{"order_id": 0}])
        inlet = opened(full, kafka, source)
        with inlet:
            eventually(lambda: "is full" in (inlet.problem or ""), "the inlet notices that the topic is full")
            assert inlet.counters.appended == 0

            def read_on() -> bool:
                batch = consumer.poll(timeout=0.05)
                if batch is not None:
                    consumer.commit(batch)
                return inlet.counters.received == 5

            eventually(read_on, "all of it, once there is room")

    assert ids(full) == list(range(6))


def test_of_two_processes_one_stands_by_and_each_message_is_written_once(
    kafka: KafkaBroker, source: str, tmp_path: Path, orders: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_inlet, "STAND_BY_S", 0.2)
    with Log(tmp_path / "home") as other:
        one, two = opened(orders, kafka, source), opened(other.get_topic("orders"), kafka, source)
        with two:
            with one:
                for begin in range(0, 3_000, 500):
                    kafka.send(source, numbered(*range(begin, begin + 500)))
                eventually(lambda: len(ids(orders)) >= 3_000, f"all rows; {one.problem}; {two.problem}")
            kafka.send(source, numbered(*range(3_000, 3_100)))
            eventually(lambda: len(ids(orders)) >= 3_100, f"the other one goes on; {two.problem}")

    assert ids(orders) == list(range(3_100))
    assert one.counters.appended + two.counters.appended == 3_100


@pytest.mark.parametrize("on", ["home", "kafka"])
def test_a_killed_inlet_loses_nothing_and_doubles_nothing(
    kafka: KafkaBroker, source: str, tmp_path: Path, on: str
) -> None:
    home, app = tmp_path / "home", tmp_path / "shop.py"
    address = f"kafka://{kafka.servers}?prefix=killed-inlet." if on == "kafka" else None
    app.write_text(APP.format(home=str(home), servers=kafka.servers, source=source, log=address))
    kills, count = 4 * THOROUGH, 8_000 * THOROUGH
    chance = random.Random(7)

    def trade() -> None:
        for begin in range(0, count, 400):
            batch = [(str(n), json.dumps({"order_id": n})) for n in range(begin, begin + 400)]
            kafka.send(source, batch, **TRANSACTIONAL if begin % 800 else {})

    with closing(open_log(home, address)) as log:
        topic = log.topic("orders", "order_id BIGINT, at BIGINT", key="order_id", partitions=2)

        def there() -> int:
            return sum(batch.num_rows for batch in topic.read(columns=["order_id"]))

        sender = threading.Thread(target=trade)
        sender.start()
        for _ in range(kills):
            with started(app):
                grown = there() + chance.randrange(1, 1_200)
                eventually(lambda grown=grown: there() >= min(grown, count), "rows of the next process")
        sender.join()
        with started(app) as last:
            assert last.stdout is not None
            assert json.loads(last.stdout.readline())["inlet"] == "shop"  # now it heeds signals
            eventually(lambda: there() >= count, "all rows")
            last.send_signal(signal.SIGTERM)
            told = [json.loads(line) for line in last.stdout]
            last.wait(120)
        found = [row["order_id"] for row in topic.rows()]

    assert last.returncode == 0
    assert told[-1]["ended"]
    assert len(found) == len(set(found)), "a message was written twice"
    assert sorted(found) == list(range(count))


def started(app: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    return running("headwater.cli.main", "inlet", "run", app, "--json")


def test_a_broker_that_is_killed_and_comes_back_is_followed_again(
    kafka: KafkaBroker, source: str, orders: Topic
) -> None:
    """The last test of this file: the broker starts again over what it had on disk."""
    with opened(orders, kafka, source) as inlet:
        kafka.send(source, numbered(*range(200)))
        settle(inlet, 100)
        kafka.kill()
        where = f"Kafka at {kafka.servers} does not answer"
        eventually(lambda: (inlet.problem or "").startswith(where), f"the inlet notices; {inlet.problem}")
        kafka.start()
        kafka.send(source, numbered(*range(200, 400)))
        eventually(lambda: len(ids(orders)) >= 400, f"all rows; {inlet.counters} {inlet.problem}")
        eventually(lambda: inlet.problem is None, "the problem is over")

    assert ids(orders) == list(range(400))


def test_what_does_not_pass_the_door_is_nowhere(
    kafka: KafkaBroker, source: str, orders: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOOR_SECRET", "0123456789abcdef-secret")
    kafka.send(source, [*numbered(1, 2, item="marker"), ("3", "{marker"), ("1", None)])
    declared = hw.inlets.Kafka(orders, kafka.servers, source=source).taking(hash=["item"], hash_key="env:DOOR_SECRET")

    with declared.open(orders.log, "shop") as inlet:
        settle(inlet, 4)  # type: ignore[arg-type]

    assert len({row["item"] for row in orders.rows() if row["item"] is not None}) == 1
    assert [row["code"] for row in orders.log.get_topic("shop.dead").rows()] == ["row_refused"]
    assert b"marker" not in b"".join(path.read_bytes() for path in orders.log.home.rglob("*") if path.is_file())
