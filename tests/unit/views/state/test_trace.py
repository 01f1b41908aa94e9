"""Traces: whatever is added, merged and opened again, the content is the sum of the changes. Without Spark."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import Misuse
from headwater.views import thresholds
from headwater.views.state.delta import Delta
from headwater.views.state.lookups import sorted_blocks
from headwater.views.state.merge import RunMerge
from headwater.views.state.run import Run
from headwater.views.state.trace import Trace
from tests.unit.typed_rows import rows, schemas
from tests.unit.weighted_rows import content, model, thorough, weighted_table

SCHEMA = pa.schema([("id", pa.int64())])


def reopened(trace: Trace) -> Trace:
    """The trace as another process finds it: from what the manifest keeps."""
    runs = [Run.from_json(json.loads(json.dumps(run.to_json()))) for run in trace.runs]
    return Trace(trace.folder, trace.schema, runs)


def content_of(trace: Trace) -> Counter[Any]:
    return content(pa.Table.from_batches(trace.read(), schema=trace.schema))


def added(trace: Trace, ids: list[int], weight: int = 1) -> Trace:
    changes = Delta.local(weighted_table(SCHEMA, [({"id": number}, weight) for number in ids]))
    return trace.with_run(trace.write(changes, tick=len(trace.runs), epoch=1), changes)


def test_files_that_two_traces_adopt_are_in_both(tmp_path: Path):
    """Of rows that are all in time the changes of a keyed topic are those of the view's own state as well."""
    rows = weighted_table(SCHEMA, [({"id": 1}, 1), ({"id": 2}, -1)])
    pq.write_table(rows, tmp_path / "large.parquet", write_page_checksum=True)
    changes = Delta.written([tmp_path / "large.parquet"], SCHEMA)
    traces = [Trace(tmp_path / name, SCHEMA) for name in ("topic", "view", "other view")]

    traces = [trace.with_run(trace.write(changes, tick=1, epoch=1), changes) for trace in traces]

    assert [content_of(reopened(trace)) for trace in traces] == [content(rows)] * 3
    assert content(changes.read()) == content(rows)
    assert [len(list(trace.folder.glob("*.parquet*"))) for trace in traces] == [1, 1, 1]


@settings(max_examples=thorough(40), deadline=None)
@given(st.data())
def test_content_and_lookups_agree_with_a_counter(data: st.DataObject):
    schema = data.draw(schemas)
    pool = data.draw(rows(schema).filter(bool))
    expected: list[tuple[dict[str, Any], int]] = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "ARRANGEMENT_FILE_ROWS_MIN", data.draw(st.sampled_from([1, 4, 50_000])))
        patch.setattr(sorted_blocks, "BLOCK_ROWS", 3)
        trace = Trace(Path(folder), schema)
        for tick in range(data.draw(st.integers(1, 6))):
            more = data.draw(st.lists(st.tuples(st.sampled_from(pool), st.integers(-2, 3)), max_size=6))
            expected += more
            changes = Delta.local(weighted_table(schema, more))
            trace = trace.with_run(
                trace.write(changes, tick=tick, epoch=1), changes if data.draw(st.booleans()) else None
            )
            if len(trace.runs) > 1 and data.draw(st.booleans()):
                first = data.draw(st.integers(0, len(trace.runs) - 2))
                stop = data.draw(st.integers(first + 2, len(trace.runs)))
                trace = trace.with_merge(*RunMerge(trace, trace.runs[first:stop]).run())
            if data.draw(st.booleans()):
                trace.prune(trace.runs)
                trace = reopened(trace)
            assert content_of(trace) == model(expected, schema)
            check_lookup(trace, schema, expected, data)


def check_lookup(trace: Trace, schema: pa.Schema, expected: list[Any], data: st.DataObject) -> None:
    columns = data.draw(st.lists(st.sampled_from(schema.names), min_size=1, unique=True))
    looked_for = data.draw(st.sampled_from([row for row, _ in expected])) if expected else {}
    keys = weighted_table(schema, [(looked_for, 1)] if looked_for else []).select(columns)

    found = trace.lookup(columns, keys, schema.names)

    wanted = [] if not keys.num_rows else matching(expected, schema, columns, keys)
    assert content(found) == model(wanted, schema)
    assert found.num_rows == len(content(found))


def matching(expected: list[Any], schema: pa.Schema, columns: list[str], keys: pa.Table) -> list[Any]:
    (key,) = content(keys)
    return [
        (row, weight)
        for row, weight in expected
        if next(iter(content(weighted_table(schema, [(row, 1)]).select(columns)))) == key
    ]


def test_a_pile_does_not_change_when_the_next_one_is_made(tmp_path: Path):
    first = added(Trace(tmp_path, SCHEMA), [1, 2])
    second = added(first, [1], -1)

    assert (first.rows, second.rows) == (2, 3)
    assert [row.as_py() for batch in first.read() for row in batch.column("id")] == [1, 2]


def test_a_merge_after_changes_that_came_with_the_content_is_what_a_new_process_adds_up(tmp_path: Path):
    """A tick of a GROUP BY has the content at hand, and a merge of all runs takes it as it is."""
    trace, there = Trace(tmp_path, SCHEMA, key=["id"]), set[int]()
    for tick, (gone, came) in enumerate([([], [1, 2, 3]), ([2], [4]), ([1, 4], []), ([], [2])]):
        there = there - set(gone) | set(came)
        rows = [({"id": number}, -1) for number in gone] + [({"id": number}, 1) for number in came]
        after = weighted_table(SCHEMA, [({"id": number}, 1) for number in there])
        changes = Delta.local(weighted_table(SCHEMA, rows), content=after)
        trace = trace.with_run(trace.write(changes, tick=tick, epoch=1), changes)
    added_up = Trace(tmp_path, SCHEMA, trace.runs, key=["id"])

    merged = trace.with_merge(*trace.merge_of_all().run())

    assert content(trace.content()) == content(added_up.content()) == content_of(reopened(merged))
    assert sorted(trace.content().column("id").to_pylist()) == [2, 3]


def test_a_repeated_tick_writes_the_same_run(tmp_path: Path):
    trace = Trace(tmp_path, SCHEMA)
    changes = Delta.local(weighted_table(SCHEMA, [({"id": 1}, 1)]))

    once, again = trace.write(changes, tick=3, epoch=1), trace.write(changes, tick=3, epoch=1)

    assert once == again


def test_a_process_of_another_epoch_writes_other_files(tmp_path: Path):
    trace = Trace(tmp_path, SCHEMA)
    changes = Delta.local(weighted_table(SCHEMA, [({"id": 1}, 1)]))

    old, new = trace.write(changes, tick=3, epoch=1), trace.write(changes, tick=3, epoch=2)

    assert {file.name for file in old.files}.isdisjoint(file.name for file in new.files)


def test_pruning_keeps_what_it_is_told_to_keep(tmp_path: Path):
    trace = added(added(Trace(tmp_path, SCHEMA), [1]), [2])
    replaced, merged = RunMerge(trace, trace.runs).run()
    assert merged is not None
    (tmp_path / "9-9.parquet.tmp").mkdir()
    (tmp_path / "8-1.parquet.tmp").write_bytes(b"left by a crash")

    trace.prune({*trace.runs[:1], merged})

    assert {path.name for path in tmp_path.glob("*.parquet*")} == {trace.runs[0].files[0].name, merged.files[0].name}
    assert content_of(trace.with_merge(replaced, merged)) == content_of(
        added(Trace(tmp_path / "other", SCHEMA), [1, 2])
    )


def test_runs_added_during_a_merge_stay_behind_it(tmp_path: Path):
    trace = added(added(Trace(tmp_path, SCHEMA), [1]), [2])
    replaced, merged = RunMerge(trace, trace.runs).run()
    later = added(trace, [3])

    after = later.with_merge(replaced, merged)

    assert [run.name for run in after.runs] == [merged.name if merged else "", later.runs[-1].name]
    assert content_of(after) == content_of(later)


def test_runs_of_another_pile_are_not_replaced(tmp_path: Path):
    trace = added(Trace(tmp_path, SCHEMA), [1])
    other = added(added(Trace(tmp_path / "other", SCHEMA), [1]), [2])

    with pytest.raises(Misuse, match="not all in this trace"):
        trace.with_merge(other.runs, None)
