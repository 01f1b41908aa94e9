"""Kafka as a sink: what is special about it, with a real broker and a plain consumer as the judge."""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from headwater.errors import Fenced, SinkRefused
from headwater.log.home import Log
from headwater.log.table import declare_table
from headwater.sinks import Kafka
from headwater.sinks.runner.sink_status import SinkState
from headwater.sinks.runner.sink_task import SinkTask
from headwater.sinks.sink import SinkContext
from headwater.views.serving.deliveries import Delivery
from tests.services.kafka_broker import PASSWORD, USER, KafkaBroker
from tests.services.registry import Registry
from tests.services.sinks.synthetic import SyntheticView
from tests.waiting import eventually

SCHEMA = "id BIGINT, name STRING"


@pytest.fixture
def topic() -> str:
    return f"view-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def view() -> SyntheticView:
    view = SyntheticView(SCHEMA)
    view.change([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}])
    return view


def follow(sink: Kafka, view: SyntheticView, log: Log, name: str = "copy") -> SinkTask:
    task = SinkTask(name, "the view", "app", sink, view, log)
    status = task.catch_up()
    assert status.state is SinkState.FOLLOWING, status.error
    return task


def values(kafka: KafkaBroker, topic: str) -> list[Any]:
    return [None if each.value() is None else json.loads(each.value()) for each in kafka.read(topic)]


def test_rows_are_the_latest_of_each_key_and_tombstones(
    kafka: KafkaBroker, topic: str, view: SyntheticView, log: Log
) -> None:
    task = follow(Kafka(kafka.servers, topic=topic), view, log)
    view.change(add=[{"id": 1, "name": "Ada L."}], remove=[{"id": 2}])
    task.catch_up()
    task.close()

    messages = kafka.read(topic)

    assert [(each.key(), each.value()) for each in messages] == [
        (b'{"id":1}', b'{"id":1,"name":"Ada"}'),
        (b'{"id":2}', b'{"id":2,"name":"Bob"}'),
        (b'{"id":2}', None),
        (b'{"id":1}', b'{"id":1,"name":"Ada L."}'),
    ]
    assert [dict(each.headers())["headwater-tick"] for each in messages] == [b"2", b"2", b"3", b"3"]
    assert settings_of(kafka, topic)["cleanup.policy"] == "compact"


def test_rows_are_avro_that_a_plain_consumer_reads_by_the_registrys_schema(
    kafka: KafkaBroker, topic: str, view: SyntheticView, log: Log
) -> None:
    registry = Registry()
    task = follow(Kafka(kafka.servers, topic=topic, values="avro", registry=registry.url), view, log)
    view.change(add=[{"id": 1, "name": None}], remove=[{"id": 2}])
    task.catch_up()
    task.close()
    registry.close()

    messages = kafka.read(topic)

    ((number, answer),) = registry.schemas.items()  # one schema, of all deliveries
    schema, head = fastavro.parse_schema(json.loads(answer["schema"])), b"\0" + number.to_bytes(4, "big")
    assert {value[:5] for each in messages if (value := each.value())} == {head}
    assert registry.subjects == {f"{topic}-value": [number]}
    assert [
        (each.key(), each.value() and fastavro.schemaless_reader(io.BytesIO(each.value()[5:]), schema, None))
        for each in messages
    ] == [
        (b'{"id":1}', {"id": 1, "name": "Ada"}),
        (b'{"id":2}', {"id": 2, "name": "Bob"}),
        (b'{"id":2}', None),
        (b'{"id":1}', {"id": 1, "name": None}),
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"values": "avro"}, "the address of a schema registry belong together"),
        ({"registry": "http://127.0.0.1:1"}, "the address of a schema registry belong together"),
        ({"values": "protobuf"}, "values cannot be 'protobuf'"),
        ({"values": "avro", "registry": "http://127.0.0.1:1", "form": "changes"}, "envelopes .* as JSON only"),
    ],
)
def test_values_that_no_message_could_have_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(SinkRefused, match=said):
        Kafka("127.0.0.1:9092", **given)  # type: ignore[arg-type]


def settings_of(kafka: KafkaBroker, topic: str) -> dict[str, str]:
    from confluent_kafka.admin import ConfigResource

    (asked,) = kafka.admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in asked.result(30).items()}


def test_changes_are_envelopes_with_both_rows_and_the_tick(
    kafka: KafkaBroker, topic: str, view: SyntheticView, log: Log
) -> None:
    task = follow(Kafka(kafka.servers, topic=topic, form="changes"), view, log)
    view.change(add=[{"id": 1, "name": "Ada L."}, {"id": 3, "name": "Cy"}], remove=[{"id": 2}])
    task.catch_up()
    task.close()

    said = values(kafka, topic)

    assert said[0] == {"op": "reset", "before": None, "after": None, "tick": 2}
    assert [(each["op"], each["after"]["id"]) for each in said[1:3]] == [("r", 1), ("r", 2)]
    assert {(each["op"], json.dumps(each["before"]), json.dumps(each["after"]), each["tick"]) for each in said[3:]} == {
        ("u", '{"id": 1, "name": "Ada"}', '{"id": 1, "name": "Ada L."}', 3),
        ("d", '{"id": 2, "name": "Bob"}', "null", 3),
        ("c", "null", '{"id": 3, "name": "Cy"}', 3),
    }


def test_a_view_without_a_key_has_no_rows_form(kafka: KafkaBroker, topic: str, log: Log) -> None:
    context = SinkContext("app", "words", "copy", SyntheticView("word STRING", key=()).schema, (), "7f/1/ab")

    with pytest.raises(SinkRefused, match='view "words" has no key, and rows in Kafka are found by one'):
        Kafka(kafka.servers, topic=topic, form="rows").open(context, log)


def test_a_full_copy_deletes_the_keys_that_are_gone(
    kafka: KafkaBroker, topic: str, view: SyntheticView, log: Log
) -> None:
    task = follow(Kafka(kafka.servers, topic=topic, partitions=3), view, log)
    view.reset(SCHEMA)
    view.change([{"id": 2, "name": "Bob"}, {"id": 7, "name": "Eve"}])
    task.catch_up()
    task.close()

    assert {key: json.loads(row)["name"] for key, row in kafka.latest(topic).items()} == {
        '{"id":2}': "Bob",
        '{"id":7}': "Eve",
    }


def test_a_topic_that_was_deleted_is_filled_anew(kafka: KafkaBroker, topic: str, view: SyntheticView, log: Log) -> None:
    task = follow(Kafka(kafka.servers, topic=topic), view, log)
    kafka.delete(topic)
    eventually(lambda: not kafka.exists(topic), "the topic is gone")
    names = itertools.count()

    def caught_up() -> bool:
        """The partition's leader may take one more tick, which goes with the topic: another one follows."""
        view.change(add=[{"id": 3, "name": f"Cy {next(names)}"}])
        return task.catch_up().state is SinkState.FOLLOWING and kafka.exists(topic)

    eventually(caught_up, "it is made again and filled")
    task.close()

    assert sorted(kafka.latest(topic)) == ['{"id":1}', '{"id":2}', '{"id":3}']


def test_a_topic_belongs_to_one_sink(kafka: KafkaBroker, topic: str, view: SyntheticView, log: Log) -> None:
    follow(Kafka(kafka.servers, topic=topic), view, log).close()

    status = SinkTask("other", "the view", "app", Kafka(kafka.servers, topic=topic), view, log).catch_up()

    assert status.state is SinkState.STOPPED
    assert status.error is not None
    assert status.error["message"] == (f'Kafka topic "{topic}" at {kafka.servers} belongs to sink app/the view/copy')


def test_a_full_copy_that_is_seen_only_after_it_was_looked_for_is_not_made_again(
    kafka: KafkaBroker, topic: str, view: SyntheticView, log: Log
) -> None:
    head = view.head()
    assert head is not None
    sink = Kafka(kafka.servers, topic=topic)
    context = SinkContext("app", "the view", "copy", view.schema, view.key, head.version)
    next_process = sink.open(context, log)
    assert next_process.progress() is None
    follow(sink, view, log).close()  # what the one before had committed is readable now
    copied, tick = len(kafka.read(topic)), view.tick
    view.change([{"id": 3, "name": "Cy"}])

    progress = next_process.fill(view.state.drop_columns(["_weight"]).to_batches(), view.tick, 2)
    next_process.close()

    assert (progress.tick, progress.epoch, len(kafka.read(topic))) == (tick, 2, copied)


def test_a_zombie_with_an_open_transaction_is_shut_out(
    kafka: KafkaBroker, topic: str, view: SyntheticView, log: Log
) -> None:
    head = view.head()
    assert head is not None
    context = SinkContext("app", "the view", "copy", view.schema, view.key, head.version)
    sink = Kafka(kafka.servers, topic=topic)
    follow(sink, view, log).close()
    zombie = sink.open(context, log)
    after = view.tick

    def stalled() -> Iterator[Any]:
        """While its full copy is under way, a newer process takes over and moves on."""
        yield view.state.drop_columns(["_weight"]).slice(0, 1).to_batches()[0]
        view.number = 2
        view.change([{"id": 3, "name": "Cy"}])
        follow(sink, view, log).close()
        yield view.state.drop_columns(["_weight"]).slice(1, 1).to_batches()[0]

    with pytest.raises(Fenced, match='a newer process runs app "app": sink "copy" has epoch 2, this one 1'):
        zombie.fill(stalled(), after, 1)
    with pytest.raises(Fenced):
        zombie.apply(Delivery(view._weighted([{"id": 66, "name": "Z"}], 1), view.tick, view.tick + 1, 1))
    zombie.close()
    newer = follow(sink, view, log)  # which was not disturbed by it
    newer.close()

    assert Counter(each.key() for each in kafka.read(topic)) == {b'{"id":1}': 1, b'{"id":2}': 1, b'{"id":3}': 1}


def test_a_reader_is_never_shown_a_part_of_a_tick_and_each_tick_once(
    kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    """A process that brings ticks along is killed again and again, anywhere, and the broker once too."""
    view, home, kills = SyntheticView(SCHEMA), tmp_path / "home", 3
    sink = Kafka(kafka.servers, topic=topic, form="changes", partitions=1)
    context = multiprocessing.get_context("forkserver")
    for number in range(kills):
        for _ in range(5):
            view.change([{"id": row, "name": f"t{view.tick + 1}"} for row in range(20)])
        process = context.Process(target=ticks_one_by_one, args=(home, sink, view), daemon=True)
        process.start()
        try:
            known = count(kafka, topic)
            eventually(lambda known=known: count(kafka, topic) > known + 5, "a tick of this process")
            if number == 1:
                kafka.kill()
                kafka.start()
        finally:
            process.kill()
            process.join()
    with Log(home, maintenance_interval=None) as log:
        task = SinkTask("copy", "the view", "app", sink, view, log)
        eventually(lambda: task.catch_up().tick == view.tick, "the rest")
        task.close()

    said = values(kafka, topic)
    resets = [place for place, each in enumerate(said) if each["op"] == "reset"]
    since = said[resets[-1] :]
    ticks = [each["tick"] for each in since]
    assert ticks == sorted(ticks)
    assert len(resets) == 1, "it was filled a second time"
    counts = Counter(each["tick"] for each in since if each["op"] in ("c", "u"))
    assert set(counts.values()) <= {20}, "a tick is there in part, or twice"
    names = {each["after"]["id"]: each["after"]["name"] for each in since if each["after"]}
    assert names == dict.fromkeys(range(20), f"t{view.tick}")


def count(kafka: KafkaBroker, topic: str) -> int:
    return len(kafka.read(topic)) if kafka.exists(topic) else 0


def ticks_one_by_one(home: Path, sink: Kafka, view: SyntheticView) -> None:
    """Bring the ticks along, one delivery each, and wait to be killed."""
    whole = view.tick
    with Log(home, maintenance_interval=None) as log:
        task = SinkTask("copy", "the view", "app", sink, view, log)
        first = max(2, (task._statuses.load(task.identity, task._fresh).tick or 1) + 1)
        for tick in range(first, whole + 1):
            view.tick = tick
            while task.catch_up().tick < tick:
                time.sleep(0.05)  # the broker is away
        signal.pause()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"transaction_timeout": "20 minutes"}, "Transaction timeout is larger than the maximum value allowed"),
        ({"settings": {"no.such.setting": 1}}, 'No such configuration property: "no.such.setting"'),
    ],
    ids=["timeout", "setting"],
)
def test_a_sink_that_kafka_would_never_take_stops(
    kafka: KafkaBroker, topic: str, view: SyntheticView, log: Log, options: dict[str, Any], said: str
) -> None:
    status = SinkTask("copy", "the view", "app", Kafka(kafka.servers, topic=topic, **options), view, log).catch_up()

    assert status.state is SinkState.STOPPED
    assert said in json.dumps(status.error).replace('\\"', '"')


def test_what_a_sink_writes_an_inlet_reads(kafka: KafkaBroker, topic: str, view: SyntheticView, log: Log) -> None:
    import headwater as hw

    task = follow(Kafka(kafka.servers, topic=topic, partitions=2), view, log)
    view.change(add=[{"id": n, "name": f"user {n}"} for n in range(50)], remove=[])
    view.change(remove=[{"id": n} for n in range(0, 50, 2)])
    task.catch_up()
    task.close()
    users = declare_table(log, "users", SCHEMA, key="id")

    with hw.inlets.Kafka(users.topic, kafka.servers, source=topic, key="json").open(log, "users") as inlet:
        eventually(lambda: inlet.lag == 0 and inlet.counters.received > 0, f"all of it; {inlet.problem}")

    assert sorted(row["id"] for row in users.rows()) == list(range(1, 50, 2))
    assert inlet.counters.refused == 0


def test_wrong_credentials_are_told_and_tried_again(
    kafka: KafkaBroker, topic: str, view: SyntheticView, log: Log
) -> None:
    settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": USER}
    settings |= {"ssl.ca.location": str(kafka.certificate)}
    servers = f"127.0.0.1:{kafka.tls_port}"
    wrong = Kafka(servers, topic=topic, settings={**settings, "sasl.password": "hush"})
    status = SinkTask("copy", "the view", "app", wrong, view, log).catch_up()

    follow(Kafka(servers, topic=topic, settings={**settings, "sasl.password": PASSWORD}), view, log).close()

    assert status.state is SinkState.RETRYING
    assert status.error is not None
    assert f"Kafka at {servers} refuses the credentials" in status.error["message"]
    assert "hush" not in repr(wrong) + str(wrong) + json.dumps(status.error)
    assert sorted(kafka.latest(topic)) == ['{"id":1}', '{"id":2}']
