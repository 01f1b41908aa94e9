"""Equal rows: whoever looks for them, by bytes, by number or by hash, finds the same ones."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.schema.row_conversion import to_batches
from headwater.log.schema.row_identity import row_identities
from headwater.views.state.row_equality import matching, row_numbers
from headwater.views.state.row_hash import comparison, hash_rows
from tests.unit.typed_rows import rows, schemas
from tests.unit.weighted_rows import plain, thorough


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    schema = draw(schemas)
    some = draw(rows(schema))
    again = draw(st.lists(st.sampled_from(some), max_size=6)) if some else []
    return pa.Table.from_batches([to_batches([*some, *again], schema)], schema)


def grouped(marks: list[Any]) -> list[int]:
    """For each row the first row that is marked as it is."""
    return [marks.index(mark) for mark in marks]


@settings(max_examples=thorough(40), deadline=None)
@given(tables())
def test_rows_of_every_type_are_equal_to_all_or_to_none(table: pa.Table):
    wanted = grouped([plain(row) for row in table.to_pylist()])

    by_bytes = grouped(row_identities(table))
    by_number = grouped(row_numbers(table).tolist())

    assert by_bytes == wanted
    assert by_number == wanted
    if table.num_columns and table.num_rows:
        how = [comparison(field.type, field.type) or "" for field in table.schema]
        hashes = hash_rows(table.columns, how).tolist()
        assert all(hashes[row] == hashes[first] for row, first in enumerate(wanted))


def test_numbers_without_a_number_and_zeroes_of_either_sign_are_equal():
    nan = float("nan")
    table = pa.table({"x": [0.0, nan, -0.0, None, -nan, None], "y": [[-0.0], [nan], [0.0], None, [-nan], None]})

    assert grouped(row_numbers(table).tolist()) == [0, 1, 0, 3, 1, 3]
    assert grouped(row_identities(table)) == [0, 1, 0, 3, 1, 3]


def test_rows_are_found_by_keys_of_another_width():
    table = pa.table({"id": pa.array([1, 2, None], pa.int64()), "n": [1, 2, 3]})
    keys = pa.table({"key": pa.array([None, 2], pa.int32())})

    found = matching(table, ["id"], keys)

    assert found.column("n").to_pylist() == [2, 3]
