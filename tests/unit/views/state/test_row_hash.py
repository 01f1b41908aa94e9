"""Hashes: equal for what SQL calls equal, different for nearly everything else."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidDeclaration
from headwater.log.schema.row_identity import canonical
from headwater.views.state.row_hash import comparison, comparisons, hash_rows
from tests.unit.typed_rows import any_types, values
from tests.unit.weighted_rows import plain, thorough


def hashes(values: list[Any], arrow: pa.DataType, *, as_type: pa.DataType | None = None) -> list[int]:
    how = comparison(arrow, as_type or arrow)
    assert how is not None
    return [int(number) for number in hash_rows([pa.array(values, arrow)], [how])]


EQUAL: list[tuple[Any, pa.DataType, Any, pa.DataType]] = [
    (7, pa.int8(), 7, pa.int64()),
    (0.0, pa.float64(), -0.0, pa.float64()),
    (1.5, pa.float32(), 1.5, pa.float64()),
    (3, pa.int32(), 3.0, pa.float64()),
    (16_777_217, pa.int64(), 16_777_216.0, pa.float32()),  # equal as FLOAT, which is how Spark may compare them
    (Decimal("1.5"), pa.decimal128(2, 1), Decimal("1.5000"), pa.decimal128(9, 4)),
    (Decimal("-12"), pa.decimal128(38, 0), -12, pa.int64()),
    (Decimal("0.1"), pa.decimal128(3, 1), 0.1, pa.float64()),
    ("text", pa.string(), "text", pa.large_string()),
    (b"\0" * 300, pa.binary(), b"\0" * 300, pa.large_binary()),
    (None, pa.int32(), None, pa.int64()),
]


@pytest.mark.parametrize(("one", "one_type", "other", "other_type"), EQUAL)
def test_values_that_spark_calls_equal_have_one_hash(
    one: Any, one_type: pa.DataType, other: Any, other_type: pa.DataType
):
    assert hashes([one], one_type, as_type=other_type) == hashes([other], other_type, as_type=one_type)


def test_every_nan_is_the_same():
    odd_nan = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)

    assert len({*hash_rows([pa.array(odd_nan)], ["double"]).tolist(), *hashes([float("nan")], pa.float64())}) == 1


def test_texts_that_differ_in_length_or_in_a_late_byte_differ():
    texts = ["", "\0", "\0\0", "12345678", "123456789", "12345678\0", "a" * 128, "a" * 129, "a" * 128 + "b"]

    assert len(set(hashes(texts, pa.string()))) == len(texts)


@pytest.mark.parametrize("arrow", [pa.string(), pa.int64(), pa.decimal128(20, 2), pa.float64(), pa.bool_()])
def test_a_slice_hashes_as_its_values(arrow: pa.DataType):
    whole = pa.array([None, "1", "0", None, "1"]).cast(arrow)
    how = str(comparison(arrow, arrow))

    part = hash_rows([whole.slice(1, 3)], [how])

    assert part.tolist() == hash_rows([whole], [how])[1:4].tolist()
    assert part.tolist() == hash_rows([pa.chunked_array([whole.slice(1, 1), whole.slice(2, 2)])], [how]).tolist()


def test_a_million_numbers_hardly_meet():
    numbers = pa.array(np.arange(1_000_000))

    found = hash_rows([numbers, numbers], ["integer", "integer"])

    assert len(np.unique(found)) == 1_000_000


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.string(), pa.int64()),
        (pa.date32(), pa.timestamp("us", "UTC")),
        (pa.bool_(), pa.int32()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.int32()), pa.int32()),
    ],
)
def test_types_between_which_a_cast_decides_are_refused(one: pa.DataType, other: pa.DataType):
    with pytest.raises(InvalidDeclaration, match=r'column "a" .* cannot be looked up by "b"'):
        comparisons(["a"], pa.schema([("a", one)]), pa.schema([("b", other)]))


@settings(max_examples=thorough(100), deadline=None)
@given(st.data())
def test_hashes_of_any_type_agree_with_equality(data: st.DataObject):
    arrow = data.draw(any_types)
    drawn = data.draw(st.lists(values(arrow), min_size=1, max_size=8))
    array = pa.array(drawn, arrow)

    found = hash_rows([array], [str(comparison(arrow, arrow))]).tolist()

    equal = [plain(value) for value in array.to_pylist()]
    assert [[a == b for a in found] for b in found] == [[a == b for a in equal] for b in equal]


def test_decimals_in_nested_values_keep_all_their_digits():
    long = Decimal("1234567890123456789012345678901234567.1")

    assert canonical([long]) != canonical([long + 1])
    assert canonical([Decimal("1.50")]) == canonical([Decimal("1.5")]) == canonical([Decimal("1.500")])
    assert canonical([Decimal("100")]) != canonical([Decimal("1")])
