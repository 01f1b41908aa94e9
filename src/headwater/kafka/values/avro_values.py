"""Avro values: rows as records of Avro in the wire format of a schema registry, and back.

What it is: ``AvroRecords``, for one topic of a log on Kafka: ``written`` makes messages' values, ``columns`` reads many
of them at once, ``row`` one.
Invariants: records are read with the schema of whoever wrote them, and matched to columns by name; fields that are no
columns are passed over. The schema of rows that are written is in the registry before they are.
Not here: the bytes (``avro_columns.py``, fastavro), the registry (``schema_registry.py``).
Read next: ``schema_registry.py``, ``avro_columns.py``.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.errors import RowRefused
from headwater.kafka.values.avro_columns import avro_columns
from headwater.kafka.values.avro_schemas import avro_schema, subject_of
from headwater.kafka.values.schema_registry import HEADER, MAGIC, SchemaRegistry, avro
from headwater.log.schema.row_conversion import to_rows

Row = dict[str, Any]


class AvroRecords:
    """The rows of one topic as records."""

    def __init__(self, topic: str, registry: SchemaRegistry) -> None:
        self.topic = topic
        self.registry = registry

    def written(self, rows: pa.RecordBatch) -> list[bytes]:
        """The values of messages, one for each row."""
        schema = avro_schema(self.topic, rows.schema)
        head = HEADER.pack(MAGIC, self.registry.number_of(subject_of(self.topic), schema))
        parsed, found = avro().parse_schema(schema), []
        for row in to_rows(rows):
            into = io.BytesIO()
            try:
                avro().schemaless_writer(into, parsed, row)
            except Exception as error:  # fastavro raises what it trips over
                raise RowRefused(
                    f"the row cannot be written as Avro: {error}"[:300], hint='Declare the topic with values="json".'
                ) from None
            found.append(head + into.getvalue())
        return found

    def columns(self, values: Sequence[bytes], columns: pa.Schema) -> list[pa.Array] | None:
        """The columns of many values; None where they are to be read one by one."""
        heads = {value[: HEADER.size] for value in values}
        if any(len(head) < HEADER.size or head[0] != MAGIC for head in heads):
            return None
        try:
            schemas = {head: self.registry.schema(HEADER.unpack(head)[1]) for head in heads}
        except RowRefused:  # it is told with its place, one by one
            return None
        if len(schemas) == 1:
            [schema] = schemas.values()
            return avro_columns(values, schema, columns, head=HEADER.size)
        parts: list[list[pa.Array]] = []
        places: list[int] = []
        for head, schema in schemas.items():
            of = [place for place, value in enumerate(values) if value.startswith(head)]
            found = avro_columns([values[place] for place in of], schema, columns, head=HEADER.size)
            if found is None:
                return None
            parts.append(found)
            places += of
        back = pa.array(np.argsort(places))  # from the order of schemas to that of values
        return [pa.concat_arrays(list(same)).take(back) for same in zip(*parts, strict=True)]

    def row(self, value: bytes) -> Row:
        """One value as a row of Python's values."""
        record = self.registry.read(value)
        if not isinstance(record, dict):
            raise RowRefused(f"the message is Avro, but no record: {type(record).__name__}", expected="a record")
        found: Row = plain_avro(record)
        return found

    @staticmethod
    def is_key(key: bytes | None) -> bool:
        """Whether a key has the form of Avro with its schema's number."""
        return key is not None and len(key) >= HEADER.size and key[0] == MAGIC

    def key(self, key: bytes, names: Sequence[str]) -> Row | None:
        """The columns of a key that is Avro too; None when it is not."""
        if not self.is_key(key):
            return None
        found = plain_avro(self.registry.read(key))
        if isinstance(found, dict):
            return {name: found.get(name) for name in names}
        return {names[0]: found} if len(names) == 1 else None


def plain_avro(value: Any) -> Any:
    """A value of fastavro's as a row takes it.

    >>> plain_avro({"id": uuid.UUID(int=1), "tags": ["a"]})
    {'id': '00000000-0000-0000-0000-000000000001', 'tags': ['a']}
    """
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, dict):
        return {name: plain_avro(each) for name, each in value.items()}
    return [plain_avro(each) for each in value] if isinstance(value, list) else value
