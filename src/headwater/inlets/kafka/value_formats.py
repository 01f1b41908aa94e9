"""Value formats: what a message of Kafka holds, as changes of rows.

What it is: one class for each ``value=``: ``JsonValues``, ``AvroValues``, ``DebeziumValues`` and ``RawValues``. Each
makes ``RowChange``s of a message's value, and a batch of the rows of many.
Invariants: any bytes give changes or ``RowRefused``, never another error, but for ``Unavailable`` of a schema registry.
Not here: Arrow, where a message is a table, and keys (``kafka_messages.py``).
Read next: ``kafka_messages.py``; ``capture/debezium/envelope.py``.
"""

from __future__ import annotations

import datetime as dt
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from headwater.capture.debezium.envelope import EMPTIED, GONE, NOTHING, UNAVAILABLE, Change, change_of, text_of
from headwater.errors import CaptureBlocked, RowRefused
from headwater.inlets.message_bodies import rows_of
from headwater.kafka.values.avro_values import plain_avro
from headwater.kafka.values.schema_registry import SchemaRegistry
from headwater.log.contract import EventTopic
from headwater.log.schema.json_lines import json_decoder

Row = dict[str, Any]
INSTEAD = "Let the inlet keep the messages as text, and declare the table over them: hw.capture.Debezium."


@dataclass(frozen=True)
class RowChange:
    """A row that comes or takes the place of another one; or, with ``gone``, the key of a row that goes."""

    row: Row
    gone: bool = False


class ValueFormat(ABC):
    """Reads the values of one topic's messages. ``unknown``: what is done with fields that are no columns."""

    def __init__(self, topic: EventTopic, *, ignore_unknown: bool = False) -> None:
        self.topic = topic
        self.ignore_unknown = ignore_unknown

    @abstractmethod
    def changes(self, value: bytes) -> list[RowChange]:
        """What one message says."""

    def batch(self, rows: list[Row]) -> pa.RecordBatch:
        """Rows of many messages, checked, as one batch."""
        return self.topic.json_batch(rows)

    def _known(self, row: Row) -> Row:
        if not self.ignore_unknown:
            return row
        return {name: row[name] for name in self.topic.schema.names if name in row}


class JsonValues(ValueFormat):
    """An object, an array of objects, or an object on each line."""

    def __init__(self, topic: EventTopic, *, ignore_unknown: bool = False) -> None:
        super().__init__(topic, ignore_unknown=ignore_unknown)
        self._schema: pa.Schema | None = None
        self._decoder = json_decoder(topic.schema)

    def changes(self, value: bytes) -> list[RowChange]:
        schema = self.topic.schema
        if schema is not self._schema:  # it has evolved
            self._schema, self._decoder = schema, json_decoder(schema)
        return [RowChange(self._known(row)) for row in rows_of(value, schema, self._decoder)]


class RawValues(ValueFormat):
    """The bytes, in a column of BINARY, or of STRING as text.

    >>> import headwater as hw, tempfile
    >>> topic = hw.Log(tempfile.mkdtemp()).topic("lines", "line STRING")
    >>> RawValues(topic, "line").changes(b"GET /")
    [RowChange(row={'line': 'GET /'}, gone=False)]
    """

    def __init__(self, topic: EventTopic, column: str) -> None:
        super().__init__(topic)
        self.column = column
        self.as_text = kinds.is_string(topic.schema.field(column).type)

    def changes(self, value: bytes) -> list[RowChange]:
        return [RowChange({self.column: text_in(value) if self.as_text else value})]


class AvroValues(ValueFormat):
    """A record of Avro, in the wire format of a schema registry."""

    def __init__(self, topic: EventTopic, registry: SchemaRegistry, *, ignore_unknown: bool = False) -> None:
        super().__init__(topic, ignore_unknown=ignore_unknown)
        self.registry = registry

    def changes(self, value: bytes) -> list[RowChange]:
        record = self.registry.read(value)
        if not isinstance(record, dict):
            raise RowRefused(f"the message is Avro, but no record: {type(record).__name__}", expected="a record")
        return [RowChange(plain_avro(self._known(record)))]

    def batch(self, rows: list[Row]) -> pa.RecordBatch:
        return self.topic.row_batch(rows)


class DebeziumValues(ValueFormat):
    """Debezium's envelope, in JSON with or without its schema: the row after the change, or the key of a deleted one.

    >>> import headwater as hw, tempfile
    >>> users = hw.Log(tempfile.mkdtemp()).topic("users", "id BIGINT, born DATE", key="id")
    >>> DebeziumValues(users).changes(b'{"op": "c", "before": null, "after": {"id": 1, "born": 20000, "more": 1}}')
    [RowChange(row={'id': 1, 'born': '2024-10-04'}, gone=False)]
    >>> DebeziumValues(users).changes(b'{"op": "d", "before": {"id": 1}, "after": null}')
    [RowChange(row={'id': 1}, gone=True)]
    """

    def __init__(self, topic: EventTopic, *, time_unit: str = "us") -> None:
        super().__init__(topic, ignore_unknown=True)
        self.time_unit = time_unit

    def changes(self, value: bytes) -> list[RowChange]:
        try:
            change = change_of(text_in(value), "the message")
        except CaptureBlocked as error:
            raise RowRefused(error.message, detail=error.detail, hint=error.hint, expected="Debezium") from None
        if change.kind == NOTHING:
            return []
        if change.kind == EMPTIED:
            raise RowRefused("the message empties its table, which an inlet cannot do", hint=INSTEAD)
        key = self.topic.settings.key
        before = None if change.before is None else self._row(change.before, change, key)
        if change.kind == GONE:
            return [RowChange(before or {}, gone=True)]
        after = self._row(change.after or {}, change, self.topic.schema.names)
        moved = before is not None and any(before.get(name) not in (None, after.get(name)) for name in key)
        return [*([RowChange(before, gone=True)] if moved and before else []), RowChange(after)]

    def _row(self, row: Row, change: Change, names: Any) -> Row:
        found = {name: row[name] for name in names if name in row}
        for name, value in found.items():
            if value == UNAVAILABLE:
                raise RowRefused(
                    f'the message does not have the value of "{name}", which its change left as it was',
                    hint=f"Use REPLICA IDENTITY FULL. {INSTEAD}",
                    column=name,
                )
            found[name] = self._value(name, value, (change.units or {}).get(name, self.time_unit))
        return found

    def _value(self, name: str, value: Any, unit: str) -> Any:
        arrow = self.topic.schema.field(name).type
        if value is None or isinstance(value, bool) or kinds.is_nested(arrow):
            return value
        try:
            if kinds.is_timestamp(arrow):
                text = text_of(value, arrow, unit)
                return f"{text}Z" if arrow.tz else text
            if kinds.is_date(arrow) or kinds.is_decimal(arrow):
                return text_of(value, arrow, unit)
        except (ValueError, ArithmeticError) as error:
            raise RowRefused(f'column "{name}": {error}', column=name) from None
        if isinstance(value, Decimal) and kinds.is_floating(arrow):
            return float(value)
        return value


def text_in(value: bytes) -> str:
    """Bytes as text."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RowRefused("the message is not UTF-8", detail=str(error), expected="text") from None


def key_value(key: bytes, arrow: pa.DataType) -> Any:
    """A key that is text, as a value of a column.

    >>> key_value(b"7", pa.int64()), key_value(b"7", pa.string()), key_value(b"7", pa.binary())
    (7, '7', b'7')
    """
    if kinds.is_binary(arrow):
        return key
    text = text_in(key)
    try:
        if kinds.is_integer(arrow):
            return int(text)
        if kinds.is_boolean(arrow):
            return {"true": True, "false": False}[text]
        if kinds.is_floating(arrow) and math.isfinite(float(text)):
            return float(text)
    except (ValueError, KeyError):
        raise RowRefused(f"the key {text[:100]!r} does not fit its column", expected=str(arrow)) from None
    return text


def moment_of(milliseconds: int) -> dt.datetime:
    """A message's time.

    >>> moment_of(0).isoformat()
    '1970-01-01T00:00:00+00:00'
    """
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=milliseconds)
