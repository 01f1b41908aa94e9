"""Single rows in stored form: byte for byte what Arrow writes, whatever the values.

Invariants: the oracle is Arrow's own writer. Not here: events (``tests/unit/aggregates/events``).
Read next: ``src/headwater/aggregates/events/single_row.py``.
"""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.aggregates.events.single_row import SingleRowFormat
from headwater.log.schema.ddl import TIMESTAMP
from tests.unit.weighted_rows import thorough

VALUES = {
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    TIMESTAMP: st.integers(-(1 << 60), 1 << 60),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
    pa.binary(): st.binary(),
    pa.list_(pa.field("element", pa.string())): st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
}


@st.composite
def rows(draw):
    """A schema, with records in records, and a row of it."""
    plain = st.sampled_from(list(VALUES))
    records = st.lists(plain, min_size=1, max_size=3).map(named).map(pa.struct)
    kinds = draw(st.lists(plain | records | st.tuples(plain, records).map(named).map(pa.struct), min_size=1))
    schema = pa.schema([(name, kind, draw(st.booleans())) for name, kind in named(kinds)])
    return schema, [draw(value(field.type, nullable=field.nullable)) for field in schema]


def named(kinds):
    return [(f"c{number}", kind) for number, kind in enumerate(kinds)]


def value(kind, *, nullable=True):
    if pa.types.is_struct(kind):
        found = st.fixed_dictionaries({each.name: value(each.type) for each in kind})
    else:
        found = VALUES[kind]
    return st.none() | found if nullable else found


@settings(deadline=None, max_examples=thorough(100))
@given(rows())
def test_a_row_is_stored_as_arrow_stores_it(case):
    schema, values = case
    nullable = pa.struct([field.with_nullable(True) for field in schema])
    batch = pa.RecordBatch.from_arrays(
        pa.array([dict(zip(schema.names, values, strict=True))], nullable).flatten(), schema=schema
    )

    stored = SingleRowFormat.of(schema).stored(values, 0)

    assert stored.payload.to_pybytes() == batch.serialize().to_pybytes()
    assert stored.batch().serialize() == batch.serialize()


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (pa.int64(), 1 << 63),
        (pa.int64(), "5"),
        (pa.int32(), 1 << 31),
        (pa.int64(), 2.5),
        (pa.float64(), "x"),
        (pa.string(), 7),
        (pa.string(), b"x"),
        (pa.string(), "half \ud800 of a character"),
        (pa.binary(), "x"),
        (pa.list_(pa.string()), [1]),
        (pa.list_(pa.string()), 1),
        (pa.list_(pa.string()), "ab"),
        (pa.struct([("x", pa.int64())]), 1),
    ],
)
def test_a_value_that_does_not_fit_gives_no_row(kind, wrong):
    assert SingleRowFormat.of(pa.schema([("x", kind)])).stored([wrong], 0) is None


def test_a_null_in_a_column_that_has_none_gives_no_row():
    form = SingleRowFormat.of(pa.schema([pa.field("at", pa.int64(), nullable=False)]))

    assert form.stored([None], 0) is None
    assert form.stored([1], 0).batch().to_pylist() == [{"at": 1}]


@pytest.mark.parametrize("kind", [pa.date32(), pa.decimal128(9, 2), pa.map_(pa.string(), pa.int64()), pa.struct([])])
def test_other_types_have_no_such_format(kind):
    assert SingleRowFormat.of(pa.schema([("x", pa.int64()), ("y", kind)])) is None
