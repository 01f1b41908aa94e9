"""Arrangements: found by key, in memory and from files, and made again whenever something is not right."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headwater.errors import InvalidDeclaration
from headwater.log.storage.files import Files
from headwater.views import thresholds
from headwater.views.state.delta import Delta
from headwater.views.state.lookups import sorted_blocks
from headwater.views.state.lookups.arrangements import Arrangements
from headwater.views.state.lookups.sorted_blocks import StatePiece
from headwater.views.state.trace import Trace

ROWS = 1000
SCHEMA = pa.schema([("id", pa.int64()), ("user", pa.int64()), ("name", pa.string())])


def users(ids: list[int] | range, weight: int = 1) -> pa.Table:
    columns = {"id": ids, "user": [number % 10 for number in ids], "name": [f"n{number}" for number in ids]}
    return pa.table({**columns, "_weight": np.full(len(ids), weight)})


def trace_of(folder: Path, *tables: pa.Table) -> Trace:
    trace = Trace(folder, SCHEMA)
    for tick, table in enumerate(tables):
        trace = trace.with_run(trace.write(Delta.local(table), tick=tick, epoch=1))
    return trace


def names(trace: Trace, ids: list[int | None]) -> list[str]:
    found = trace.lookup(["id"], pa.table({"id": pa.array(ids, pa.int64())}), ["name"])
    return sorted(found.column("name").to_pylist())


def cached(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.arrow"))


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything goes to files, in blocks of a hundred rows."""
    monkeypatch.setattr(thresholds, "ARRANGEMENT_FILE_ROWS_MIN", 1)
    monkeypatch.setattr(sorted_blocks, "BLOCK_ROWS", 100)
    monkeypatch.setattr("headwater.views.state.run.READ_ROWS", 100)


def test_a_small_pile_is_looked_up_in_memory(tmp_path: Path):
    trace = trace_of(tmp_path, users(range(ROWS)))

    assert names(trace, [3, 999, 1000]) == ["n3", "n999"]
    assert cached(tmp_path) == []


@pytest.mark.usefixtures("small_files")
def test_a_large_pile_is_looked_up_in_mapped_files(tmp_path: Path):
    trace = trace_of(tmp_path, users(range(ROWS)))

    assert names(trace, [3, 999, 1000]) == ["n3", "n999"]
    assert len(cached(tmp_path)) == 1
    with pa.ipc.open_file(str(cached(tmp_path)[0])) as file:
        assert file.num_record_batches == ROWS // 100
        assert file.schema.names == ["_hash", "name", "_weight"]


def test_every_row_of_a_key_is_found(tmp_path: Path):
    trace = trace_of(tmp_path, users(range(ROWS)))

    found = trace.lookup(["user"], pa.table({"u": pa.array([7], pa.int8())}), ["id"])

    assert sorted(found.column("id").to_pylist()) == list(range(7, ROWS, 10))


def test_null_is_found_by_null(tmp_path: Path):
    nobody = pa.table({"id": pa.array([None], pa.int64()), "user": [1], "name": ["nobody"], "_weight": [1]})
    trace = trace_of(tmp_path, users([1]), nobody)

    assert names(trace, [None]) == ["nobody"]


def test_rows_that_cancel_out_are_not_found(tmp_path: Path):
    trace = trace_of(tmp_path, users([1, 2]), users([1], -1))

    assert names(trace, [1, 2]) == ["n2"]


def test_a_run_whose_rows_are_here_is_not_read_again(tmp_path: Path):
    trace = trace_of(tmp_path, users([1]))
    names(trace, [1])
    changes = Delta.local(users([2]))
    run = trace.write(changes, tick=9, epoch=1)
    trace = trace.with_run(run, changes)
    run.paths(tmp_path)[0].unlink()

    assert names(trace, [1, 2]) == ["n1", "n2"]


@pytest.mark.usefixtures("small_files")
def test_the_cache_is_found_again_after_a_restart(tmp_path: Path):
    runs = trace_of(tmp_path, users(range(ROWS))).runs
    names(Trace(tmp_path, SCHEMA, runs), [1])
    written_at = cached(tmp_path)[0].stat().st_mtime_ns
    runs[0].paths(tmp_path)[0].unlink()

    assert names(Trace(tmp_path, SCHEMA, runs), [1]) == ["n1"]
    assert cached(tmp_path)[0].stat().st_mtime_ns == written_at


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("harm", ["cut", "empty", "remove", "another boot", "another piece"])
def test_a_cache_that_does_not_fit_is_made_again(tmp_path: Path, harm: str, monkeypatch: pytest.MonkeyPatch):
    runs = trace_of(tmp_path, users(range(ROWS)), users(range(ROWS, 2 * ROWS))).runs
    names(Trace(tmp_path, SCHEMA, runs), [1])
    first, second = cached(tmp_path)
    if harm == "cut":
        first.write_bytes(first.read_bytes()[:-10])
    elif harm == "empty":
        first.write_bytes(b"")
    elif harm == "remove":
        first.unlink()
    elif harm == "another boot":
        monkeypatch.setattr(sorted_blocks, "_boot", lambda: "later")
    else:
        first.write_bytes(second.read_bytes())

    assert names(Trace(tmp_path, SCHEMA, runs), [1, ROWS]) == ["n1", f"n{ROWS}"]


@pytest.mark.usefixtures("small_files")
def test_a_column_that_was_never_wanted_before_is_added(tmp_path: Path):
    trace = trace_of(tmp_path, users(range(ROWS)))
    names(trace, [1])

    found = trace.lookup(["id"], pa.table({"id": [5]}), ["user", "id"])

    assert found.to_pylist() == [{"user": 5, "id": 5, "_weight": 1}]
    assert names(trace, [1]) == ["n1"]


def test_a_pile_without_runs_and_keys_without_rows_find_nothing(tmp_path: Path):
    assert names(Trace(tmp_path, SCHEMA), [1]) == []
    assert names(trace_of(tmp_path, users([1])), []) == []


def test_an_unknown_column_is_named(tmp_path: Path):
    with pytest.raises(InvalidDeclaration, match='no column "nme"'):
        trace_of(tmp_path, users([1])).lookup(["id"], pa.table({"id": [1]}), ["nme"])


@pytest.mark.usefixtures("small_files")
def test_a_repeated_tick_with_other_rows_is_not_taken_for_the_first(tmp_path: Path):
    trace = trace_of(tmp_path, users(range(5)))
    first = Delta.local(users([100]))
    names(trace.with_run(trace.write(first, tick=9, epoch=1), first), [100])

    run = trace.write(Delta.local(users([200])), tick=9, epoch=1)

    assert names(trace.with_run(run), [100, 200]) == ["n200"]
    assert names(Trace(tmp_path, SCHEMA, [*trace.runs, run]), [100, 200]) == ["n200"]


def test_keys_of_no_type_find_nulls(tmp_path: Path):
    nobody = pa.table({"id": [1], "user": pa.nulls(1, pa.int64()), "name": ["nobody"], "_weight": [1]})
    trace = trace_of(tmp_path, users([1]), nobody)

    assert trace.lookup(["user"], pa.table({"u": pa.nulls(2)}), ["name"]).column("name").to_pylist() == ["nobody"]


def test_an_older_pile_still_sees_what_it_saw(tmp_path: Path):
    before = trace_of(tmp_path, users([1]))
    changes = Delta.local(users([1], -1))
    after = before.with_run(before.write(changes, tick=5, epoch=1), changes)

    assert names(after, [1]) == []
    assert names(before, [1]) == ["n1"]


def test_a_lookup_does_not_wait_while_a_merged_run_is_sorted(tmp_path: Path):
    reading, looked_up = threading.Event(), threading.Event()
    rows, waited = users(range(ROWS)), list[bool]()

    def read_late(fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        reading.set()
        waited.append(looked_up.wait(timeout=60))
        yield from rows.select(fields.names).to_batches()

    current = StatePiece("current", ROWS, lambda fields: iter(rows.select(fields.names).to_batches()))
    merged = StatePiece("merged", ROWS, read_late)
    arrangements = Arrangements(tmp_path, Files())
    asked = rows.schema, ["id"], pa.table({"id": [7]}), ["name"]
    arrangements.lookup([current], *asked)

    with ThreadPoolExecutor() as pool:
        sorting = pool.submit(arrangements.prepare, merged, rows.schema)
        assert reading.wait(timeout=60)
        found = arrangements.lookup([current], *asked)
        arrangements.add(StatePiece("new", 1, lambda _: iter(())), users([ROWS]))
        looked_up.set()
        sorting.result()

    assert waited == [True]
    assert found.to_pylist() == arrangements.lookup([merged], *asked).to_pylist() == [{"name": "n7", "_weight": 1}]


def test_a_piece_that_was_let_go_while_it_was_sorted_is_not_kept(tmp_path: Path):
    rows, times_read = users(range(ROWS)), list[str]()

    def read_and_forget(fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        times_read.append("read")
        arrangements.forget(["run"])
        yield from rows.select(fields.names).to_batches()

    run = StatePiece("run", ROWS, read_and_forget)
    arrangements = Arrangements(tmp_path, Files())

    answers = [arrangements.lookup([run], rows.schema, ["id"], pa.table({"id": [7]}), ["name"]) for _ in range(2)]

    assert [answer.to_pylist() for answer in answers] == [[{"name": "n7", "_weight": 1}]] * 2
    assert times_read == ["read", "read"]
