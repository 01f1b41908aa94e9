"""Avro from Kafka: a real broker, and a small registry of the tests."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import InvalidDeclaration
from headwater.log.home import Log
from headwater.log.table import declare_table
from tests.services.kafka_broker import KafkaBroker
from tests.services.registry import Registry
from tests.waiting import eventually

FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "trace", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
    ],
}
SCHEMA = (
    "id BIGINT, item STRING, price DECIMAL(8,2), at TIMESTAMP, day DATE, trace STRING, tags ARRAY<STRING>, state STRING"
)
ORDER = {
    "id": 1,
    "item": "cup",
    "price": Decimal("9.50"),
    "at": dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC),
    "day": dt.date(2026, 1, 31),
    "trace": uuid.UUID(int=7),
    "tags": ["a", "b"],
    "state": "PAID",
}


@pytest.fixture
def registry() -> Iterator[Registry]:
    registry = Registry(password="s3cret")
    registry.add(7, FIRST)
    registry.add(8, {**FIRST, "fields": [*FIRST["fields"], {"name": "more", "type": "int"}]})
    registry.add(9, {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]})
    yield registry
    registry.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "home") as log:
        yield log


def test_records_of_several_schemas_and_keys_are_rows_and_deletes(
    kafka: KafkaBroker, registry: Registry, log: Log
) -> None:
    source = kafka.create("avro", 1)
    orders = declare_table(log, "orders", SCHEMA, key="id")
    keys = [registry.message(9, {"id": number}) for number in range(3)]
    newer = {**ORDER, "id": 2, "item": None, "more": 5}
    kafka.send(
        source,
        [
            (keys[1], registry.message(7, ORDER)),
            (keys[2], registry.message(8, newer)),
            (keys[0], registry.message(7, {**ORDER, "id": 0})),
            (keys[0], None),
            (keys[1], b"\x00\x00\x00\x00\x07\x80"),
            (keys[1], b'{"id": 1}'),
            (keys[1], b"\x00\x00\x00\x00\x63rest"),
        ],
    )

    declared = hw.inlets.Kafka(
        orders.topic, kafka.servers, source=source, value="avro", key="avro", registry=registry.url, unknown="ignore"
    )
    with declared.open(log, "shop") as inlet:
        eventually(lambda: inlet.counters.received == 7, f"{inlet.counters} {inlet.problem}")

    rows = {row["id"]: row for row in orders.rows()}
    assert rows == {
        1: {**ORDER, "trace": str(ORDER["trace"])},
        2: {**ORDER, "trace": str(ORDER["trace"]), "id": 2, "item": None},
    }
    reasons = [row["reason"].split("\n")[0] for row in log.get_topic("shop.dead").rows()]
    assert reasons[0].startswith("the message is not Avro of schema 7: ")
    assert reasons[1] == "the message is not Avro with the number of a schema"
    assert reasons[2] == f"the registry at http://{registry.address} has no schema 99"
    assert sorted(registry.asked) == [f"/schemas/ids/{number}" for number in (7, 8, 9, 99)], "each is asked for once"
    assert "s3cret" not in repr(declared)


def test_while_the_registry_does_not_answer_the_messages_wait(kafka: KafkaBroker, registry: Registry, log: Log) -> None:
    source = kafka.create("avro-waiting", 1)
    orders = log.topic("orders", SCHEMA)
    kafka.send(source, [("1", registry.message(7, ORDER))])
    registry.failing = True
    declared = hw.inlets.Kafka(orders, kafka.servers, source=source, value="avro", registry=registry.url)

    with declared.open(log, "shop") as inlet:
        eventually(lambda: inlet.problem, "the problem is told")
        problem, read = inlet.problem, inlet.counters.received
        registry.failing = False
        eventually(lambda: inlet.counters.appended == 1, f"it goes on; {inlet.problem}")

    assert problem == f"the schema registry at http://{registry.address} answered 503 for schema 7"
    assert read == 0
    assert "shop.dead" not in [topic.name for topic in log.topics()]


def test_a_wrong_password_of_the_registry_is_told(kafka: KafkaBroker, registry: Registry, log: Log) -> None:
    source = kafka.create("avro-password", 1)
    orders = log.topic("orders", SCHEMA)
    kafka.send(source, [("1", registry.message(7, ORDER))])
    url = registry.url.replace("s3cret", "hush")

    with hw.inlets.Kafka(orders, kafka.servers, source=source, value="avro", registry=url).open(log, "shop") as inlet:
        eventually(lambda: inlet.problem, "the problem is told")
        problem = inlet.problem or ""

    assert "answered 401" in problem
    assert "hush" not in problem


def test_avro_needs_a_registry(log: Log) -> None:
    orders = log.topic("orders", SCHEMA)

    with pytest.raises(InvalidDeclaration, match="Avro is read with the schemas of a registry"):
        hw.inlets.Kafka(orders, "localhost:9092", value="avro")
