"""The change feed: no gap, no repeat, in Spark's words; and clear words where it cannot go on."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import OffsetOutOfRange
from headwater.log.home import Log
from headwater.views.serving.change_feed import ChangeFeed, named
from headwater.views.serving.committed_changes import CommittedChanges
from headwater.views.serving.serving_store import ServingStore
from headwater.views.state.delta import Delta
from headwater.views.state.manifest import Manifest, Manifests
from headwater.views.state.trace import Trace

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
DDL = "country STRING, total BIGINT"
SCHEMA = pa.schema([("country", pa.string()), ("total", pa.int64()), ("_weight", pa.int64())])

Row = tuple[Any, ...]


def changes(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def kinds(table: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in table.select(["country", "total", "_change_type"]).to_pylist()]


class Ticks:
    """Commits ticks of one view as the engine does: a run, then a manifest, then the serving store."""

    def __init__(self, log: Log) -> None:
        self.folder = log.home / "views" / "shop"
        self.manifests = Manifests(log.catalog, "shop")
        self.epoch = self.manifests.take_over()
        self.trace = Trace(self.folder / "revenue-first", SCHEMA, files=log.files)
        self.store = ServingStore(self.folder / "serving.sqlite")
        self.feed = ChangeFeed("revenue", CommittedChanges(self.manifests, self.folder, log.files), self.store.wait)
        self.born = 1

    def declare_anew(self) -> None:
        """The next tick fills the view from nothing."""
        self.born = self.manifests.tick() + 1
        self.trace = Trace(self.trace.folder, SCHEMA, files=self.trace.files)

    def commit(self, *rows: Row, first_kept: int = 0, declared: bool = True) -> None:
        tick = self.manifests.tick() + 1
        if rows:
            moved = Delta.local(changes(*rows))
            self.trace = self.trace.with_run(self.trace.write(moved, tick=tick, epoch=self.epoch), moved)
        about = {"columns": DDL, "key": ["country"], "created_tick": self.born, "fingerprint": "first"}
        entry = {"identity": "first", "schema": DDL, "runs": [run.to_json() for run in self.trace.runs]}
        manifest = Manifest(
            tick,
            self.epoch,
            {"orders": {0: tick}},
            committed_us=tick * 1_000_000,
            relations={"revenue": entry},
            views={"revenue": about} if declared else {},
        )
        self.manifests.commit(manifest, first_kept=first_kept)
        self.store.apply(tick, self.epoch, manifest.frontier, {})


@pytest.fixture
def ticks(log: Log):
    ticks = Ticks(log)
    yield ticks
    ticks.store.close()


def test_changes_have_sparks_names_and_the_ticks_time() -> None:
    moved = changes(("DE", 1, -1), ("FR", 2, -1), ("DE", 3, 1), ("IT", 4, 1), ("XX", 5, 1), ("XX", 5, -1))

    table = named(moved, tick=7, committed_us=1_000_000, key=["country"])

    assert kinds(table) == [
        ("DE", 1, "update_preimage"),
        ("DE", 3, "update_postimage"),
        ("FR", 2, "delete"),
        ("IT", 4, "insert"),
    ]
    assert table.schema.names == ["country", "total", "_change_type", "_commit_version", "_commit_timestamp"]
    assert set(table["_commit_version"].to_pylist()) == {7}
    assert table.schema.field("_commit_timestamp").type == pa.timestamp("us", "UTC")
    assert table["_commit_timestamp"].cast(pa.int64()).to_pylist() == [1_000_000] * 4


def test_without_a_key_equal_rows_come_and_go_one_by_one() -> None:
    table = named(changes(("DE", 1, -2), ("DE", 3, 2)), tick=1, committed_us=0)

    assert kinds(table) == [("DE", 1, "delete")] * 2 + [("DE", 3, "insert")] * 2


def test_a_null_in_the_key_is_a_key() -> None:
    table = named(changes((None, 1, -1), (None, 2, 1)), tick=1, committed_us=0, key=["country"])

    assert kinds(table) == [(None, 1, "update_preimage"), (None, 2, "update_postimage")]


def test_ticks_without_changes_are_passed_over_and_reading_resumes_at_any_tick(ticks: Ticks) -> None:
    ticks.commit(("DE", 1, 1))
    ticks.commit()
    ticks.commit(("DE", 1, -1), ("DE", 2, 1))
    ticks.commit(("FR", 1, 1), ("FR", 1, -1))

    everything = [table["_commit_version"][0].as_py() for table in ticks.feed.changes()]
    resumed = [kinds(table) for table in ticks.feed.changes(from_tick=2)]
    some = [table["_commit_version"][0].as_py() for table in ticks.feed.read(1, 2)]

    assert everything == [1, 3]
    assert resumed == [[("DE", 1, "update_preimage"), ("DE", 2, "update_postimage")]]
    assert some == [1]
    assert list(ticks.feed.changes(from_tick=5)) == []
    assert len(list(ticks.feed.changes(from_tick=0))) == 2


def test_a_tick_that_is_no_longer_kept_names_the_first_that_is(ticks: Ticks) -> None:
    for number in range(5):
        ticks.commit((str(number), number, 1), first_kept=3)

    with pytest.raises(OffsetOutOfRange, match="in tick 2 are no longer kept; the first that are: 3"):
        ticks.feed.changes(from_tick=2)

    assert [table["_commit_version"][0].as_py() for table in ticks.feed.changes()] == [3, 4, 5]


def test_a_tick_to_come_is_told(ticks: Ticks) -> None:
    ticks.commit(("DE", 1, 1))

    with pytest.raises(OffsetOutOfRange, match="tick 3 is after the last one, 1"):
        ticks.feed.changes(from_tick=3)


def test_a_follower_is_woken_tick_by_tick(ticks: Ticks) -> None:
    ticks.commit(("DE", 0, 1))
    seen: list[int] = []
    taken = threading.Semaphore(0)

    def follow() -> None:
        for table in ticks.feed.changes(follow=True, timeout=60):
            seen.append(table["_commit_version"][0].as_py())
            taken.release()
            if len(seen) == 3:
                return

    follower = threading.Thread(target=follow)
    follower.start()
    for number in (1, 2):
        assert taken.acquire(timeout=60)
        ticks.commit((f"{number}", 0, 1))
        ticks.commit()
    follower.join(timeout=60)

    assert seen == [1, 2, 4]
    assert list(ticks.feed.changes(from_tick=6, follow=True, timeout=0)) == []


def test_a_view_that_is_declared_later_begins_with_all_its_rows(ticks: Ticks) -> None:
    ticks.commit(declared=False)
    ticks.declare_anew()
    ticks.commit(("DE", 1, 1), ("FR", 2, 1))

    assert [kinds(table) for table in ticks.feed.changes()] == [[("DE", 1, "insert"), ("FR", 2, "insert")]]


def test_a_view_that_is_redeclared_is_not_mixed_with_what_it_was(ticks: Ticks) -> None:
    ticks.commit(("DE", 1, 1))
    ticks.commit(("FR", 1, 1))
    ticks.born = 3
    ticks.commit(("DE", 10, 1))
    feed = ticks.feed.changes(from_tick=2)
    first = kinds(next(feed))

    with pytest.raises(OffsetOutOfRange, match="was redeclared at tick 3"):
        next(feed)
    with pytest.raises(OffsetOutOfRange, match="begin again without from_tick"):
        list(ticks.feed.changes(from_tick=1))

    assert first == [("FR", 1, "insert")]


def test_a_resume_just_where_a_view_was_redeclared_is_refused_and_a_new_reader_is_not(ticks: Ticks) -> None:
    ticks.commit(("DE", 1, 1))
    ticks.declare_anew()
    ticks.commit(("DE", 10, 1))

    with pytest.raises(OffsetOutOfRange, match="redeclared"):
        list(ticks.feed.changes(from_tick=2))
    fresh = [kinds(table) for table in ticks.feed.changes()]

    assert fresh == [[("DE", 10, "insert")]]


STATES = st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=4), max_size=6)


@settings(max_examples=15 * THOROUGH, deadline=None)
@given(states=STATES, data=st.data())
def test_whoever_applies_the_feed_has_the_view(
    tmp_path_factory: pytest.TempPathFactory, states: list[dict[str, int]], data: st.DataObject
) -> None:
    copy: dict[str, int] = {}
    with Log(tmp_path_factory.mktemp("home"), maintenance_interval=None) as log:
        ticks = Ticks(log)
        before: Counter[Row] = Counter()
        next_tick = 1
        for state in states:
            moved = Counter(state.items())
            moved.subtract(before)
            before = Counter(state.items())
            ticks.commit(*((*row, many) for row, many in moved.items() if many))
            if data.draw(st.booleans()):
                for table in ticks.feed.changes(from_tick=next_tick):
                    for country, total, kind in kinds(table):
                        if kind in ("delete", "update_preimage"):
                            assert copy.pop(country) == total
                        else:
                            assert country not in copy
                            copy[country] = total
                next_tick = ticks.feed.last_tick + 1
                assert copy == state
        ticks.store.close()


def test_the_folder_of_a_feed_is_the_states_own(ticks: Ticks) -> None:
    ticks.commit(("DE", 1, 1))

    written = sorted(path.name for path in Path(ticks.folder).rglob("*.parquet"))

    assert len(written) == 1
