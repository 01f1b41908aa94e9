"""Netting: the same content in as few rows as there are distinct ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.views import thresholds
from headwater.views.state import row_equality
from headwater.views.state.algebra import consolidate, distinct, latest, weighted_schema
from tests.unit.typed_rows import rows, schemas
from tests.unit.weighted_rows import content, thorough, weighted_table


@st.composite
def weighted_tables(draw: st.DrawFn) -> pa.Table:
    schema = draw(schemas)
    some = draw(rows(schema))
    picked = draw(st.lists(st.tuples(st.sampled_from(some), st.integers(-2, 2)), max_size=12)) if some else []
    return weighted_table(schema, picked)


@settings(max_examples=thorough(90), deadline=None)
@given(weighted_tables(), st.sampled_from([thresholds.FEW_ROWS_MAX, 2, 0]))
def test_netting_keeps_the_content_of_tables_of_every_type(table: pa.Table, few: int):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(thresholds, "FEW_ROWS_MAX", few)  # by a dictionary, by sorted numbers, by Arrow's groups
        netted = consolidate(table)

    assert content(netted) == content(table)
    assert netted.num_rows == len(content(table))
    assert netted.schema == table.schema


KEYS = ((1.5, 0.0, float("nan"), None, 7.0), (1, 2, -3, 2**40, 5), (1, 2, -3, 4, 5))


@st.composite
def happenings(draw: st.DrawFn) -> list[pa.Table]:
    """Changes of a table whose key has at most one row at any time: each part netted, in any order."""
    keys = draw(st.sampled_from(KEYS))
    now: dict[int, str] = {}
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        part = []
        for place in sorted(draw(st.sets(st.integers(0, len(keys) - 1)))):
            if place in now:
                part.append((keys[place], now.pop(place), -1))
            if draw(st.booleans()):
                now[place] = draw(st.sampled_from("ab"))
                part.append((keys[place], now[place], 1))
        columns = zip(*draw(st.permutations(part)), strict=True) if part else ([], [], [])
        kinds = (pa.int64() if isinstance(keys[0], int) else pa.float64(), pa.string(), pa.int64())
        arrays = [pa.array(list(values), kind) for values, kind in zip(columns, kinds, strict=True)]
        parts.append(pa.Table.from_arrays(arrays, ["id", "letter", "_weight"]))
    return parts


@pytest.mark.parametrize("way", ["by a dictionary", "by hashes", "every hash meets"])
@settings(max_examples=thorough(60), deadline=None)
@given(parts=happenings())
def test_the_latest_rows_are_the_netted_ones(way: str, parts: list[pa.Table]):
    with pytest.MonkeyPatch.context() as patched:
        if way != "by a dictionary":
            patched.setattr(thresholds, "FEW_ROWS_MAX", 0)
        if way == "every hash meets":
            patched.setattr(row_equality, "hash_rows", lambda columns, _how: np.zeros(len(columns[0]), np.uint64))
        found = latest(parts, ["id"])

    assert content(found) == content(consolidate(pa.concat_tables(parts)))


@pytest.mark.parametrize("few_rows_max", [thresholds.FEW_ROWS_MAX, 0], ids=["by a set", "by Arrow"])
@pytest.mark.parametrize("keys", KEYS)
def test_matching_rows_have_one_of_the_keys(keys: tuple, few_rows_max: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(thresholds, "FEW_ROWS_MAX", few_rows_max)
    kind = pa.int64() if isinstance(keys[0], int) else pa.float64()
    table = pa.table({"id": pa.array([*keys, *keys], kind), "row": range(2 * len(keys))})
    wanted = pa.table({"other": pa.array(keys[1:4], kind)})

    assert row_equality.matching(table, ["id"], wanted).column("row").to_pylist() == [1, 2, 3, 6, 7, 8]
    assert row_equality.matching(table, ["id"], wanted.slice(0, 0)).num_rows == 0


def test_rows_are_equal_as_in_group_by():
    nan = float("nan")
    rows: list[dict[str, Any]] = [
        {"x": nan, "m": [("a", 1), ("b", 2)]},
        {"x": nan, "m": [("b", 2), ("a", 1)]},
        {"x": 0.0, "m": None},
        {"x": -0.0, "m": None},
    ]
    schema = weighted_schema(pa.schema([("x", pa.float64()), ("m", pa.map_(pa.string(), pa.int32()))]))
    table = pa.Table.from_pylist([{**row, "_weight": 1} for row in rows], schema)

    netted = consolidate(table)

    assert netted.column("_weight").to_pylist() == [2, 2]


def test_rows_keep_the_order_of_their_first_appearance():
    table = pa.table({"id": [3, 1, 3, 2, 1], "_weight": [1, 1, 1, 1, -1]})

    assert consolidate(table).to_pylist() == [{"id": 3, "_weight": 2}, {"id": 2, "_weight": 1}]


def test_a_table_without_columns_is_a_number_of_rows():
    table = pa.table({"_weight": pa.array([1, 1, -3], pa.int64())})

    assert consolidate(table).to_pylist() == [{"_weight": -1}]


def test_distinct_keys_keep_one_null():
    keys = pa.table({"id": [None, 1, None, 1]})

    assert distinct(keys).to_pylist() == [{"id": None}, {"id": 1}]
