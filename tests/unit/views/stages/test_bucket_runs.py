"""Bucket runs: they are what a walk from bucket to bucket finds, in few lookups. Without Spark."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.views import thresholds
from headwater.views.stages.bucket_runs import bucket_runs
from headwater.views.stages.relation import TickRelation
from headwater.views.state.delta import Delta
from headwater.views.state.trace import Trace
from tests.unit.weighted_rows import thorough, weighted_table

SCHEMA = pa.schema([("bucket", pa.int64()), ("x", pa.int64())])


def relation(folder: str | Path, held: list[int]) -> TickRelation:
    trace = Trace(Path(folder), SCHEMA)
    rows = Delta.local(weighted_table(SCHEMA, [({"bucket": at, "x": 1}, 1) for at in held]))
    trace = trace.with_run(trace.write(rows, tick=1, epoch=1), rows)
    return TickRelation("clicks", SCHEMA, Delta.local(weighted_table(SCHEMA, [])), trace)


def walked(there: set[int], changed: set[int]) -> list[int]:
    """One step at a time."""
    found = set(changed)
    while more := {at for at in there - found if {at - 1, at + 1} & found}:
        found |= more
    return sorted(found)


@settings(max_examples=thorough(60), deadline=None)
@given(st.lists(st.integers(-30, 30)), st.sets(st.integers(-30, 30), min_size=1, max_size=4), st.booleans())
def test_runs_are_those_of_a_walk(held: list[int], changed: set[int], small: bool):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if not small:
            patch.setattr(thresholds, "LOCAL_ROWS_MAX", 0)
            patch.setattr(thresholds, "LOOKUP_PART", 100.0)

        assert bucket_runs(relation(folder, held), "bucket", changed) == walked({*held, *changed}, changed)


def test_a_long_run_takes_few_lookups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source, asked = relation(tmp_path, list(range(1000))), list[int]()
    before = source.before

    def counted(columns, lookup, keys):
        asked.append(keys.num_rows)
        return before(columns, lookup, keys)

    monkeypatch.setattr(source, "before", counted)

    assert bucket_runs(source, "bucket", [500]) == list(range(1000))
    assert len(asked) <= 10
    assert sum(asked) <= 2100


def test_buckets_that_are_too_many_to_be_looked_up_are_left_to_a_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("LOOKUP_KEYS_MAX", "TASK_ROWS_MAX", "LOCAL_ROWS_MAX"):
        monkeypatch.setattr(thresholds, name, 0)

    assert bucket_runs(relation(tmp_path, [1, 2, 3]), "bucket", [2]) is None
