"""Hypothesis strategies: schemas of every supported type, and rows that fit them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds
from hypothesis import strategies as st

from headwater.log.schema.ddl import SIMPLE_TYPES

decimal_types = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
leaf_types = st.one_of(st.sampled_from(sorted(set(SIMPLE_TYPES.values()), key=str)), decimal_types)
key_types = leaf_types.filter(lambda arrow: not kinds.is_floating(arrow))  # NaN is no key
names = st.text("abcdefgh_é ", min_size=1, max_size=5)


def fields(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    field = st.builds(pa.field, names, types, st.booleans())
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda field: field.name.lower())


any_types = st.recursive(
    leaf_types,
    lambda inner: st.one_of(inner.map(pa.list_), st.builds(pa.map_, key_types, inner), fields(inner).map(pa.struct)),
    max_leaves=4,
)
schemas = fields(any_types).map(pa.schema)


def values(arrow: pa.DataType, *, nullable: bool = True) -> st.SearchStrategy[Any]:
    strategy = _present(arrow)
    return st.none() | strategy if nullable else strategy


def rows(schema: pa.Schema) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(_record(list(schema)), max_size=6)


schemas_with_rows = schemas.flatmap(lambda schema: st.tuples(st.just(schema), rows(schema)))


def _record(parts: list[pa.Field]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({part.name: values(part.type, nullable=part.nullable) for part in parts})


def _present(arrow: pa.DataType) -> st.SearchStrategy[Any]:
    if kinds.is_boolean(arrow):
        return st.booleans()
    if kinds.is_integer(arrow):
        top = 2 ** (arrow.bit_width - 1)
        return st.integers(-top, top - 1)
    if kinds.is_floating(arrow):
        return st.floats(width=arrow.bit_width)
    if kinds.is_string(arrow):
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    if kinds.is_binary(arrow):
        return st.binary(max_size=12)
    if kinds.is_date(arrow):
        return st.dates()
    if kinds.is_timestamp(arrow):
        return st.datetimes(timezones=st.none() if arrow.tz is None else st.just(UTC))
    if kinds.is_decimal(arrow):
        top = 10**arrow.precision - 1
        return st.integers(-top, top).map(lambda digits: _scaled(digits, arrow.scale))
    if kinds.is_list(arrow):
        return st.lists(values(arrow.value_type), max_size=3)
    if kinds.is_map(arrow):
        return st.dictionaries(_present(arrow.key_type), values(arrow.item_type), max_size=3)
    return _record(list(arrow))


def _scaled(digits: int, scale: int) -> Decimal:
    # scaleb() would round to the context's 28 digits.
    sign, text, _ = Decimal(digits).as_tuple()
    return Decimal((sign, text, -scale))


def same(left: Any, right: Any) -> bool:
    """Equality in which NaN equals NaN, and True is not 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and left != left:
        return isinstance(right, float) and right != right
    return type(left) is type(right) and bool(left == right)


EXAMPLES: dict[str, Any] = {
    "BOOLEAN": True,
    "TINYINT": 7,
    "SMALLINT": 7,
    "INT": 7,
    "BIGINT": 7,
    "FLOAT": 1.5,
    "DOUBLE": 1.5,
    "DECIMAL(10,2)": Decimal("1.50"),
    "STRING": "text",
    "BINARY": b"bytes",
    "DATE": date(2026, 1, 31),
    "TIMESTAMP": datetime(2026, 1, 31, 10, tzinfo=UTC),
    "TIMESTAMP_NTZ": datetime(2026, 1, 31, 10),
    "ARRAY<INT>": [1, 2],
    "MAP<STRING, INT>": {"a": 1},
    "STRUCT<a: INT>": {"a": 1},
}
