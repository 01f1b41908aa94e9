"""Which partition a row goes to: pinned for ever, spread evenly, in order."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from headwater.errors import InvalidDeclaration
from headwater.log.storage.routing import check_key_type, partition_of, split

# These numbers must never change: homes on disk were routed by them.
PINNED = {
    "bigint": (pa.array([0, 1, -1, 42, 2**62]), [535, 465, 936, 413, 75]),
    "int": (pa.array([0, 1, -1, 42], pa.int32()), [535, 465, 936, 413]),
    "string": (pa.array(["", "a", "order-17", "Zürich"]), [138, 719, 198, 630]),
    "binary": (pa.array([b"", b"a", b"\x00\xff"]), [138, 719, 83]),
    "boolean": (pa.array([False, True]), [535, 465]),
    "date": (pa.array([dt.date(1970, 1, 1), dt.date(2026, 11, 15)]), [535, 65]),
    "timestamp": (
        pa.array([dt.datetime(1970, 1, 1), dt.datetime(2026, 11, 15, 8, 30)], pa.timestamp("us", "UTC")),
        [535, 360],
    ),
    "decimal": (pa.array([Decimal("1.50"), Decimal("-7.25")], pa.decimal128(10, 2)), [407, 125]),
}


@pytest.mark.parametrize("kind", PINNED)
def test_the_partition_of_a_key_is_pinned(kind):
    values, expected = PINNED[kind]

    assert partition_of(pa.record_batch({"k": values}), ["k"], 1000).tolist() == expected


def test_the_hash_of_a_number_is_that_of_splitmix64():
    # The first output of the published generator for seed 0.
    assert partition_of(pa.record_batch({"k": pa.array([0])}), ["k"], 1 << 20).tolist() == [
        0xE220A8397B1DCDAF % (1 << 20)
    ]


def test_a_key_of_two_columns_is_pinned_and_depends_on_both():
    batch = pa.record_batch({"a": pa.array([1, 2]), "b": pa.array(["x", "y"])})

    assert partition_of(batch, ["a", "b"], 1000).tolist() == [171, 753]
    assert partition_of(batch, ["b", "a"], 1000).tolist() != [171, 753]


def test_a_number_hashes_the_same_whatever_its_width():
    expected = partition_of(pa.record_batch({"k": pa.array([7, -7], pa.int64())}), ["k"], 997).tolist()

    for kind in (pa.int8(), pa.int16(), pa.int32()):
        assert partition_of(pa.record_batch({"k": pa.array([7, -7], kind)}), ["k"], 997).tolist() == expected


@pytest.mark.parametrize("keys", [range(100_000), [f"user-{n}" for n in range(100_000)]], ids=["numbers", "texts"])
def test_keys_are_spread_evenly(keys):
    counts = np.bincount(partition_of(pa.record_batch({"k": pa.array(list(keys))}), ["k"], 16))

    assert counts.min() > 0.95 * 100_000 / 16
    assert counts.max() < 1.05 * 100_000 / 16


def test_rows_keep_their_order_within_a_partition():
    batch = pa.record_batch({"n": pa.array(range(1000)), "k": pa.array([n % 37 for n in range(1000)])})

    parts = split(batch, partition_of(batch, ["k"], 4))

    assert sorted(n for _, part in parts for n in part.column("n").to_pylist()) == list(range(1000))
    for number, part in parts:
        assert part.column("n").to_pylist() == sorted(part.column("n").to_pylist())
        assert set(partition_of(part, ["k"], 4).tolist()) == {number}


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())])])
def test_a_column_without_one_true_form_cannot_be_a_key(kind):
    with pytest.raises(InvalidDeclaration, match="cannot be a key") as refused:
        check_key_type("price", kind)

    assert "integer, string" in refused.value.hint
