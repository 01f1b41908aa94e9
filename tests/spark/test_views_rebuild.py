"""Views that are computed anew beside the live ones.

What it is: rebuilds of sound, wrong and damaged views, while ticks go on; queries that were changed; what goes wrong.
Invariants: the live views answer and move until the swap; after it every view is what its query gives, and the serving
store and the change feed agree; what fails leaves everything as it was, and nothing behind.
Not here: crashes (``tests/crash/test_views_rebuild_killed.py``).
Read next: ``views/lifecycle/rebuild.py``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import headwater as hw
from headwater.cli.main import app as command_line
from headwater.errors import Conflict, Corruption, Fenced, OffsetOutOfRange, UnknownView, ViewFailed
from headwater.views import thresholds
from headwater.views.lifecycle import migration
from headwater.views.lifecycle.rebuild import Rebuild
from headwater.views.lifecycle.rebuild_progress import RebuildProgress
from headwater.views.stages.stage_run import StageRun
from headwater.views.state import state_store
from headwater.views.state.delta import Delta
from headwater.views.state.manifest_entries import folder_name
from headwater.views.state.state_store import BUILD
from headwater.views.tick import engine
from tests.spark.batch_failures import failure_of

pytestmark = pytest.mark.usefixtures("spark")
DDL = {"orders": "id BIGINT, user_id BIGINT, amount BIGINT", "users": "id BIGINT, country STRING"}
REVENUE = (
    "SELECT u.country, sum(o.amount) AS revenue, count(*) AS orders "
    "FROM orders o JOIN users u ON o.user_id = u.id GROUP BY u.country"
)
TOTAL = "SELECT sum(revenue) AS revenue, count(*) AS countries FROM revenue"
SEEN = "SELECT v.user_id, max(v.pages) AS pages, min(u.country) AS country FROM visits v LEFT JOIN users u ON v.user_id = u.id GROUP BY v.user_id"  # noqa: E501


def declare(home: Path, revenue: str = REVENUE, *, seen: str | None = None) -> hw.App:
    """A view over tables, one over that, and, when it is given, one over a topic without a key."""
    app = hw.App("shop", home=home)
    for table, schema in DDL.items():
        app.table(table, schema, key="id")
    app.topic("visits", "user_id BIGINT, pages INT")
    app.view("revenue", revenue)
    app.view("total", TOTAL)
    if seen is not None:
        app.view("seen", seen)
    return app


def shop(home: Path, *, seen: str | None = None) -> hw.App:
    """A shop after two ticks."""
    app = declare(home, seen=seen)
    app.get_table("users").upsert([{"id": n, "country": "DE" if n % 2 else "FR"} for n in range(6)])
    app.get_table("orders").upsert([{"id": n, "user_id": n % 7, "amount": n} for n in range(60)])
    app.get_topic("visits").append([{"user_id": n % 8, "pages": n} for n in range(20)])
    app.tick()
    tick(app, 1)
    return app


def change(app: hw.App, step: int) -> hw.Token:
    """A little of everything: new rows, corrections, a delete."""
    app.get_table("orders").upsert(
        [{"id": 100 + step, "user_id": step % 6, "amount": 1000}, {"id": step, "user_id": 1, "amount": 5}]
    )
    app.get_table("orders").delete([{"id": 30 + step}])
    app.get_topic("visits").append([{"user_id": step % 8, "pages": 90 + step}])
    return app.get_table("users").upsert([{"id": step % 6, "country": f"C{step % 3}"}])


def tick(app: hw.App, step: int) -> int:
    change(app, step)
    return app.tick().tick


def ticks(app: hw.App, steps: Iterable[int]) -> None:
    for step in steps:
        tick(app, step)


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def served(app: hw.App, view: str) -> list[tuple[Any, ...]]:
    return rows(app._runtime.serving.query(f'SELECT * FROM "{view}"'))


def fed(app: hw.App, view: str, from_tick: int | None = None) -> list[tuple[Any, ...]]:
    """What a reader of the feed has made of it."""
    held: list[tuple[Any, ...]] = []
    for table in app.get_view(view).changes(from_tick):
        for row in table.to_pylist():
            values = tuple(value for name, value in row.items() if not name.startswith("_"))
            came = row["_change_type"] in ("insert", "update_postimage")
            held.append(values) if came else held.remove(values)
    return sorted(held, key=repr)


def assert_sound(app: hw.App) -> None:
    """Every view is what its query gives; the serving store and the feed say the same; nothing half-built is left."""
    assert all(found.equal for found in app.verify())
    for view in app.views:
        assert served(app, view.name) == fed(app, view.name)
    assert builds(app) <= listed(app)


def builds(app: hw.App) -> set[str]:
    return {place.name for place in app._runtime.folder.iterdir() if BUILD.fullmatch(place.name)}


def listed(app: hw.App) -> set[str]:
    manifests = app._runtime.manifests
    kept = [manifest for tick, _ in manifests.kept() if (manifest := manifests.at(tick)) is not None]
    return {folder_name(name, entry["identity"]) for each in kept for name, entry in each.relations.items()}


@contextmanager
def after_filling(work: Callable[[], Any]) -> Iterator[None]:
    """Do something when a rebuild has filled its views and not yet looked for what came meanwhile."""
    fill = Rebuild._fill

    def fill_and_work(self: Rebuild) -> None:
        fill(self)
        work()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Rebuild, "_fill", fill_and_work)
        yield


# The same query


def test_a_rebuild_of_a_sound_view_shows_nowhere_and_the_old_state_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "SMALL_RUN_BYTES_MAX", 0)  # every run is a file
    with shop(tmp_path, seen=SEEN) as app:
        before = {view.name: served(app, view.name) for view in app.views}
        old = listed(app)
        for place, view in enumerate(["revenue", "seen"]):
            told: list[RebuildProgress] = []

            report = app.rebuild(view, on_progress=told.append)

            assert (report.views, report.tick, report.changes, report.restarted) == ((view,), 3 + place, {view: 0}, ())
            assert [now.part for now in told] == sorted(now.part for now in told)
        assert {view.name: served(app, view.name) for view in app.views} == before
        assert all(list(view.changes(from_tick=3)) == [] for view in app.views)
        assert builds(app) == listed(app) - old
        tick(app, 2)
        assert_sound(app)

        monkeypatch.setattr(engine, "TICKS_KEPT", 1)
        monkeypatch.setattr(engine, "PRUNE_TICKS", 1)
        monkeypatch.setattr(state_store, "UNLISTED_SECONDS_MAX", -60)
        returned: list[int] = []
        monkeypatch.setattr(engine, "return_freed", lambda: returned.append(app._runtime.engine.manifest.tick))
        ticks(app, [3, 4])
        assert len(set(returned)) == 2  # free memory goes back after each of them
        now = {place.name for place in app._runtime.folder.glob("*-*") if any(place.glob("*.parquet"))}
        assert now == listed(app)


def test_ticks_go_on_meanwhile_and_are_caught_up_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_driver, by_spark = thresholds.SETTLED_ROWS_MAX, 0
    with shop(tmp_path, seen=SEEN) as app:
        for number, (view, rows_max) in enumerate(
            [("revenue", on_the_driver), ("total", by_spark), ("seen", by_spark)]
        ):
            monkeypatch.setattr(thresholds, "SETTLED_ROWS_MAX", rows_max)
            with after_filling(partial(ticks, app, [2 * number + 2, 2 * number + 3])):
                report = app.rebuild(view)

            assert (report.changes, report.restarted, report.ticks_meanwhile) == ({view: 0}, (), 2)
        tick(app, 20)
        assert_sound(app)


@contextmanager
def wrongly(spoil: Callable[[pa.Table], pa.Table]) -> Iterator[None]:
    """What comes into view revenue is spoilt, as by a bug of the past."""
    run = StageRun.run

    def run_and_spoil(self: StageRun) -> Delta:
        changes = run(self)
        if self.stage.name != "revenue" or changes.table is None:
            return changes
        come = pc.greater(changes.table["_weight"], 0)
        left = changes.table.filter(pc.invert(come))
        return Delta.local(pa.concat_tables([left, spoil(changes.table.filter(come))]))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(StageRun, "run", run_and_spoil)
        yield


def test_a_wrong_view_is_put_right_and_its_readers_and_the_feed_get_the_difference(tmp_path: Path) -> None:
    with shop(tmp_path) as app:
        with wrongly(lambda come: come.set_column(1, come.schema.field(1), pc.add(come.column(1), 1))):
            last = tick(app, 2)
        assert {each.view: each.equal for each in app.verify()} == {"revenue": False, "total": False}

        report = app.rebuild("revenue")

        assert (report.views, report.restarted) == (("revenue",), ())
        (differences,) = app.get_view("revenue").changes(from_tick=last + 1)
        assert set(differences["_change_type"].to_pylist()) == {"update_preimage", "update_postimage"}
        assert report.changes == {"revenue": differences.num_rows}
        tick(app, 3)
        assert_sound(app)


def test_a_view_that_the_serving_store_refuses_is_served_again(tmp_path: Path) -> None:
    with shop(tmp_path) as app:
        with wrongly(lambda come: pa.concat_tables([come, come])), pytest.raises(Corruption, match="the same key"):
            tick(app, 2)

        app.rebuild("revenue")

        assert served(app, "revenue") == rows(app.sql("SELECT * FROM revenue"))
        assert all(found.equal for found in app.verify())
        assert app._runtime.serving.tick == app._runtime.manifests.tick()


def damage(app: hw.App, relation: str) -> None:
    """Write over the beginning of a file of a relation's state."""
    entry = app._runtime.manifests.current().relations[relation]
    folder = app._runtime.folder / folder_name(relation, entry["identity"])
    with (folder / entry["runs"][0]["files"][0][0]).open("r+b") as file:
        file.write(b"nonsense")


def test_a_view_whose_files_are_damaged_begins_anew_with_its_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "SMALL_RUN_BYTES_MAX", 0)  # every run is a file
    with shop(tmp_path) as app:
        damage(app, "revenue")
        with pytest.raises(Corruption, match='view "revenue", which is read'):
            app.rebuild("total")

        report = app.rebuild("revenue")

        assert (report.views, report.restarted) == (("revenue", "total"), ("revenue", "total"))
        for view in report.views:
            with pytest.raises(OffsetOutOfRange, match="redeclared at tick 3"):
                list(app.get_view(view).changes(from_tick=3))
        tick(app, 2)
        app.rebuild("revenue")  # the same query now: the feed goes on
        assert_sound(app)
        damage(app, "users")
        with pytest.raises(Corruption, match='table "users", which is read'):
            app.rebuild("revenue")


# Another query


def test_a_changed_query_is_filled_beside_the_old_one_which_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "BESIDE_ROWS_MIN", 0)
    with shop(tmp_path) as app:
        before = served(app, "revenue")
    go_on, told = threading.Event(), list[int]()
    with declare(tmp_path, REVENUE.replace("sum(o.amount)", "-sum(o.amount)")) as app:
        app.table("shops", "id BIGINT, country STRING", key="id").upsert([{"id": 1, "country": "DE"}])
        app.view("shops_by_country", "SELECT country, count(*) AS shops FROM shops GROUP BY country")
        with after_filling(lambda: go_on.wait(240)):
            app.start(on_tick=lambda report: told.append(report.tick))
            assert app._runtime.serving.wait(change(app, 2), 240)
            old = served(app, "revenue")
            moved = app._runtime.manifests.tick()
            go_on.set()
            report = app.rebuild("revenue")
        app.stop()

        assert old != before
        assert all(revenue > 0 for _, revenue, _ in old)
        assert sorted(told) == list(range(min(told), max(told) + 1))
        assert report.tick in told
        assert set(report.restarted) == {"revenue", "total", "shops_by_country"}
        assert report.tick > moved
        assert all(revenue < 0 for _, revenue, _ in served(app, "revenue"))
        with pytest.raises(OffsetOutOfRange, match="redeclared"):
            list(app.get_view("total").changes(from_tick=moved))
        tick(app, 3)
        assert_sound(app)


def test_a_changed_query_that_cannot_be_computed_leaves_the_old_one(spark: SparkSession, tmp_path: Path) -> None:
    failing = REVENUE.replace("sum(o.amount)", "sum(o.amount div (o.id - 1))")
    with shop(tmp_path) as app:
        before = served(app, "revenue")
        tables = {name: (DDL[name], list(app.get_table(name).rows())) for name in ("orders", "users")}
    assert failure_of(spark, tables, {"revenue": failing}, "revenue") == "DIVIDE_BY_ZERO"
    with declare(tmp_path, failing) as app:
        with pytest.raises(ViewFailed):
            app.rebuild("revenue")

        assert served(app, "revenue") == before
        assert builds(app) == set()
        assert app._runtime.manifests.tick() == 2


# What goes wrong


def test_a_rebuild_that_is_stopped_or_shut_out_changes_nothing(tmp_path: Path) -> None:
    with shop(tmp_path) as app, declare(tmp_path) as other:
        before = app._runtime.manifests.current()

        def stop(_: RebuildProgress) -> None:
            stopped.set()
            raise KeyboardInterrupt

        def again() -> None:
            with pytest.raises(Conflict, match="being rebuilt already"):
                app.rebuild("total")
            assert stopped.wait(240)

        stopped = threading.Event()
        with after_filling(again), pytest.raises(KeyboardInterrupt):
            app.rebuild("revenue", on_progress=stop)
        assert app._runtime.manifests.current() == before
        assert builds(app) == set()

        with after_filling(lambda: tick(other, 2)), pytest.raises(Fenced):
            app.rebuild("revenue")
        assert builds(app) == set()
        assert_sound(other)


def test_the_command_rebuilds_and_tells_what_it_did(tmp_path: Path) -> None:
    shop(tmp_path / "home").close()
    file = tmp_path / "shop.py"
    file.write_text(
        f"from tests.spark.test_views_rebuild import declare\n\napp = declare({str(tmp_path / 'home')!r})\n"
    )

    told = CliRunner().invoke(command_line, ["view", "rebuild", str(file), "revenue"])
    machine = CliRunner().invoke(command_line, ["view", "rebuild", str(file), "total", "--json"])
    unknown = CliRunner().invoke(command_line, ["view", "rebuild", str(file), "revenu", "--json"])

    assert told.stdout.startswith("revenue: as it was, in ")
    assert "swapped in with tick 3" in told.stdout
    report = json.loads(machine.stdout)
    assert (report["views"], report["tick"], report["changes"], report["restarted"]) == (["total"], 4, {"total": 0}, [])
    assert unknown.exit_code == UnknownView.exit_status
    assert "revenue" in json.loads(unknown.stderr)["hint"]
