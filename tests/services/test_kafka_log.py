"""The log on Kafka beside plain clients of Kafka, and in trouble: a real broker, no mocks."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli.main import app as cli
from headwater.errors import (
    DeclarationConflict,
    HeadwaterError,
    OffsetOutOfRange,
    RowRefused,
    Unavailable,
    UnknownTopic,
)
from headwater.kafka.kafka_keys import partitions_of
from headwater.kafka.kafka_log import KafkaLog
from headwater.log.table import declare_table
from tests.services.kafka_broker import PASSWORD, USER, KafkaBroker
from tests.waiting import eventually


@pytest.fixture
def prefix() -> str:
    return f"{uuid.uuid4().hex[:8]}."


@pytest.fixture
def log(kafka: KafkaBroker, prefix: str) -> Iterator[KafkaLog]:
    with KafkaLog(f"kafka://{kafka.servers}?prefix={prefix}") as log:
        yield log


# Other clients


def test_a_plain_consumer_reads_what_the_log_wrote(kafka: KafkaBroker, log: KafkaLog, prefix: str) -> None:
    users = declare_table(log, "users", "id BIGINT, name STRING", key="id")
    clicks = log.topic("clicks", "page STRING")

    users.upsert([{"id": 7, "name": "Ada"}, {"id": 8, "name": None}])
    users.delete([{"id": 7}])
    clicks.append([{"page": f"p{n}"} for n in range(1500)])

    assert [(each.key(), each.value()) for each in kafka.read(f"{prefix}users")] == [
        (b"7", b'{"id":7,"name":"Ada"}'),
        (b"8", b'{"id":8,"name":null}'),
        (b"7", None),
    ]
    tables = [pa.ipc.open_stream(each.value()).read_all() for each in kafka.read(f"{prefix}clicks")]
    assert [table.num_rows for table in tables] == [1000, 500]
    assert pa.concat_tables(tables).column("page").to_pylist() == [f"p{n}" for n in range(1500)]
    declared = json.loads(kafka.latest(f"{prefix}_headwater.topics")["users"])
    assert declared["columns"] == "id BIGINT NOT NULL, name STRING"


def test_rows_of_json_are_a_message_each_where_the_address_says_so(kafka: KafkaBroker, prefix: str) -> None:
    with KafkaLog(f"kafka://{kafka.servers}?prefix={prefix}&rows=json") as log:
        log.topic("clicks", "page STRING").append([{"page": "a"}, {"page": "b"}])

        assert [each.value() for each in kafka.read(f"{prefix}clicks")] == [b'{"page":"a"}', b'{"page":"b"}']
        assert list(log.get_topic("clicks").rows()) == [{"page": "a"}, {"page": "b"}]


def test_the_log_reads_what_a_plain_producer_wrote(kafka: KafkaBroker, log: KafkaLog, prefix: str) -> None:
    users = declare_table(log, "users", "id BIGINT, name STRING, at TIMESTAMP", key="id", partitions=3)
    foreign = {"name": "Ada", "at": "2026-01-31T10:00:00Z", "more": [1]}
    written = [(str(n).encode(), json.dumps(foreign).encode()) for n in range(20)]

    kafka.send(f"{prefix}users", [*written, (b"3", None)], partitioner="murmur2_random")
    users.upsert([{"id": n, "name": "Grace", "at": None} for n in range(0, 20, 2)])

    names = {row["id"]: row["name"] for row in users.to_arrow().to_pylist()}
    assert names == {n: "Ada" if n % 2 else "Grace" for n in range(20) if n != 3}
    # Both went by the same partitioner, or a key would have two rows.
    places = {row["id"]: row["_partition"] for row in users.topic.rows(columns=["id", "_partition"])}
    assert [places[n] for n in range(20)] == partitions_of([str(n).encode() for n in range(20)], 3).tolist()


def test_keys_of_clients_of_librdkafka_are_in_their_partitions_or_refused(
    kafka: KafkaBroker, log: KafkaLog, prefix: str
) -> None:
    """librdkafka's own producer, told nothing of a partitioner, is the oracle of where crc32 places a key."""

    def places(key: str) -> list[int]:
        return [int(partitions_of([key.encode()], 4, each)[0]) for each in ("murmur2", "crc32")]

    keys = ["", *(str(n) for n in range(9, 2_000, 97)), "ü" * 7, "a much longer key, of forty bytes and more"]
    for name in ("ours", "theirs", "mixed", "javas"):
        kafka.create(f"{prefix}{name}", 4)
    rows = [(key.encode(), json.dumps({"id": key, "name": "Ada"}).encode()) for key in keys]

    kafka.send(f"{prefix}theirs", rows[1:])  # an empty key goes anywhere
    kafka.send(f"{prefix}mixed", rows[1:])
    theirs, ours, mixed = (
        declare_table(log, name, "id STRING, name STRING", key="id", partitions=4, partitioner=partitioner)
        for name, partitioner in (("theirs", "crc32"), ("ours", "crc32"), ("mixed", "murmur2"))
    )
    ours.upsert([{"id": key, "name": "Grace"} for key in keys])
    mine = {each.key(): each.partition() for each in kafka.read(f"{prefix}ours")}

    placed = {each.key(): each.partition() for each in kafka.read(f"{prefix}theirs")}
    assert {key: mine[key] for key in placed} == placed
    kafka.send(f"{prefix}javas", rows, partitioner="murmur2_random")
    javas = {each.key(): each.partition() for each in kafka.read(f"{prefix}javas")}
    assert partitions_of([key for key, _ in rows], 4).tolist() == [javas[key] for key, _ in rows]
    assert [theirs.get(key) for key in keys[1:]] == [[{"id": key, "name": "Ada"}] for key in keys[1:]]
    theirs.upsert([{"id": key, "name": "Grace"} for key in keys[1:]])
    assert sorted(row["name"] for row in theirs.rows()) == ["Grace"] * len(keys[1:])
    with pytest.raises(RowRefused, match=r"mixed\[\d\]@\d+ is in another partition than its key: by murmur2") as told:
        mixed.to_arrow()
    assert 'declare it with partitioner="crc32"' in str(told.value)
    # The way out: the setting is no part of what is there, and what is there is checked by it.
    mixed = declare_table(log, "mixed", "id STRING, name STRING", key="id", partitions=4, partitioner="crc32")
    assert {row["id"] for row in mixed.rows()} == set(keys[1:])
    with KafkaLog(log.address) as other:
        assert other.get_topic("mixed").settings.partitioner == "crc32"
        # A process that writes all the while learns of it. This key has one place, whoever looks.
        [anywhere, *_] = [key for key in keys if len({*places(key)}) == 1]
        declare_table(other, "ours", "id STRING, name STRING", key="id", partitions=4, partitioner="murmur2")

    def learned() -> bool:
        ours.upsert([{"id": anywhere, "name": "Grace"}])
        return ours.topic.settings.partitioner == "murmur2"

    eventually(learned, "the writer sees the newer declaration")


def test_a_topic_is_found_as_soon_as_another_process_has_declared_it(log: KafkaLog) -> None:
    log.topic("first", "n INT")
    with KafkaLog(log.address) as other:
        assert other.topic_names() == ["first"]
        log.topic("second", "n INT")

        assert other.get_topic("second").name == "second"


def test_a_topic_that_is_there_already_is_taken_as_it_is(kafka: KafkaBroker, log: KafkaLog, prefix: str) -> None:
    kafka.create(f"{prefix}users", 2)
    kafka.send(f"{prefix}users", [(b"1", b'{"name":"Ada"}')], partitioner="murmur2")

    with pytest.raises(HeadwaterError, match="has 2 partitions, and 1 are declared"):
        log.topic("users", "id BIGINT, name STRING", key="id")
    users = log.topic("users", "id BIGINT, name STRING", key="id", partitions=2)

    assert list(users.rows(columns=["id", "name"])) == [{"id": 1, "name": "Ada"}]


def test_a_foreign_message_that_is_no_row_is_told_with_its_place(
    kafka: KafkaBroker, log: KafkaLog, prefix: str
) -> None:
    users = log.topic("users", "id BIGINT, name STRING", key="id")
    kafka.send(f"{prefix}users", [(b"1", b'{"name":"Ada"}'), (b"2", b'{"name":7}')])

    with pytest.raises(RowRefused, match=r'users\[0\]@1 is not a row of topic "users": .*column "name"'):
        list(users.rows())


def test_debeziums_messages_in_a_topic_of_the_log_are_a_table(kafka: KafkaBroker, prefix: str, tmp_path: Path) -> None:
    def message(op: str, before: Any = None, after: Any = None) -> dict[str, str]:
        return {"value": json.dumps({"op": op, "before": before, "after": after, "ts_ms": 1_700_000_000_000})}

    def rows(count: int) -> list[dict[str, str]]:
        return [message("c", None, {"id": n, "name": "Ada"}) for n in range(count)]

    source = hw.capture.Debezium("dbz.users", schema="id BIGINT, name STRING", key="id")
    for more, left in (
        ([*rows(5), message("t"), *rows(3)], {0: "Ada", 1: "Ada", 2: "Ada"}),  # all of them in one message of Kafka
        ([message("d", {"id": 1})], {0: "Ada", 2: "Ada"}),
        ([message("u", {"id": 2}, {"id": 7, "name": "Bob"})], {0: "Ada", 7: "Bob"}),
    ):
        with hw.App("shop", home=tmp_path, log=f"kafka://{kafka.servers}?prefix={prefix}") as app:
            messages, users = app.topic("dbz.users", "value STRING"), app.table("users", source=source)
            messages.append(more)
            app.capture(until="caught up", timeout=60)
            assert {row["id"]: row["name"] for row in users.to_arrow().to_pylist()} == left
    assert sum(each.value() is None for each in kafka.read(f"{prefix}users")) == 5 + 2  # nothing was taken twice


# Offsets with holes


def test_rows_are_counted_by_what_is_there_and_not_by_offsets(kafka: KafkaBroker, log: KafkaLog, prefix: str) -> None:
    from confluent_kafka import Producer

    topic = log.topic("n", "id BIGINT", key="id")
    topic.append([{"id": 1}, {"id": 2}])
    aborted = Producer({"bootstrap.servers": kafka.servers, "transactional.id": prefix, "log_level": 0})
    aborted.init_transactions(30)
    aborted.begin_transaction()
    for n in range(3):
        aborted.produce(f"{prefix}n", b"{}", str(n).encode())
    aborted.flush(30)
    aborted.abort_transaction(30)
    topic.append([{"id": 3}, {"id": 4}])

    ends = topic.end_offsets()
    assert ends[0] == 2 + 1 + 3 + 1 + 2 + 1  # rows and a marker for each transaction
    assert [row["id"] for row in topic.rows()] == [1, 2, 3, 4]
    holes = list(topic.read_partition(0, 2, stop=7))
    assert [(batch.num_rows, batch.next_offset) for batch in holes] == [(0, 7)]
    for start in range(ends[0]):
        found = [row for batch in topic.read_partition(0, start, stop=ends[0]) for row in batch.to_pylist()]
        assert [row["id"] for row in found] == [n for n, at in ((1, 0), (2, 1), (3, 7), (4, 8)) if at >= start]


def test_settings_are_kafkas_settings(kafka: KafkaBroker, log: KafkaLog, prefix: str) -> None:
    from confluent_kafka.admin import ConfigResource

    log.topic("users", "id BIGINT", key="id", compact=True, tombstone_grace="1 hour")
    log.topic("clicks", "page STRING", retention="7 days", retention_bytes=1 << 30)
    log.topic("kept", "page STRING")
    log.topic("clicks", "page STRING", retention="1 day")

    def of(name: str) -> tuple[str, str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, prefix + name)
        found = kafka.admin.describe_configs([resource])[resource].result(30)
        values = [found[each].value for each in ("cleanup.policy", "retention.ms", "retention.bytes")]
        return values[0], values[1], values[2]

    assert of("users") == ("compact", "-1", "-1")
    assert of("clicks") == ("delete", "86400000", str(1 << 30))
    assert of("kept") == ("delete", "-1", "-1")


# The command line


def test_the_command_line_sees_a_log_on_kafka(kafka: KafkaBroker, log: KafkaLog, tmp_path: Path) -> None:
    def run(*words: str, stdin: str = "", status: int = 0) -> Any:
        result = CliRunner().invoke(cli, [*words, "--json"], input=stdin)
        assert result.exit_code == status, result.stderr
        said, found = (result.stderr if status else result.stdout).strip(), list[Any]()
        while said:
            document, end = json.JSONDecoder().raw_decode(said)
            found.append(document)
            said = said[end:].strip()
        return found

    at, row = ("--log", log.address), '{"id": 7, "name": "Ada"}'
    columns = ("--schema", "id BIGINT, name STRING", "--key", "id", "--partitions", "2", "--partitioner", "crc32")
    run("topic", "create", "users", *columns, *at)
    run(*at, "topic", "append", "users", stdin=row)
    run("topic", "append", "users", "--producer", "import", *at, stdin=row)
    run("topic", "append", "users", "--producer", "import", *at, stdin=row)  # skipped: it was written
    with log.get_topic("users").consumer("billing") as consumer:
        assert consumer.poll(60) is not None
        consumer.commit()

    assert [(each["name"], each["settings"]["partitioner"]) for each in run("topic", "ls", *at)[0]] == [
        ("users", "crc32")
    ]
    assert run("topic", "tail", "users", *at) == [json.loads(row)] * 2
    assert [each["group"] for each in run("group", "ls", *at)[0]] == ["billing"]
    assert [(each["reader"], each["kind"]) for each in run("lag", *at)[0]["readers"]] == [("billing", "consumer")]
    [refused] = run("group", "delete", "billing", "--topic", "users", *at, status=2)
    assert refused["code"] == "not_offered"
    assert "kafka-consumer-groups" in refused["hint"]
    [refused] = run(*at, "check", "--home", str(tmp_path), status=2)
    assert refused["code"] == "invalid_declaration"
    [refused] = run("topic", "ls", "--home", log.address, status=2)
    assert "a home is a folder" in refused["message"]
    log.topic("gone", "n INT")
    kafka.remake(log.kafka_name("gone"))
    [refused] = run("topic", "ls", *at, status=2)  # beside those that are there
    assert refused["code"] == "unknown_topic"
    for name in ("users", "gone"):
        run("topic", "delete", name, "--yes", *at)
    assert run("topic", "ls", *at) == [[]]
    assert kafka.exists(log.kafka_name("gone")), "of a topic that is gone only the declaration went"


# Several processes


def test_declarations_at_once_agree(kafka: KafkaBroker, prefix: str) -> None:
    address, found = f"kafka://{kafka.servers}?prefix={prefix}", list[Any]()

    def declare(columns: str) -> None:
        try:
            with KafkaLog(address) as log:
                topic = log.topic("wide", columns, key="id")
                found.append((topic.id, topic.schema_version))
        except BaseException as error:
            found.append(error)

    def at_once(columns: str) -> set[Any]:
        found.clear()
        threads = [threading.Thread(target=declare, args=(columns,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        return set(found)

    first = at_once("id BIGINT")
    second = at_once("id BIGINT, name STRING")

    assert len(found) == 4
    assert {version for _, version in first} == {1}
    assert second == {(number, 2) for number, _ in first}
    assert len(second) == 1


# Trouble


def test_an_address_that_cannot_work_is_told(kafka: KafkaBroker, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"Kafka at 127.0.0.1:1 does not answer"):
        KafkaLog("kafka://127.0.0.1:1").topics()
    sasl = f"security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN&sasl.username={USER}"
    with pytest.raises(Unavailable, match="refuses the credentials") as told:
        KafkaLog(f"kafka://127.0.0.1:{kafka.password_port}?{sasl}&sasl.password=hush").topics()
    assert "hush" not in str(told.value)
    with pytest.raises(HeadwaterError, match="there is no log of the kind pulsar"):
        hw.App("shop", home=tmp_path / "a", log="pulsar://localhost").log.topics()
    right = f"kafka://127.0.0.1:{kafka.password_port}?{sasl}&sasl.password={PASSWORD}"
    with KafkaLog(right) as log:
        assert isinstance(log.topics(), list)
        assert PASSWORD not in log.shown + repr(log)


def test_a_topic_that_is_deleted_under_the_log_is_told(kafka: KafkaBroker, log: KafkaLog, prefix: str) -> None:
    topic = log.topic("t", "n INT")
    topic.append([{"n": n} for n in range(3)])
    topic.append([{"n": 4}])
    ends = topic.end_offsets()

    kafka.delete(f"{prefix}t")
    eventually(lambda: not kafka.exists(f"{prefix}t"), "the topic is gone")
    # The partition's leader answers for a moment longer than Kafka lists the topic.
    eventually(lambda: _error_of(topic.end_offsets), "its offsets are not answered any more")
    with pytest.raises(UnknownTopic, match=r"has no topic .* any more"):
        topic.end_offsets()
    kafka.create(f"{prefix}t")
    eventually(lambda: kafka.exists(f"{prefix}t"), "the topic is there again")
    with pytest.raises(UnknownTopic, match=r"has no topic .* any more"):
        topic.end_offsets()

    assert ends[0] > 1


def test_a_topic_that_others_made_again_is_told_and_its_declaration_can_be_taken_away(
    kafka: KafkaBroker, log: KafkaLog, prefix: str
) -> None:
    users = declare_table(log, "users", "id BIGINT, name STRING", key="id")
    users.upsert([{"id": n, "name": "Ada"} for n in range(3)])
    more = [(str(n).encode(), b'{"name": "Grace"}') for n in range(10, 20)]

    kafka.remake(f"{prefix}users")
    kafka.send(f"{prefix}users", more)  # more than there was: no offset has gone back
    again = r'has no topic ".*users" any more, but another one of this name'
    with pytest.raises(UnknownTopic, match=again):
        users.to_arrow()
    with KafkaLog(log.address) as other:
        with pytest.raises(UnknownTopic, match=again):
            list(other.get_topic("users").rows())
        with pytest.raises(UnknownTopic, match=again):
            other.topic("users", "id BIGINT, name STRING, born DATE", key="id")
        with pytest.raises(UnknownTopic, match=again):
            other.get_topic("users").append([{"id": 1, "name": "Eve"}])
        other.delete_topic("users")
        found = declare_table(other, "users", "id BIGINT, name STRING", key="id")

        assert sorted(row["id"] for row in found.rows()) == list(range(10, 20))


def test_partitions_that_others_added_are_told(kafka: KafkaBroker, log: KafkaLog, prefix: str) -> None:
    clicks = log.topic("clicks", "page STRING", values="json")
    clicks.append([{"page": "/"}])

    kafka.grow(f"{prefix}clicks", 3)
    kafka.send(f"{prefix}clicks", [(None, b'{"page": "/b"}', 2)])

    told = r'Kafka topic ".*clicks" has 3 partitions now, and 1 are declared'
    eventually(
        lambda: isinstance(_error_of(clicks.end_offsets), DeclarationConflict),
        "it is told though no offset that it knows has moved",
    )
    with pytest.raises(HeadwaterError, match=told):
        list(clicks.rows())
    with KafkaLog(log.address) as other, pytest.raises(HeadwaterError, match=told):
        list(other.get_topic("clicks").rows())


def _error_of(call: Callable[[], Any]) -> HeadwaterError | None:
    try:
        call()
    except HeadwaterError as error:
        return error
    return None


def test_offsets_that_retention_took_are_told(kafka: KafkaBroker, log: KafkaLog, prefix: str) -> None:
    topic = log.topic("t", "n INT")
    for n in range(5):
        topic.append([{"n": n}])
    stop = topic.end_offsets()[0]

    kafka.drop_before(f"{prefix}t", 3)

    with pytest.raises(OffsetOutOfRange, match=r'offset 0 is not in Kafka topic ".*t" partition 0 any more'):
        list(topic.read_partition(0, 0, stop=stop))
    other = KafkaLog(log.address)
    assert [row["n"] for row in other.get_topic("t").rows()] == [3, 4]
    other.close()


def test_a_group_skips_nothing_in_silence_whether_it_is_gone_or_no_row(
    kafka: KafkaBroker, log: KafkaLog, prefix: str
) -> None:
    topic = log.topic("t", "n INT", values="json")
    kafka.send(f"{prefix}t", [(None, value) for value in (b'{"n":0}', b"none", b'{"n":2}', b'{"n":3}', b'{"n":4}')])

    with topic.consumer("billing") as consumer:
        first = consumer.poll(60)
        assert first is not None
        assert first.to_pylist() == [{"n": 0}]
        for _ in range(2):
            with pytest.raises(RowRefused, match=r"t\[0\]@1 is not a row") as refused:
                consumer.poll(60)
        consumer.commit()
    assert "headwater group reset billing --topic t --partition 0 --to 2" in str(refused.value)
    assert topic.group("billing").positions() == {0: 1}
    topic.group("billing").reset({0: 2})
    kafka.drop_before(f"{prefix}t", 4)
    with topic.consumer("billing") as consumer:
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange, match='offset 2 of group billing is before the start of topic "t"'):
                consumer.poll(60)
    topic.group("billing").reset("earliest")
    with topic.consumer("billing") as consumer:
        last = consumer.poll(60)

    assert last is not None
    assert last.to_pylist() == [{"n": 4}]


def test_a_broker_that_goes_and_comes_back_loses_nothing(kafka: KafkaBroker, log: KafkaLog) -> None:
    topic = log.topic("t", "n INT", key="n", partitions=2)
    topic.append([{"n": 1}, {"n": 2}])

    kafka.kill()
    try:
        with pytest.raises(Unavailable, match=r"does not answer|failed a transaction"):
            topic.append([{"n": 3}, {"n": 4}])
        with pytest.raises(Unavailable, match="does not answer"):
            topic.append([{"n": 3}])
        with pytest.raises(Unavailable, match="does not answer"):
            topic.end_offsets()
    finally:
        kafka.start()
    topic.append([{"n": 5}, {"n": 6}])
    topic.append([{"n": 7}])

    assert {1, 2, 5, 6, 7} <= {row["n"] for row in topic.rows()} <= {1, 2, 3, 4, 5, 6, 7}
