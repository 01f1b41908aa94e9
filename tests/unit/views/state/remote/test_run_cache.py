"""The files of runs on a store, and their copies here."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.errors import Corruption, Fenced
from headwater.log.storage.files import Files
from headwater.objects.object_address import ObjectAddress
from headwater.views.state.algebra import weighted_schema
from headwater.views.state.delta import Delta
from headwater.views.state.manifest_entries import Listed
from headwater.views.state.remote.run_cache import RECENT_SECONDS, RunCache
from headwater.views.state.trace import Trace

SCHEMA = weighted_schema(pa.schema([("id", pa.int64())]))


@pytest.fixture
def cache(tmp_path: Path) -> RunCache:
    return RunCache(ObjectAddress.parse(f"file://{tmp_path}/state?cache_bytes=2000"), Files())


@pytest.fixture
def trace(tmp_path: Path, cache: RunCache) -> Trace:
    return Trace(tmp_path / "home" / "users-first", SCHEMA, cache=cache)


def written(trace: Trace, *numbers: int, tick: int = 1) -> Trace:
    changes = Delta.local(pa.table({"id": list(numbers), "_weight": [1] * len(numbers)}))
    return trace.with_run(trace.write(changes, tick=tick, epoch=1))


def rows(trace: Trace) -> list[int]:
    return [row["id"] for row in pa.Table.from_batches(trace.read(), trace.schema).to_pylist()]


def paths(trace: Trace) -> list[Path]:
    return [path for run in trace.runs for path in run.paths(trace.folder)]


def test_a_run_is_on_the_store_before_anybody_lists_it_under_a_name_of_its_own(cache: RunCache, trace: Trace) -> None:
    first, again = written(trace, 1, 2), written(trace, 1, 2)

    names = {found.name for found in cache.store.list("runs/")}

    assert names == {f"runs/users-first/{path.name}" for each in (first, again) for path in paths(each)}
    assert len(names) == 2  # the same tick of the same epoch, done again


@pytest.mark.parametrize("damage", ["missing", "cut short", "a flipped byte"])
def test_a_copy_that_is_missing_or_damaged_is_fetched_again(trace: Trace, damage: str) -> None:
    trace = written(trace, 1, 2, 3)
    (path,) = paths(trace)
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(whole[:-1] if damage == "cut short" else whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])

    read = rows(Trace(trace.folder, SCHEMA, trace.runs, cache=trace.cache))

    assert read == [1, 2, 3]
    assert path.read_bytes() == whole
    assert [each.name for each in trace.folder.iterdir() if each.is_file()] == [path.name]  # nothing half done


def test_an_object_that_is_damaged_is_an_error_and_never_rows(cache: RunCache, trace: Trace) -> None:
    trace = written(trace, 1, 2, 3)
    (path,) = paths(trace)
    content = path.read_bytes()
    cache.store.put(f"runs/users-first/{path.name}", content[:-9] + b"x" + content[-8:])
    path.unlink()

    with pytest.raises(Corruption, match=r"the object runs/users-first/.* is damaged"):
        rows(trace)
    cache.store.delete(f"runs/users-first/{path.name}")
    with pytest.raises(Corruption, match=r"the state file .* is missing"):
        rows(trace)


def test_copies_that_were_not_used_lately_go_when_they_are_too_many(cache: RunCache, trace: Trace) -> None:
    for tick in range(1, 9):
        trace = written(trace, *range(100), tick=tick)
    old = time.time() - 2 * RECENT_SECONDS
    for number, path in enumerate(paths(trace)[:6]):
        os.utime(path, (old + number, old))

    deleted = cache.trim(trace.folder.parent)

    left = [path for path in paths(trace) if path.exists()]
    assert deleted >= 5
    assert left == paths(trace)[deleted:]  # the oldest went, and those just written stay
    assert rows(trace) == list(range(100)) * 8
    assert cache.trim(trace.folder.parent) == 0  # all of them were just used


def test_files_that_nobody_lists_are_deleted_by_the_process_that_may_commit(
    cache: RunCache, trace: Trace, tmp_path: Path
) -> None:
    listed, orphan, young = (written(trace, number, tick=number) for number in (1, 2, 3))
    store = tmp_path / "state" / "runs" / "users-first"
    for each, age in ((listed, 9000), (orphan, 9000), (young, 0)):
        (path,) = paths(each)
        os.utime(store / path.name, (time.time() - age, time.time() - age))
    known: Listed = {"users-first": {path.name for path in paths(listed)}}

    def shut_out() -> Listed:
        raise Fenced("another process runs the app now")

    with pytest.raises(Fenced):
        cache.collect(shut_out, older_s=3600)
    before = len(list(store.iterdir()))
    deleted = cache.collect(lambda: known, older_s=3600)

    assert (before, deleted) == (3, 1)
    assert {path.name for path in store.iterdir()} == {path.name for each in (listed, young) for path in paths(each)}
