"""AMQP with a real RabbitMQ: nothing lost, nothing doubled, whoever is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.inlets.inlet import Inlet
from headwater.log.home import Log
from headwater.log.topic import Topic
from headwater.testing.local_server import free_port
from tests.services.rabbitmq import RabbitMQ
from tests.waiting import eventually

SOURCE = Path(__file__).parents[2] / "src"
THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
APP = """
import headwater as hw

app = hw.App("shop", home={home!r})
orders = app.topic("orders", "order_id BIGINT, message_id STRING", key="order_id", partitions=2)
app.inlet("shop", hw.inlets.Amqp(orders, {url!r}, queue={queue!r}, id_column="message_id", prefetch=50))
"""


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    broker = RabbitMQ(tmp_path_factory.mktemp("rabbit"))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "home") as log:
        yield log


@pytest.fixture
def queue(rabbit: RabbitMQ, request: pytest.FixtureRequest) -> str:
    return rabbit.declare(request.node.name[:200])


@pytest.fixture
def orders(log: Log) -> Topic:
    return log.topic("orders", "order_id BIGINT, routing_key STRING, message_id STRING")


def opened(topic: Topic, rabbit: RabbitMQ, queue: str, **options: Any) -> Inlet:
    return hw.inlets.Amqp(topic, rabbit.url, queue=queue, id_column="message_id", **options).open(topic.log, "shop")


def settle(inlet: Inlet, received: int) -> None:
    eventually(lambda: inlet.counters.received >= received, f"{received} messages; {inlet.counters}; {inlet.problem}")


def test_messages_become_rows_and_are_acknowledged(rabbit: RabbitMQ, queue: str, orders: Topic) -> None:
    rabbit.send(queue, ['{"order_id": 1}', '[{"order_id": 2}, {"order_id": 3}]', "[]"], ["a", "b", "c"])

    with opened(orders, rabbit, queue, routing_key_column="routing_key") as inlet:
        settle(inlet, 3)

    assert [(row["order_id"], row["message_id"]) for row in orders.rows()] == [(1, "a"), (2, "b"), (3, "b")]
    assert {row["routing_key"] for row in orders.rows()} == {queue}
    assert inlet.counters == hw.inlets.Counters(received=3, appended=3)
    assert inlet.address == f"amqp://127.0.0.1:{rabbit.port}/%2F {queue}"
    assert rabbit.waiting(queue) == 0


def test_the_properties_of_a_message_are_the_metadata_of_its_rows(rabbit: RabbitMQ, queue: str, orders: Topic) -> None:
    said = {"correlation_id": "basket-7", "user_id": "guest", "headers": {"causation_id": "click-1"}}
    rabbit.send(queue, ['{"order_id": 1}'], ["a"], **said)
    rabbit.send(queue, ['{"order_id": 2}'], ["b"])

    with opened(orders, rabbit, queue) as inlet:
        settle(inlet, 2)

    columns = ["order_id", "_correlation_id", "_causation_id", "_actor"]
    assert [tuple(row.values()) for row in orders.rows(columns=columns)] == [
        (1, "basket-7", "click-1", "guest"),
        (2, None, None, None),
    ]


def test_a_message_that_comes_again_is_recognised_by_its_id(rabbit: RabbitMQ, queue: str, orders: Topic) -> None:
    rabbit.send(queue, ['{"order_id": 1}'] * 3, ["a", "a", "b"])
    with opened(orders, rabbit, queue) as inlet:
        settle(inlet, 3)
    rabbit.send(queue, ['{"order_id": 1}'] * 2, ["b", "c"])
    with opened(orders, rabbit, queue) as again:  # as after a restart: nothing is remembered but what the log holds
        settle(again, 2)

    assert [row["message_id"] for row in orders.rows()] == ["a", "b", "c"]
    assert inlet.counters.repeated + again.counters.repeated == 2


def test_poison_goes_to_the_dead_topic_with_the_reason(rabbit: RabbitMQ, queue: str, orders: Topic) -> None:
    poison = [b"\xff\x00", b"not json", b'{"order_id": "one"}', b'{"id": 1}']
    sent = [*poison[:2], b'{"order_id": 1}', *poison[2:], b'{"order_id": 2}', poison[0]]
    rabbit.send(queue, sent, ["p0", "p1", "a", "p2", "p3", "b", "p0"])

    with opened(orders, rabbit, queue) as inlet:
        settle(inlet, 7)

    dead = list(orders.log.get_topic("shop.dead").rows())
    assert [row["order_id"] for row in orders.rows()] == [1, 2]
    assert {row["message_id"]: row["body"] for row in dead} == dict(zip(["p0", "p1", "p2", "p3"], poison, strict=True))
    assert len(dead) == 4
    assert "'one' is of type str, expected BIGINT" in next(row["reason"] for row in dead if row["message_id"] == "p2")
    assert (inlet.counters.refused, inlet.counters.appended, rabbit.waiting(queue)) == (5, 2, 0)


def test_nothing_is_acknowledged_that_the_log_does_not_have(rabbit: RabbitMQ, queue: str, log: Log) -> None:
    full = log.topic(
        "full", "order_id BIGINT, message_id STRING", overflow="block", overflow_rows_max=1, block_timeout="10 ms"
    )
    with full.consumer("slow"):
        full.append([{"order_id": 0}])
        rabbit.send(queue, [f'{{"order_id": {n}}}' for n in range(1, 6)], list("abcde"))

        inlet = opened(full, rabbit, queue)
        with inlet:
            eventually(lambda: "is full" in (inlet.problem or ""), "the inlet notices that the topic is full")

    assert inlet.counters.appended == 0
    eventually(lambda: rabbit.waiting(queue) == 5, "the broker has all messages again")


def test_a_queue_that_is_missing_is_made_and_made_again(rabbit: RabbitMQ, orders: Topic) -> None:
    with opened(orders, rabbit, "new.queue") as inlet:
        for number in range(2):
            eventually(lambda: queue_exists(rabbit, "new.queue"), "the queue is there")
            rabbit.send("new.queue", [f'{{"order_id": {number}}}'])
            settle(inlet, number + 1)
            with rabbit.channel() as channel:
                channel.queue_delete("new.queue")

    assert [row["order_id"] for row in orders.rows()] == [0, 1]


def queue_exists(rabbit: RabbitMQ, queue: str) -> bool:
    import pika.exceptions

    try:
        return rabbit.waiting(queue) >= 0
    except pika.exceptions.ChannelClosedByBroker:
        return False


def test_a_broker_that_does_not_answer_is_a_problem_and_not_the_end(orders: Topic) -> None:
    url = f"amqp://guest:hush@127.0.0.1:{free_port()}/%2F"
    inlet = hw.inlets.Amqp(orders, url, queue="orders").open(orders.log, "shop")

    with inlet:
        eventually(lambda: inlet.problem, "the problem is told")
        problem = inlet.problem or ""

    assert problem.startswith("the broker: ")
    assert "hush" not in problem + repr(inlet) + repr(inlet.declared) + str(inlet.address)  # type: ignore[attr-defined]


def test_a_killed_inlet_loses_nothing_and_doubles_nothing(rabbit: RabbitMQ, queue: str, tmp_path: Path) -> None:
    home, app = tmp_path / "home", tmp_path / "shop.py"
    app.write_text(APP.format(home=str(home), url=rabbit.url, queue=queue))
    kills, count = 6 * THOROUGH, 1500 * THOROUGH
    chance = random.Random(7)
    numbers = [str(number) for number in range(count)]
    with Log(home) as log:
        topic = log.topic("orders", "order_id BIGINT, message_id STRING", key="order_id", partitions=2)
        sender = threading.Thread(target=rabbit.send, args=(queue, [f'{{"order_id": {n}}}' for n in numbers], numbers))
        sender.start()
        for _ in range(kills):
            process = started(app)
            # It is killed somewhere behind the append of the next few rows: often before they are acknowledged.
            grown = sum(topic.end_offsets().values()) + chance.randrange(1, 120)
            eventually(
                lambda grown=grown: sum(topic.end_offsets().values()) >= min(grown, count), "rows of the next process"
            )
            process.kill()
            process.wait()
        sender.join()
        last = started(app)
        assert last.stdout is not None
        assert json.loads(last.stdout.readline())["inlet"] == "shop"  # now it heeds signals
        eventually(lambda: sum(topic.end_offsets().values()) >= count, "all rows")
        eventually(lambda: rabbit.waiting(queue) == 0, "nothing waits")
        last.send_signal(signal.SIGTERM)
        told = [json.loads(line) for line in last.communicate(timeout=60)[0].splitlines()]

        ids = [row["message_id"] for row in topic.rows()]

    assert last.returncode == 0
    assert told[-1]["ended"]
    assert len(ids) == len(set(ids)), "a message was written twice"
    assert sorted(ids, key=int) == numbers


def started(app: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "headwater.cli.main", "inlet", "run", str(app), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace", env=environment)


def test_rows_are_published_once_confirmed_with_ids_that_stay(rabbit: RabbitMQ, queue: str, log: Log) -> None:
    topic = log.topic("out", "id INT, queue STRING", key="id", partitions=2)
    topic.append([{"id": number, "queue": queue} for number in range(1200)])

    with hw.inlets.AmqpPublisher(topic, rabbit.url, routing_key_column="queue") as publisher:
        eventually(lambda: publisher.published == 1200, "all published")
    assert sum(topic.group("amqp").lag().values()) == 0
    topic.append([{"id": 5000, "queue": queue}])
    with hw.inlets.AmqpPublisher(topic, rabbit.url, routing_key=queue) as second:
        topic.delete([{"id": 1}])
        eventually(lambda: second.published == 2, "the two new ones")

    found = drained(rabbit, queue)
    ids = {
        (row["_partition"], row["_offset"]): row["id"] for row in topic.rows(columns=["_partition", "_offset", "id"])
    }
    assert publisher.published == 1200
    assert {properties.message_id: body["id"] for properties, body in found} == {
        f"out/{partition}/{offset}": number for (partition, offset), number in ids.items()
    }
    assert [body["id"] for properties, body in found if properties.headers == {"headwater-deleted": True}] == [1]
    assert {properties.delivery_mode for properties, _ in found} == {2}


def test_a_row_that_nobody_would_get_is_not_passed_over(rabbit: RabbitMQ, log: Log) -> None:
    topic = log.topic("out", "id INT")
    topic.append([{"id": 1}])

    with hw.inlets.AmqpPublisher(topic, rabbit.url, routing_key="nobody.yet") as publisher:
        eventually(lambda: publisher.problem, "the problem is told")
        problem, lag = publisher.problem, topic.group("amqp").lag()
        rabbit.declare("nobody.yet")
        eventually(lambda: topic.group("amqp").lag() == {0: 0}, "published once there is a queue")

    assert 'no queue for routing key "nobody.yet"' in (problem or "")
    assert lag == {0: 1}
    assert [body for _, body in drained(rabbit, "nobody.yet")] == [{"id": 1}]


def drained(rabbit: RabbitMQ, queue: str) -> list[tuple[Any, dict[str, Any]]]:
    found = []
    with rabbit.channel() as channel:
        while True:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is None or body is None:
                return found
            found.append((properties, json.loads(body)))


def test_a_broker_that_is_killed_and_comes_back_is_followed_again(rabbit: RabbitMQ, queue: str, orders: Topic) -> None:
    """The last test of this file: the broker starts again over what it had on disk."""
    numbers = [str(number) for number in range(400)]
    with opened(orders, rabbit, queue) as inlet:
        rabbit.send(queue, [f'{{"order_id": {n}}}' for n in numbers[:200]], numbers[:200])
        rabbit.kill()
        eventually(lambda: inlet.problem, "the inlet notices")
        rabbit.start()
        rabbit.send(queue, [f'{{"order_id": {n}}}' for n in numbers[200:]], numbers[200:])
        eventually(lambda: sum(orders.end_offsets().values()) >= 400, f"all rows; {inlet.counters} {inlet.problem}")
        eventually(lambda: rabbit.waiting(queue) == 0, "nothing waits")
        assert inlet.problem is None

    assert sorted((row["message_id"] for row in orders.rows()), key=int) == numbers
