"""Foreign topics of Kafka as they are: JSON, Avro and Debezium's envelopes, written by plain clients, are tables."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import DeclarationConflict, LogUnavailable, RowRefused, Unavailable
from headwater.kafka.kafka_log import KafkaLog
from headwater.log.table import declare_table
from tests.services.kafka_broker import PASSWORD, USER, KafkaBroker
from tests.services.registry import Registry

MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"]},
        {"name": "at", "type": MOMENT},
    ],
}
AT = dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC)


@pytest.fixture
def registry() -> Iterator[Registry]:
    registry = Registry()
    registry.add(7, ORDER)
    registry.add(8, {**ORDER, "fields": [*ORDER["fields"], {"name": "price", "type": "double"}]})
    registry.add(9, {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]})
    yield registry
    registry.close()


@pytest.fixture
def prefix() -> str:
    return f"{uuid.uuid4().hex[:8]}."


@pytest.fixture
def address(kafka: KafkaBroker, prefix: str, registry: Registry) -> str:
    return f"kafka://{kafka.servers}?prefix={prefix}&registry={registry.url}"


def test_a_view_joins_topics_that_other_clients_write_in_json_avro_and_debeziums_envelopes(
    kafka: KafkaBroker, prefix: str, address: str, registry: Registry, tmp_path: Path
) -> None:
    for name in ("clicks", "orders", "dbz"):
        kafka.create(prefix + name)

    def envelope(op: str, before: Any = None, after: Any = None) -> bytes:
        return json.dumps({"op": op, "before": before, "after": after, "ts_ms": 1}).encode()

    def order(number: int, item: str) -> tuple[bytes, bytes]:
        return registry.message(9, {"id": number}), registry.message(7, {"id": number, "item": item, "at": AT})

    kafka.send(f"{prefix}clicks", [(None, b'{"item": "cup", "more": 1}')] * 3 + [(None, b'{"item": "pot"}')])
    kafka.send(f"{prefix}orders", [order(1, "cup"), order(2, "pot"), order(3, "jug")])
    rows = [(b"k", envelope("c", None, {"item": name, "price": 2})) for name in ("cup", "pot", "jug")]
    kafka.send(f"{prefix}dbz", rows)

    with hw.App("shop", home=tmp_path, log=address) as app:
        app.topic("clicks", "item STRING", values="json")
        app.table("orders", "id BIGINT, item STRING, at TIMESTAMP", key="id", values="avro")
        app.topic("dbz", "value STRING", values="raw")
        items = hw.capture.Debezium("dbz", schema="item STRING, price INT", key="item")
        app.table("items", source=items)
        app.view("clicked", "SELECT item, count(*) AS clicks FROM clicks GROUP BY item")
        app.view("sold", "SELECT o.item, count(*) AS n, sum(i.price) AS paid FROM orders o JOIN items i USING (item) "
                 "GROUP BY o.item")  # fmt: skip

        def shown() -> dict[str, Any]:
            app.capture(until="caught up", timeout=60)
            app.tick()
            return {
                name: sorted(tuple(row.values()) for row in app.get_view(name).rows()) for name in ("clicked", "sold")
            }

        first = shown()
        kafka.send(f"{prefix}clicks", [(None, b'{"item": "jug"}')])
        newer = registry.message(8, {"id": 2, "item": "cup", "at": AT, "price": 1.5})  # of a newer schema
        kafka.send(f"{prefix}orders", [(registry.message(9, {"id": 2}), newer), (registry.message(9, {"id": 3}), None)])
        moved = envelope("u", {"item": "cup"}, {"item": "cup", "price": 5})
        kafka.send(f"{prefix}dbz", [(b"k", moved), (b"k", envelope("d", {"item": "jug"})), (b"k", None)])
        second = shown()
        verified = app.verify()

    assert first == {"clicked": [("cup", 3), ("pot", 1)], "sold": [("cup", 1, 2), ("jug", 1, 2), ("pot", 1, 2)]}
    assert second == {"clicked": [("cup", 3), ("jug", 1), ("pot", 1)], "sold": [("cup", 2, 10)]}
    assert not any(each.missing_count or each.surplus_count for each in verified)


def test_a_plain_client_reads_the_avro_that_the_log_wrote(
    kafka: KafkaBroker, prefix: str, address: str, registry: Registry
) -> None:
    import io

    import fastavro

    with KafkaLog(address) as log:
        orders = declare_table(log, "orders", "id BIGINT, item STRING, at TIMESTAMP", key="id", values="avro")
        orders.upsert([{"id": 1, "item": "cup", "at": AT}, {"id": 2, "item": None, "at": None}])
        orders.delete([{"id": 1}])

        found = kafka.read(f"{prefix}orders")
        number = int.from_bytes(found[0].value()[1:5], "big")
        schema = fastavro.parse_schema(json.loads(registry.schemas[number]["schema"]))
        records = [each.value() and fastavro.schemaless_reader(io.BytesIO(each.value()[5:]), schema) for each in found]
        rows = list(orders.rows())

    assert [each.key() for each in found] == [b"1", b"2", b"1"]
    assert records == [{"id": 1, "item": "cup", "at": AT}, {"id": 2, "item": None, "at": None}, None]
    assert rows == [{"id": 2, "item": None, "at": None}]
    assert registry.subjects == {f"{prefix}orders-value": [number]}


def test_keys_in_avro_are_where_their_bytes_belong(
    kafka: KafkaBroker, prefix: str, address: str, registry: Registry
) -> None:
    kafka.create(f"{prefix}orders", 3)
    numbers = range(12)
    sent = [(registry.message(9, {"id": n}), registry.message(7, {"id": n, "item": "cup", "at": AT})) for n in numbers]

    kafka.send(f"{prefix}orders", [*sent, (sent[3][0], None)], partitioner="murmur2")
    with KafkaLog(address) as log:
        orders = declare_table(log, "orders", "id BIGINT, item STRING", key="id", values="avro", partitions=3)

        assert {row["id"] for row in orders.rows()} == set(numbers) - {3}
        assert [len(orders.get(n)) for n in numbers] == [n != 3 for n in numbers]
        [place] = {each.partition() for each in kafka.read(f"{prefix}orders") if each.key() == sent[5][0]}
        kafka.send(f"{prefix}orders", [(*sent[5], (place + 1) % 3)])
        with pytest.raises(RowRefused, match="is in another partition than its key"):
            orders.get(5)


def test_a_schema_that_others_changed_is_told_and_nothing_is_guessed(
    kafka: KafkaBroker, prefix: str, address: str, registry: Registry
) -> None:
    """Somebody else changes what messages hold, or what the log's topic is declared as."""
    text = {**ORDER, "fields": [{"name": "id", "type": "string"}]}
    registry.add(10, text)
    with KafkaLog(address) as log, KafkaLog(address) as other:
        orders = log.topic("orders", "id BIGINT, item STRING", key="id", values="avro")
        users = log.topic("users", "id BIGINT, name STRING", key="id")
        users.append([{"id": 1, "name": "Ada"}])

        kafka.send(f"{prefix}orders", [(b"1", registry.message(10, {"id": "one"}))])
        with pytest.raises(RowRefused, match=r'orders\[0\]@0 is not a row of topic "orders": .*column "id": .one.'):
            list(orders.rows())
        registry.failing = True
        kafka.send(f"{prefix}orders", [(b"2", b"\0\0\0\0\x0brest")])
        with pytest.raises(Unavailable, match=r"the schema registry at .* answered 503 for schema 11"):
            list(orders.read_partition(0, 1))
        registry.failing = False

        other.topic("users", "id BIGINT, name STRING, born DATE", key="id")  # a column more: rows go on
        users.append([{"id": 2, "name": "Grace"}])
        grown = [row["id"] for row in users.rows()]
        with pytest.raises(DeclarationConflict, match=r'values of topic "users" is None and cannot become .avro.'):
            other.topic("users", "id BIGINT, name STRING", key="id", values="avro")
        with pytest.raises(Exception, match="name") as narrowed:
            other.topic("users", "id BIGINT, name INT", key="id")

    assert grown == [1, 2]
    assert isinstance(narrowed.value, hw.errors.HeadwaterError)


def test_wrong_credentials_and_wrong_tls_are_told_in_a_sentence(kafka: KafkaBroker) -> None:
    def told(port: int, **settings: str) -> str:
        given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": USER, **settings}
        query = "&".join(f"{name.replace('_', '.')}={value}" for name, value in given.items())
        with KafkaLog(f"kafka://127.0.0.1:{port}?{query}") as log:
            with pytest.raises(LogUnavailable) as error:
                log.topics()
            assert "hush" not in str(error.value) + log.shown
            return error.value.message

    ca = str(kafka.certificate)
    with KafkaLog(
        f"kafka://127.0.0.1:{kafka.tls_port}?security.protocol=SASL_SSL&sasl.mechanism=PLAIN&sasl.username={USER}"
        f"&sasl.password={PASSWORD}&ssl.ca.location={ca}"
    ) as log:
        assert isinstance(log.topics(), list)
    where = f"Kafka at 127.0.0.1:{kafka.tls_port}"
    assert told(kafka.tls_port, sasl_password="hush", ssl_ca_location=ca).startswith(
        f"{where} refuses the credentials: "
    )
    assert told(kafka.tls_port, sasl_password=PASSWORD).startswith(f"{where} cannot be reached by TLS: ")
