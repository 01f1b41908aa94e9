"""The exchange of many keys, beside a dictionary: what leaves, what comes, what stays.

Not here: whole ticks with every table large (``tests/spark/test_views_equal_batch.py``).
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.views import thresholds
from headwater.views.state.algebra import with_weight
from headwater.views.state.delta import Delta
from headwater.views.state.lookups.key_index import KeyIndex
from headwater.views.state.run import STAGING
from headwater.views.state.trace import Trace
from headwater.views.tick import exchange
from headwater.views.tick.exchange import exchanged

# A key's type, and values of it. Numbers close together are found by place, others by hash.
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "close numbers": (pa.int64(), list(range(-3, 9))),
    "far numbers": (pa.int64(), [n * 10**15 for n in range(-6, 6)]),
    "texts": (pa.string(), ["", "a", "b", "ä", "a\0", "long " * 40, *"cdefgh"]),
    "floats": (pa.float64(), [0.0, -0.0, math.nan, math.inf, 1.5, -1.5, 1e300, 2.0, 3.0, 4.0]),
    "nested": (pa.list_(pa.int32()), [[], [1], [1, 2], [2], [None], [3], [4]]),
}


def schema_of(kind: str) -> pa.Schema:
    return pa.schema([("part", pa.string()), ("id", KEYS[kind][0]), ("amount", pa.int64())])


def same(key: tuple[Any, ...]) -> str:
    """Keys that SQL calls equal have one text."""
    part, value = key
    if isinstance(value, float):
        value = "nan" if math.isnan(value) else value + 0.0
    return repr((part, value))


def summed(table: pa.Table) -> dict[str, int]:
    """The weights of equal rows, added up by Python."""
    sums: dict[str, int] = {}
    for row in table.to_pylist():
        text = same((row["part"], row["id"])) + f" {row['amount']}"
        sums[text] = sums.get(text, 0) + row["_weight"]
    return {text: weight for text, weight in sums.items() if weight}


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_ticks_of_many_keys_are_those_of_a_dictionary(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(KEYS)))
    names = data.draw(st.sampled_from([("id",), ("part", "id")]))
    schema = schema_of(kind)
    trace = Trace(Path(tempfile.mkdtemp()), schema, key=names)
    held: dict[str, dict[str, Any]] = {}

    for tick in range(1, data.draw(st.integers(2, 6)) + 1):
        keys = data.draw(st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from(KEYS[kind][1])), max_size=8))
        rows = {}
        for at, (part, value) in enumerate(keys):
            part = part if "part" in names else "x"
            row = {"part": part, "id": value, "amount": data.draw(st.integers(0, 2)), "gone": (at + tick) % 4 == 0}
            rows[same((part, value))] = row
        keeps = data.draw(st.booleans())
        changes = exchanged(
            trace,
            pa.Table.from_pylist(list(rows.values()), schema).select(list(names)),
            with_weight(pa.Table.from_pylist([row for row in rows.values() if not row["gone"]], schema), 1),
            keeps=keeps,
        )
        before = dict.fromkeys((f"{key} {row['amount']}" for key, row in held.items()), 1)
        for key, row in rows.items():
            held.pop(key, None)
            if not row["gone"]:
                held[key] = row
        after = dict.fromkeys((f"{key} {row['amount']}" for key, row in held.items()), 1)
        difference = {text: after.get(text, 0) - before.get(text, 0) for text in before | after}

        assert summed(changes.read()) == {text: weight for text, weight in difference.items() if weight}
        if keeps and changes.rows:
            assert changes.staying is not None
            kept = [pq.read_table(path) for path in changes.staying.files]
            untouched = {
                text: 1 for key, text in ((k, f"{k} {r['amount']}") for k, r in held.items()) if key not in rows
            }
            assert summed(pa.concat_tables([trace.schema.empty_table(), *kept])) == untouched
        if changes.rows:
            run = trace.write(changes, tick=tick, epoch=1)
            following = trace.with_run(run)
            if keeps and data.draw(st.booleans()):
                assert changes.staying is not None
                trace = following.with_merge(following.runs, following.adopt_content(changes.staying, run))
                assert all(one.positive for one in trace.runs)
            else:
                trace = following
            if len(trace.runs) > 2 and data.draw(st.booleans()):
                merged = merge_of_all(trace) if data.draw(st.booleans()) else later_merge(trace)
                trace = trace.with_merge(*merged)
        assert summed(pa.Table.from_batches(trace.read(), trace.schema)) == after


def merge_of_all(trace: Trace) -> Any:
    """As many rows are merged: in one pass."""
    with patch.object(thresholds, "TASK_ROWS_MAX", 0):
        return trace.merge_of_all().run()


def later_merge(trace: Trace) -> Any:
    """A merge of all runs but the first, which leaves rows of negative weight."""
    from headwater.views.state.merge import RunMerge

    return RunMerge(trace, trace.runs[1:]).run()


def test_keys_that_meet_by_their_hashes_alone_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "headwater.views.state.lookups.key_index.hash_rows",
        lambda columns, _: np.array([len(str(value)) for value in columns[0].to_pylist()], np.uint64),
    )
    index = KeyIndex(pa.table({"id": ["aa", "b", "cc", "d"]}))

    assert index.find(pa.table({"id": ["d", "dd", "cc", "b", "aa", "eee", None]})).tolist() == [3, -1, 2, 1, 0, -1, -1]


def test_a_null_is_found_where_a_key_is_null() -> None:
    far = pa.table({"id": pa.array([None, 10**15, 7], pa.int64())})
    close = pa.table({"id": pa.array([5, 6, 7], pa.int64())})

    assert KeyIndex(far).find(far).tolist() == [0, 1, 2]
    assert KeyIndex(close).find(far).tolist() == [-1, -1, 2]


def test_memory_does_not_grow_with_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    trace = Trace(tmp_path, schema, key=["id"])
    for tick in range(4):
        ids = np.arange(tick * 200_000, (tick + 1) * 200_000)
        rows = Delta.local(with_weight(pa.table({"id": ids, "text": pa.array(["x" * 50]).take([0] * len(ids))}), 1))
        trace = trace.with_run(trace.write(rows, tick=tick, epoch=1))
    monkeypatch.setattr("headwater.views.state.lookups.keyed_pass.BATCH_ROWS", 10_000)
    monkeypatch.setattr("headwater.views.state.run.GROUP_ROWS", 20_000)
    monkeypatch.setattr("headwater.views.state.run.READ_ROWS", 10_000)
    held: list[int] = []
    parted = exchange._parted
    monkeypatch.setattr(
        exchange,
        "_parted",
        lambda *given: (held.append(sum(table.nbytes for table in both)) or both for both in parted(*given)),
    )
    new = pa.table({"id": [5], "text": ["new"]})
    changes = exchanged(trace, new.select(["id"]), with_weight(new, 1), keeps=True)

    assert max(held) < 20_000 * 80  # of 800 000 rows of 66 bytes
    assert changes.read().to_pylist() == [
        {"id": 5, "text": "x" * 50, "_weight": -1},
        {"id": 5, "text": "new", "_weight": 1},
    ]


def test_what_changes_nothing_leaves_no_file(tmp_path: Path) -> None:
    trace = Trace(tmp_path, pa.schema([("id", pa.int64())]), key=["id"])
    rows = Delta.local(with_weight(pa.table({"id": [1, 2]}), 1))
    trace = trace.with_run(trace.write(rows, tick=1, epoch=1))
    absent = pa.table({"id": [7]})

    changes = exchanged(trace, absent, with_weight(absent.slice(0, 0), 1), keeps=True)

    assert changes.rows == 0
    assert changes.staying is None
    assert not list(tmp_path.glob(f"*{STAGING}"))


def test_an_exchange_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    trace = Trace(tmp_path, pa.schema([("id", pa.int64())]), key=["id"])
    monkeypatch.setattr(exchange, "_parted", fail)
    new = pa.table({"id": [1]})

    with pytest.raises(OSError, match="no space"):
        exchanged(trace, new, with_weight(new, 1), keeps=True)

    assert not list(tmp_path.glob(f"*{STAGING}"))


def test_keys_are_still_looked_up_after_an_exchange_that_was_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "ARRANGEMENT_FILE_ROWS_MIN", 1)
    trace = Trace(tmp_path, pa.schema([("id", pa.int64())]), key=["id"])
    rows = Delta.local(with_weight(pa.table({"id": [1, 2]}), 1))
    trace = trace.with_run(trace.write(rows, tick=1, epoch=1))
    one = pa.table({"id": [2]})
    before = trace.lookup(["id"], one, ["id"])

    trace.unmap()
    exchanged(trace, one, with_weight(one, 1), keeps=True)

    assert trace.lookup(["id"], one, ["id"]).equals(before)
    assert before.to_pylist() == [{"id": 2, "_weight": 1}]
