"""Rows as messages of Kafka and back: each value as it was, column by column as one by one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import RowRefused
from headwater.kafka import kafka_values
from headwater.kafka.kafka_address import KafkaAddress
from headwater.kafka.kafka_keys import key_bytes, key_values
from headwater.kafka.kafka_values import KafkaValues
from headwater.kafka.values.json_columns import json_columns
from headwater.log.catalog.registry import TopicRow
from headwater.log.schema.normalization import normalize_schema
from headwater.log.topic_rows import nullable
from headwater.log.topic_settings import TopicSettings
from tests.unit.typed_rows import key_types, values


@dataclass(frozen=True)
class Message:
    """What a consumer gives of a message."""

    sent: Any
    at: int

    def key(self) -> Any:
        return self.sent.key

    def value(self) -> Any:
        return self.sent.value

    def headers(self) -> Any:
        return list(self.sent.headers)

    def offset(self) -> int:
        return self.at

    def partition(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000


TIME = pa.timestamp("us", tz="UTC")
PLACE = KafkaAddress.parse("kafka://localhost:9092")


def topic_row(ddl: str, **options: Any) -> TopicRow:
    return TopicRow(1, "t", TopicSettings(**options), {1: normalize_schema(ddl)}, 0, 0)


def sent(form: KafkaValues, batch: pa.RecordBatch, **options: Any) -> list[Message]:
    return [Message(record, at) for at, record in enumerate(form.records(batch, 0, **options))]


PLAIN = "id BIGINT, small TINYINT, name STRING, flag BOOLEAN, ratio DOUBLE, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE"
plain_rows = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "small": st.none() | st.integers(-128, 127),
        "name": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        "flag": st.none() | st.booleans(),
        "ratio": st.none() | st.floats(allow_nan=False),
        "at": st.none() | st.datetimes(timezones=st.just(UTC)),
        "local": st.none() | st.datetimes(),
        "day": st.none() | st.dates(),
    }
)


@settings(deadline=None)
@given(st.lists(plain_rows, min_size=1, max_size=20))
def test_arrows_parser_reads_what_ours_reads(rows: list[dict[str, Any]]) -> None:
    row = topic_row(PLAIN, key=("id",))
    form = KafkaValues(lambda: row, PLACE)
    given_rows = pa.RecordBatch.from_pylist(rows, schema=nullable(row.schema))
    messages = sent(form, given_rows)

    quick = json_columns([message.value() for message in messages], nullable(row.schema))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kafka_values, "json_columns", lambda *_: None)
        slow = form.batch(messages, 0)

    assert slow.select(given_rows.schema.names).equals(given_rows)
    assert form.batch(messages, 0).equals(slow)
    assert quick is not None or any(each["ratio"] in (float("inf"), float("-inf")) for each in rows)


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"7", b'{"id":1}{"id":2}', b'{"id":1,"small":300}', b'{"id":"1"}', b"{", b'{"name":"\xff"}']
)
def test_what_is_no_row_is_refused_with_its_place(value: bytes) -> None:
    row = topic_row(PLAIN, key=("id",))
    form = KafkaValues(lambda: row, PLACE)
    good = kafka_values.KafkaRecord(b"1", b'{"id":1}')

    with pytest.raises(RowRefused, match=r't\[0\]@1 is not a row of topic "t"'):
        form.batch([Message(good, 0), Message(kafka_values.KafkaRecord(b"2", value), 1)], 0)


@pytest.mark.parametrize(
    ("key", "value", "missing"),
    [
        (None, b'{"at":"2026-01-31T10:00:00Z"}', "id"),
        (None, b'{"id":null,"at":"2026-01-31T10:00:00Z"}', "id"),
        (None, None, "id"),
        (b"7", b'{"id":7}', "at"),
        (b"7", b'{"id":7,"at":null}', "at"),
        (b"7", b'{"id":null,"at":"2026-01-31T10:00:00Z"}', None),
        (b"7", None, None),
    ],
)
def test_a_foreign_row_without_its_key_or_its_time_is_refused(
    key: bytes | None, value: bytes | None, missing: str | None
) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("at", TIME, nullable=False)])
    row = TopicRow(1, "t", TopicSettings(key=("id",), event_time="at"), {1: columns}, 0, 0)
    message = Message(kafka_values.KafkaRecord(key, value), 0)

    if missing is None:
        assert KafkaValues(lambda: row, PLACE).batch([message], 0)["id"].to_pylist() == [7]
    else:
        with pytest.raises(RowRefused, match=f'it has no "{missing}"'):
            KafkaValues(lambda: row, PLACE).batch([message], 0)


@pytest.mark.parametrize(
    ("at", "read"),
    [
        ("2026-02-01T10:00:00Z", "2026-02-01T10:00:00+00:00"),
        ("2026-02-01T10:00:00.5Z", "2026-02-01T10:00:00.500000+00:00"),
        ("2026-02-01 10:00:00Z", "2026-02-01T10:00:00+00:00"),
        ("2026-02-01T12:00:00+02:00", "2026-02-01T10:00:00+00:00"),
        ("2026-02-30T10:00:00Z", None),
        ("2026-02-01T25:00:00Z", None),
        ("0000-02-01T10:00:00Z", None),
    ],
)
def test_times_in_other_forms_are_read_too_and_what_is_none_is_refused(at: str, read: str | None) -> None:
    row = topic_row(PLAIN, key=("id",))
    message = Message(kafka_values.KafkaRecord(b"1", f'{{"id":1,"at":"{at}"}}'.encode()), 0)

    if read is None:
        with pytest.raises(RowRefused, match='column "at"'):
            KafkaValues(lambda: row, PLACE).batch([message], 0)
    else:
        assert KafkaValues(lambda: row, PLACE).batch([message], 0)["at"][0].as_py().isoformat() == read


def test_a_message_of_several_lines_is_one_row() -> None:
    row = topic_row(PLAIN, key=("id",))
    pretty = kafka_values.KafkaRecord(b"7", b'{\n  "name": "Ada"\n}\n')

    found = KafkaValues(lambda: row, PLACE).batch([Message(pretty, 3)], 0).to_pylist()

    assert [(each["id"], each["name"], each["_offset"]) for each in found] == [(7, "Ada", 3)]


@settings(deadline=None)
@given(key_types.flatmap(lambda kind: st.tuples(st.just(kind), values(kind, nullable=False))))
def test_a_key_comes_back_from_its_bytes(typed: tuple[pa.DataType, Any]) -> None:
    kind, value = typed
    columns = pa.schema([("id", kind)])
    row = TopicRow(1, "t", TopicSettings(key=("id",)), {1: columns}, 0, 0)
    form = KafkaValues(lambda: row, PLACE)
    batch = pa.RecordBatch.from_pylist([{"id": value}], schema=columns)

    (message,) = sent(form, batch, deleted=True)

    assert message.value() is None
    assert form.batch([message], 0).select(["id"]).equals(batch.cast(nullable(columns)))
    assert set(key_values(key_bytes(batch)[0], columns)) == {"id"}
