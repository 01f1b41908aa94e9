"""Groups that get new rows: what changes is what a dictionary of the rows says, and so is the content afterwards."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.views.stages.groups.replaced_groups import replaced
from headwater.views.state.algebra import weighted_schema

SCHEMA = pa.schema(
    [
        pa.field("country", pa.string()),
        pa.field("half", pa.float64()),
        pa.field("revenue", pa.float64()),
        pa.field("orders", pa.int64()),
        pa.field("parts", pa.list_(pa.struct([("class", pa.int32())]))),
    ]
)
KEYS = [(country, half) for country in [None, *map(str, range(150))] for half in (None, 0.0, math.nan)]

Row = dict[str, Any]


def drawn(random: random.Random, key: tuple[Any, ...]) -> Row:
    values = {"revenue": random.choice([None, math.nan, 0.0, 1.5]), "orders": random.choice([None, 1, 2])}
    return {"country": key[0], "half": key[1], **values, "parts": random.choice([None, [], [{"class": 1}]])}


def text(row: Row) -> str:
    """A row as a text: NaN equals NaN."""
    return repr([row[name] for name in SCHEMA.names])


@pytest.mark.parametrize("groups", [0, 1, 5, 40, 300])
@pytest.mark.parametrize("key", [("country",), ("country", "half"), ()])
def test_replaced_groups_are_those_of_a_dictionary(key: tuple[str, ...], groups: int) -> None:
    source = random.Random(groups)
    keys = {tuple(dict(zip(("country", "half"), k, strict=True))[name] for name in key): k for k in KEYS}
    before = {k: drawn(source, keys[k]) for k in source.sample(list(keys), min(groups, len(keys)))}
    touched = {k: drawn(source, keys[k]) for k in source.sample(list(keys), min(200, len(keys)))}
    touched |= {k: before[k] for k in before if source.random() < 0.3}
    there = {k: source.random() < 0.8 for k in touched}
    content = pa.Table.from_pylist([{**row, "_weight": 1} for row in before.values()], weighted_schema(SCHEMA))

    changes, after = replaced(
        content, pa.Table.from_pylist(list(touched.values()), SCHEMA), key, np.array(list(there.values()), dtype=bool)
    )

    expected = {k: row for k, row in (before | touched).items() if there.get(k, True)}
    assert Counter(map(text, after.to_pylist())) == Counter(map(text, expected.values()))
    weights = Counter(map(text, expected.values()))
    weights.subtract(map(text, before.values()))
    found: Counter[str] = Counter()
    for row in changes.to_pylist():
        assert row["_weight"] in (1, -1)
        assert text(row) not in found  # consolidated
        found[text(row)] = row["_weight"]
    assert found == Counter({row: weight for row, weight in weights.items() if weight})
    assert set(after.column("_weight").to_pylist()) <= {1}
    assert after.schema == changes.schema == weighted_schema(SCHEMA)


def test_a_negative_zero_in_place_of_a_zero_is_no_change() -> None:
    content = pa.Table.from_pylist(
        [{"country": "DE", "revenue": 0.0, "orders": 1, "_weight": 1}], weighted_schema(SCHEMA)
    )

    changes, after = replaced(
        content, pa.Table.from_pylist([{"country": "DE", "revenue": -0.0, "orders": 1}], SCHEMA), ["country"]
    )

    assert changes.num_rows == 0
    assert math.copysign(1, after.column("revenue")[0].as_py()) == 1
