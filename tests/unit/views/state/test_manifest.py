"""Manifests: who may commit, and what the catalog knows of all kept ticks without parsing them.

The suite runs twice: over manifests that are committed in the catalog, and over those on an object store.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from headwater.errors import Corruption, Fenced
from headwater.log.home import Log
from headwater.objects.object_address import ObjectAddress
from headwater.views.state import state_store
from headwater.views.state.algebra import weighted_schema
from headwater.views.state.manifest import Manifest, Manifests
from headwater.views.state.manifest_entries import folder_name
from headwater.views.state.remote import store_manifests
from headwater.views.state.remote.store_manifests import StoreManifests
from headwater.views.state.run import STAGING, Run, RunFile
from headwater.views.state.state_store import UNLISTED_SECONDS_MAX, StateStore
from headwater.views.state.trace import Trace

Opened = Callable[[], Manifests]
SCHEMA = weighted_schema(pa.schema([("id", pa.int64())]))


@pytest.fixture(params=["catalog", "object store"])
def opened(request: pytest.FixtureRequest, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """The manifests of an app, as each process opens them."""
    monkeypatch.setattr(store_manifests, "CHECKPOINT_COMMITS", 7)
    address = ObjectAddress.parse(f"file://{tmp_path}/state")
    if request.param == "catalog":
        return lambda: Manifests(log.catalog, "shop")
    return lambda: StoreManifests(log.catalog, "shop", address, log_id="7f")


class Engine:
    """Views that come, change, are merged, rebuilt and dropped, and a manifest of each tick."""

    def __init__(self, opened: Opened, seed: int) -> None:
        self.opened = opened
        self.chance = random.Random(seed)
        self.runs: dict[str, list[Run]] = {}
        self.created: dict[str, int] = {}
        self.committed: dict[int, Manifest] = {}  # the oracle: all manifests, never forgotten
        self.tick = 0
        self.begin()

    def begin(self) -> None:
        """As after a restart: a process that remembers nothing."""
        self.manifests = self.opened()
        self.epoch = self.manifests.take_over()

    def run(self, name: str, first_tick: int) -> Run:
        file = RunFile(f"{name}.parquet", 1, 2)
        return Run(name, (file,), self.chance.randrange(1, 5), first_tick, self.tick)

    def commit(self, first_kept: int) -> None:
        self.tick += 1
        apart: dict[str, Any] = {}
        for view in ("one", "two", "three"):
            what = self.chance.choice(["nothing", "change", "change", "merge", "drop", "rebuild"])
            if view not in self.runs:
                self.runs[view], self.created[view] = [self.run(f"{self.tick}-new", self.tick)], self.tick
            elif what == "change":
                self.runs[view] = [*self.runs[view], self.run(f"{self.tick}-{self.epoch}", self.tick)]
            elif what == "merge":
                self.runs[view] = [self.run(f"{self.tick}-merged", self.runs[view][0].first_tick)]
            elif what == "rebuild":
                self.runs[view] = [self.run(f"{self.tick}-rebuilt", 1)]
                apart[view] = entry(f"apart{self.tick}", [self.run(f"{self.tick}-apart", self.tick)])
            elif what == "drop":
                del self.runs[view]
        manifest = Manifest(
            self.tick,
            self.epoch,
            committed_us=self.tick,
            relations={name: entry("first", runs) for name, runs in self.runs.items()},
            views={name: {"created_tick": self.created[name]} for name in self.runs},
            apart=apart,
            topics={"orders": 1 + self.epoch // 3},
            aside={"orders": {"0": [self.tick // 7]}},
        )
        self.manifests.commit(manifest, first_kept=first_kept)
        self.committed[self.tick] = manifest
        if self.manifests.tidy_due:
            self.manifests.tidy()

    def kept(self, first: int) -> list[Manifest]:
        return [manifest for tick, manifest in self.committed.items() if tick >= first]


def entry(identity: str, runs: list[Run]) -> dict[str, Any]:
    return {"identity": identity, "schema": "id BIGINT", "key": [], "runs": [run.to_json() for run in runs]}


def files_of(manifests: list[Manifest]) -> set[tuple[str, str]]:
    return {
        (folder_name(name, about["identity"]), file[0])
        for manifest in manifests
        for name, about in (*manifest.relations.items(), *manifest.apart.items())
        for run in about["runs"]
        for file in run["files"]
    }


def changes_of(manifests: list[Manifest], view: str) -> int:
    total = 0
    for manifest in manifests:
        if view in manifest.views:
            runs = (manifest.apart.get(view) or manifest.relations[view])["runs"]
            whole = manifest.views[view]["created_tick"] == manifest.tick
            total += sum(run["rows"] for run in runs if whole or run["first_tick"] == manifest.tick)
    return total


@pytest.mark.parametrize("seed", range(10))
def test_listed_files_and_missed_changes_are_those_of_all_kept_manifests(opened: Opened, seed: int) -> None:
    engine = Engine(opened, seed)
    first = 1

    for _ in range(60):
        if engine.chance.random() < 0.1:
            engine.begin()
        first = max(first, engine.tick + 1 - engine.chance.choice([3, 10, 30]))
        engine.commit(first)

        listed = {(folder, file) for folder, names in engine.manifests.listed().items() for file in names}
        after = engine.chance.randrange(first - 1, engine.tick)
        missed = engine.manifests.missed("two", after)
        assert listed == files_of(engine.kept(first))
        assert missed is not None
        assert (missed.first, missed.committed_us) == (after + 1, after + 1)
        assert missed.changes == changes_of(engine.kept(after + 1), "two")
        read = [engine.manifests.at(manifest.tick) for manifest in engine.kept(first)]
        assert read == engine.kept(first)
        assert [list(manifest.relations) for manifest in read if manifest] == [
            list(manifest.relations) for manifest in engine.kept(first)
        ]
        assert engine.manifests.current() == engine.committed[engine.tick]
        assert engine.manifests.at(first - 1) is None
        assert engine.manifests.at(engine.tick + 1) is None
    assert [tick for tick, _ in engine.manifests.kept()] == list(range(first, 61))
    assert engine.manifests.missed("two", 60) is None


def rows_of(log: Log) -> int:
    return sum(
        log.catalog.read(f"SELECT count(*) FROM {table}")[0][0] for table in ("manifest_entries", "manifest_runs")
    )


def test_a_tick_stores_what_it_changed_and_nothing_of_views_that_stood_still(log: Log, opened: Opened) -> None:
    manifests = opened()
    epoch = manifests.take_over()
    views: Any = {f"view{number}": {"created_tick": 1} for number in range(100)}
    first: Any = {name: entry("first", [Run("1-1", (RunFile("a", 1, 2),), 1, 1, 1)]) for name in views}
    manifests.commit(Manifest(1, epoch, views=views, relations=first))
    begin = rows_of(log)

    second = {**first, "view7": entry("first", [Run(f"{n}-1", (RunFile("a", 1, 2),), 1, n, n) for n in (1, 2)])}
    manifests.commit(Manifest(2, epoch, views=views, relations=second))
    added = rows_of(log) - begin
    third = {name: entry("first", [Run.from_json(run) for run in about["runs"]]) for name, about in second.items()}
    manifests._committed = None  # as in a process that has only read the manifest
    manifests.commit(Manifest(3, epoch, views={name: dict(about) for name, about in views.items()}, relations=third))

    assert added == 1
    assert rows_of(log) - begin == 1
    assert len(log.catalog.read("SELECT manifest FROM ticks WHERE tick = 3")[0][0]) < 300
    assert manifests.at(2) == Manifest(2, epoch, views=views, relations=second)


def test_a_commit_that_dies_halfway_leaves_the_tick_before_and_can_be_repeated(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(lambda: Manifests(log.catalog, "shop"), 5)
    for _ in range(5):
        engine.commit(1)
    before = rows_of(log)
    manifest = Manifest(6, engine.epoch, committed_us=6)

    for place in ("write_app_positions", "EntryChanges.between"):
        with monkeypatch.context() as broken:
            broken.setattr(f"headwater.views.state.manifest.{place}", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                engine.manifests.commit(manifest, first_kept=6)
    dead = rows_of(log), engine.manifests.current(), engine.manifests.at(1)
    engine.manifests.commit(manifest, first_kept=6)

    assert dead == (before, engine.committed[5], engine.committed[1])
    assert engine.manifests.current() == manifest
    assert engine.manifests.listed() == {}


def test_the_current_manifest_is_that_of_the_last_commit_whoever_made_it(opened: Opened) -> None:
    engine, reader = Engine(opened, 6), opened()
    seen = [reader.current()]

    for _ in range(10):
        engine.commit(1)
        seen += [reader.current(), reader.current()]

    assert seen[0] == Manifest()
    assert seen[1:] == [manifest for tick in range(1, 11) for manifest in [engine.committed[tick]] * 2]


def test_nothing_is_left_of_ticks_that_are_no_longer_kept(log: Log, opened: Opened) -> None:
    engine = Engine(opened, 4)
    for _ in range(30):
        engine.commit(1)
    many = rows_of(log)
    for _ in range(30):
        engine.commit(engine.tick + 1)

    assert engine.manifests.kept() == [(60, 60)]
    assert rows_of(log) < many / 4
    assert log.catalog.read("SELECT count(*) FROM manifest_runs WHERE last_tick < 60")[0][0] == 0
    assert engine.manifests.current() == engine.committed[60]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM manifest_entries WHERE kind = 'view' AND name = 'one'", "what it says of one cannot be found"),
        ("DELETE FROM manifest_runs WHERE last_tick IS NULL", "runs cannot be found"),
        ("UPDATE manifest_entries SET entry = '{' WHERE kind = 'relation'", "is damaged"),
        ("UPDATE ticks SET manifest = substr(manifest, 1, 20)", "is damaged"),
    ],
)
def test_a_manifest_with_a_missing_or_damaged_entry_is_an_error(
    log: Log, opened: Opened, statement: str, message: str
) -> None:
    manifests = opened()
    relations: Any = {"one": entry("first", [Run("1-1", (RunFile("a", 1, 2),), 1, 1, 1)])}
    views: Any = {"one": {"created_tick": 1}}
    manifests.commit(Manifest(1, manifests.take_over(), views=views, relations=relations))
    with log.catalog.write() as db:
        db.execute(statement)

    with pytest.raises(Corruption, match=message):
        manifests.current()


def test_a_process_that_was_shut_out_commits_nothing(log: Log, opened: Opened) -> None:
    engine = Engine(opened, 1)
    for _ in range(5):
        engine.commit(1)
    before = engine.manifests.listed()

    opened().take_over()
    with pytest.raises(Fenced, match='another process runs app "shop" now'):
        engine.commit(5)

    assert engine.manifests.listed() == before
    assert engine.manifests.tick() == 5
    assert [tick for tick, _ in engine.manifests.kept()] == [1, 2, 3, 4, 5]
    assert log.catalog.read("SELECT max(tick) FROM tick_changes")[0][0] <= 5


def test_a_repeated_commit_of_one_tick_is_refused(opened: Opened) -> None:
    engine = Engine(opened, 1)
    engine.commit(1)

    with pytest.raises(Fenced):
        engine.manifests.commit(engine.committed[1])


def test_pruning_removes_old_files_that_no_kept_manifest_lists_and_folders_of_relations_that_are_no_more(
    log: Log, opened: Opened
) -> None:
    engine = Engine(opened, 3)
    folder = log.home / "views" / "shop"
    for _ in range(20):
        engine.commit(max(1, engine.tick - 4))
    kept, every = files_of(engine.kept(15)), files_of(engine.kept(1))
    old = os.stat(log.home).st_mtime - 2 * UNLISTED_SECONDS_MAX
    for place, name in sorted(every):
        (folder / place).mkdir(parents=True, exist_ok=True)
        (folder / place / name).touch()
        os.utime(folder / place / name, (old, old))
    for place in folder.iterdir():
        os.utime(place, (old, old))
    (folder / "one-first" / "just-written.parquet").touch()
    (folder / "new-first").mkdir()
    store = StateStore(folder, log.files, cast(Any, None))

    traces = {
        name: Trace(folder / folder_name(name, "first"), SCHEMA, runs, files=log.files)
        for name, runs in engine.runs.items()
    }
    store.begin_pruning(engine.manifests.listed, dict(traces))
    store.close()  # waits for it

    left = {(path.parent.name, path.name) for path in folder.glob("*/*.parquet")}
    assert left == kept | {("one-first", "just-written.parquet")}
    assert kept < every
    assert {path.name for path in folder.iterdir()} == {place for place, _ in left} | {"new-first"}


def test_what_a_crash_left_half_written_is_pruned_when_it_is_old(log: Log) -> None:
    folder = log.home / "views" / "shop"
    place = folder / folder_name("orders", "first")
    (place / f"merged{STAGING}").mkdir(parents=True)  # Spark's
    (place / f"merged{STAGING}" / "part-0.parquet").touch()
    (place / f"tick{STAGING}").touch()
    old = os.stat(log.home).st_mtime - 2 * UNLISTED_SECONDS_MAX
    for path in (place / f"merged{STAGING}" / "part-0.parquet", *place.iterdir()):
        os.utime(path, (old, old))
    (place / f"under-way{STAGING}").touch()
    store = StateStore(folder, log.files, cast(Any, None))

    store.prune({place.name: set()}, {})
    store.close()

    assert [path.name for path in place.iterdir()] == [f"under-way{STAGING}"]


def test_files_that_were_listed_go_some_minutes_after_the_last_kept_tick_that_lists_them(
    log: Log, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(opened, 3)
    folder = log.home / "views" / "shop"
    store = StateStore(folder, log.files, cast(Any, None))
    for _ in range(20):
        engine.commit(max(1, engine.tick - 4))
    kept, every = files_of(engine.kept(15)), files_of(engine.kept(1))
    for place, name in sorted({*every, ("one-first", "never-listed.parquet")}):
        (folder / place).mkdir(parents=True, exist_ok=True)
        (folder / place / name).touch()
    released = engine.manifests.take_released()

    store.prune(engine.manifests.listed(), {}, released)
    at_first = {(path.parent.name, path.name) for path in folder.glob("*/*.parquet")}
    monkeypatch.setattr(state_store, "RELEASED_SECONDS_MAX", 0)
    store.prune(engine.manifests.listed(), {}, engine.manifests.take_released())
    left = {(path.parent.name, path.name) for path in folder.glob("*/*.parquet")}
    store.close()

    assert set(released) == every - kept
    assert len(released) == len(set(released))
    assert at_first == every | {("one-first", "never-listed.parquet")}
    assert left == kept | {("one-first", "never-listed.parquet")}


def test_a_file_of_two_runs_stays_as_long_as_a_kept_tick_lists_one_of_them(
    log: Log, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick that changes a good part of a table writes its new rows once, for its own run and for the merged one."""
    monkeypatch.setattr(state_store, "RELEASED_SECONDS_MAX", 0)
    manifests = opened()
    epoch = manifests.take_over()
    folder = log.home / "views" / "shop"
    store = StateStore(folder, log.files, cast(Any, None))
    place = folder / folder_name("orders", "first")
    place.mkdir(parents=True)
    for name in ("old", "new", "stayed"):
        (place / f"{name}.parquet").touch()

    def commit(tick: int, *runs: tuple[str, tuple[str, ...]]) -> None:
        listed = [
            Run(name, tuple(RunFile(f"{file}.parquet", 1, 1) for file in files), 1, 1, tick).to_json()
            for name, files in runs
        ]
        entry = {"identity": "first", "schema": "id BIGINT", "key": ["id"], "runs": listed}
        relations = cast(Any, {"orders": entry})
        manifests.commit(Manifest(tick=tick, epoch=epoch, relations=relations), first_kept=max(1, tick - 1))
        store.prune(manifests.listed(), {}, manifests.take_released())

    commit(1, ("tick", ("old", "new")))
    commit(2, ("merged", ("stayed", "new")))
    commit(3, ("merged", ("stayed", "new")))
    commit(4, ("merged", ("stayed", "new")))
    left = {path.name for path in place.glob("*.parquet")}
    commit(5)
    commit(6)
    commit(7)
    store.close()

    assert left == {"new.parquet", "stayed.parquet"}
    assert not any(place.glob("*.parquet"))
