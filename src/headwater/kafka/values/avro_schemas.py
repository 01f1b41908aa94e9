"""Avro schemas of topics: the columns of a topic as a record of Avro.

What it is: ``avro_schema``, the schema under which rows are written, and ``subject_of``, its name in a registry.
Invariants: every column that may be null is a union with null whose default is null, so that a schema with a column
more can be read by readers of the older one, and the reverse. Types without a counterpart are refused by name.
Not here: reading, which goes by the schema of whoever wrote (``avro_columns.py``). Read next: ``avro_values.py``.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import InvalidDeclaration
from headwater.log.schema.ddl import spark_type

PRIMITIVE = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
}


def subject_of(topic: str) -> str:
    """The name under which registries keep the schema of a topic's values."""
    return f"{topic}-value"


def avro_schema(name: str, columns: pa.Schema) -> dict[str, Any]:
    """The columns as a record.

    >>> avro_schema("shop.orders", pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.date32())]))
    {'type': 'record', 'name': 'shop_orders', 'fields': [{'name': 'id', 'type': 'long'}, \
{'name': 'at', 'type': ['null', {'type': 'int', 'logicalType': 'date'}], 'default': None}]}
    >>> avro_schema("t", pa.schema([("names", pa.map_(pa.int32(), pa.string()))]))
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: column "names" is MAP<INT, STRING>, which Avro has no type for
      Hint: Declare the topic with values="json" or "arrow".
    """
    name = re.sub(r"\W", "_", name)
    return {"type": "record", "name": name, "fields": [_field(field, name, field.name) for field in columns]}


def _field(field: pa.Field, path: str, column: str) -> dict[str, Any]:
    if not re.fullmatch(r"[A-Za-z_]\w*", field.name, re.ASCII):
        raise InvalidDeclaration(
            f'column "{field.name}" has a name that Avro does not allow',
            hint='Use letters, digits and "_"; or declare the topic with values="json".',
        )
    kind = _kind(field.type, f"{path}_{field.name}", column)
    if not field.nullable:
        return {"name": field.name, "type": kind}
    return {"name": field.name, "type": ["null", kind], "default": None}


def _kind(arrow: pa.DataType, path: str, column: str) -> Any:
    if arrow in PRIMITIVE:
        return PRIMITIVE[arrow]
    if kinds.is_date32(arrow):
        return {"type": "int", "logicalType": "date"}
    if kinds.is_timestamp(arrow):
        return {"type": "long", "logicalType": "timestamp-micros" if arrow.tz else "local-timestamp-micros"}
    if kinds.is_decimal128(arrow):
        return {"type": "bytes", "logicalType": "decimal", "precision": arrow.precision, "scale": arrow.scale}
    if kinds.is_list(arrow):
        return {"type": "array", "items": ["null", _kind(arrow.value_type, f"{path}_item", column)]}
    if kinds.is_map(arrow) and kinds.is_string(arrow.key_type):
        return {"type": "map", "values": ["null", _kind(arrow.item_type, f"{path}_value", column)]}
    if kinds.is_struct(arrow):
        return {"type": "record", "name": path, "fields": [_field(each, path, column) for each in arrow]}
    raise InvalidDeclaration(
        f'column "{column}" is {spark_type(arrow)}, which Avro has no type for',
        hint='Declare the topic with values="json" or "arrow".',
        column=column,
    )
