"""Rows as records of Avro and back: column by column as fastavro reads them, one by one."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import DeclarationConflict, InvalidDeclaration, RowRefused
from headwater.kafka.kafka_address import KafkaAddress
from headwater.kafka.kafka_transactions import KafkaRecord
from headwater.kafka.kafka_values import KafkaValues
from headwater.kafka.values import avro_values
from headwater.kafka.values.avro_columns import avro_columns
from headwater.log.topic_rows import nullable
from tests.services.registry import Registry
from tests.unit.kafka.test_kafka_values import PLAIN, Message, plain_rows, sent, topic_row

NESTED = "id BIGINT, price DECIMAL(8,2), tags ARRAY<STRING>, place STRUCT<x: INT, y: DOUBLE>, raw BINARY"


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    registry = Registry()
    yield registry
    registry.close()


def form_of(registry: Registry, ddl: str, **options: Any) -> KafkaValues:
    row = topic_row(ddl, values="avro", **options)
    return KafkaValues(lambda: row, KafkaAddress.parse(f"kafka://localhost:9092?registry={registry.url}"))


@functools.lru_cache(1)
def known_form(registry: Registry) -> KafkaValues:
    return form_of(registry, PLAIN, key=("id",))


@settings(deadline=None, max_examples=50)
@given(rows=st.lists(plain_rows, min_size=1, max_size=20), cut=st.integers(0, 3))
def test_columns_are_what_fastavro_reads(registry: Registry, rows: list[dict[str, Any]], cut: int) -> None:
    form = known_form(registry)
    batch = pa.RecordBatch.from_pylist(rows, schema=nullable(topic_row(PLAIN).schema))
    messages = sent(form, batch)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(avro_values, "avro_columns", lambda *_, **__: None)
        slow = form.batch(messages, 0)
    schema = form._avro.registry.schema(int.from_bytes(messages[0].value()[1:5], "big"))
    values = [message.value() for message in messages]
    quick = avro_columns(values, schema, batch.schema, head=5)

    assert slow.select(batch.schema.names).equals(batch)
    assert quick is not None
    assert pa.RecordBatch.from_arrays(quick, schema=batch.schema).equals(batch)
    if cut:  # a record that ends early is never a row
        assert avro_columns([*values, values[0][:-cut]], schema, batch.schema, head=5) is None


def test_nested_and_exact_values_come_back(registry: Registry) -> None:
    form = form_of(registry, NESTED)
    full = {"id": 1, "price": Decimal("9.50"), "tags": ["a", None], "place": {"x": 1, "y": None}, "raw": b"\0\xff"}
    rows = [full, {**dict.fromkeys(full), "id": 2}]
    batch = pa.RecordBatch.from_pylist(rows, schema=topic_row(NESTED).schema)

    found = form.batch(sent(form, batch), 0)

    assert found.select(list(full)).to_pylist() == rows
    assert form.batch([], 0).schema == found.schema, "a range may hold no message"


def test_records_of_several_schemas_are_in_their_order_and_tombstones_among_them(registry: Registry) -> None:
    base = [{"name": "id", "type": "int"}, {"name": "flag", "type": ["boolean", "null"]}]
    registry.add(1, {"type": "record", "name": "a", "fields": base})
    kinds = {"type": "enum", "name": "k", "symbols": ["X", "Y"]}
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    more = [{"name": "name", "type": kinds}, {"name": "at", "type": moment}, {"name": "other", "type": "string"}]
    registry.add(2, {"type": "record", "name": "b", "fields": [*base, *more]})
    registry.add(3, "long")
    one, two = (
        registry.message(1, {"id": 1, "flag": None}),
        registry.message(
            2, {"id": 2, "flag": True, "name": "Y", "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "other": "é"}
        ),
    )
    values = [two, one, two, one]
    messages = [Message(KafkaRecord(b"", value), at) for at, value in enumerate(values)]
    form = form_of(registry, PLAIN, key=("id",))

    whole = form.batch(messages, 0)
    gone = form.batch([*messages, Message(KafkaRecord(registry.message(3, 2), None), 4)], 0)

    assert whole["id"].to_pylist() == [2, 1, 2, 1]
    assert whole["name"].to_pylist() == ["Y", None, "Y", None]
    assert whole["flag"].to_pylist() == [True, None, True, None]
    assert whole["at"].to_pylist()[0] == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert gone.slice(0, 4).equals(whole)
    assert (gone["id"][4].as_py(), gone["_deleted"].to_pylist()) == (2, [False] * 4 + [True])


@pytest.mark.parametrize("value", [b"", b'{"id":1}', b"\0\0\0\0\1", b"\0\0\0\0\1\x02\x04", b"\0\0\0\3\xe7\x02"])
def test_what_is_no_record_is_refused_with_its_place(registry: Registry, value: bytes) -> None:
    registry.add(1, {"type": "record", "name": "a", "fields": [{"name": "id", "type": "int"}]})
    good = Message(KafkaRecord(b"1", registry.message(1, {"id": 1})), 0)
    wrong = Message(KafkaRecord(b"1", value[:-1] if value.endswith(b"\x04") else value), 1)
    form = form_of(registry, PLAIN, key=("id",))

    if value.endswith(b"\x04"):  # a whole record
        assert form.batch([good, wrong], 0)["id"].to_pylist() == [1, 1]
    else:
        with pytest.raises(RowRefused, match=r't\[0\]@1 is not a row of topic "t"'):
            form.batch([good, wrong], 0)


def test_a_schema_is_registered_once_and_one_that_the_registry_refuses_is_told(registry: Registry) -> None:
    form, before = form_of(registry, "n INT"), len(registry.asked)
    batch = pa.RecordBatch.from_pylist([{"n": 1}], schema=topic_row("n INT").schema)
    sent(form, batch)
    sent(form, batch)
    registry.frozen = True
    wider = pa.RecordBatch.from_pylist([{"m": 1}], schema=topic_row("m INT").schema)

    assert registry.asked[before:] == ["/subjects/t-value/versions"]
    with pytest.raises(DeclarationConflict, match='does not take the schema of "t-value"'):
        sent(form_of(registry, "m INT"), wider)
    registry.frozen = False


@pytest.mark.parametrize(
    ("ddl", "form", "said"),
    [
        ("a MAP<INT, INT>", "avro", 'column "a" is MAP<INT, INT>, which Avro has no type for'),
        ("`a b` INT", "avro", 'column "a b" has a name that Avro does not allow'),
        ("a INT", "raw", "not one column of STRING or BINARY"),
    ],
)
def test_a_declaration_that_no_message_could_hold_is_refused(
    registry: Registry, ddl: str, form: str, said: str
) -> None:
    row = topic_row(ddl, values=form)
    place = KafkaAddress.parse(f"kafka://localhost:9092?registry={registry.url}")

    with pytest.raises(InvalidDeclaration, match=said):
        KafkaValues(lambda: row, place).check()
    if form == "avro":
        with pytest.raises(InvalidDeclaration, match="names no schema registry"):
            KafkaValues(lambda: row, KafkaAddress.parse("kafka://localhost:9092")).check()
