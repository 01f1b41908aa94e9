"""Ticks that are repeated, taken over, or fail.

What it is: an app that is started again, a second process that takes it over, a row that makes a view impossible to
compute.
Invariants: the manifest is the truth: nothing is done twice, nothing of a process that was shut out shows, a failed
tick changes nothing.
Not here: crashes (``tests/crash/test_views_survive_kill.py``).
Read next: ``views/tick/driver.py``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater.errors import DiskFull, Fenced, ViewFailed
from headwater.views.serving.serving_store import ServingStore
from headwater.views.tick.reports import TickReport
from tests.spark.batch_failures import failure_of

pytestmark = pytest.mark.usefixtures("spark")
COUNTS = "SELECT country, count(*) AS users FROM users GROUP BY country"


def declare(home: Path) -> hw.App:
    app = hw.App("shop", home=home)
    app.table("users", "id BIGINT, country STRING", key="id")
    app.view("countries", COUNTS)
    return app


def move(app: hw.App, **countries: str) -> hw.Token:
    """Upsert users: their names are u1, u2, …"""
    return app.get_table("users").upsert([{"id": int(name[1:]), "country": there} for name, there in countries.items()])


def counts(app: hw.App, **options: Any) -> dict[str, int]:
    rows = app.sql("SELECT * FROM countries", timeout=240, **options).to_pylist()
    return {row["country"]: row["users"] for row in rows}


def test_an_app_that_is_started_again_goes_on_from_the_manifest(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        app.start()
        counts(app, at_least=move(app, u1="DE", u2="FR"))
        app.stop()
        last = app._runtime.manifests.tick()

    with declare(tmp_path) as app:
        move(app, u2="DE")
        app.start()
        token = move(app, u3="IT")
        assert counts(app, at_least=token) == {"DE": 2, "IT": 1}
        app.stop()

        assert app._runtime.manifests.tick() == last + 2
        assert app._runtime.manifests.current().token == token
        assert all(difference.equal for difference in app.verify())


def test_a_second_process_takes_over_and_the_first_is_shut_out(tmp_path: Path) -> None:
    with declare(tmp_path) as first, declare(tmp_path) as second:
        move(first, u1="DE")
        first.tick()
        move(second, u2="FR")
        second.tick()
        move(second, u3="IT")
        files = state_files(tmp_path)
        before = second._runtime.manifests.current()

        with pytest.raises(Fenced) as caught:
            first.tick()

        assert caught.value.data["app"] == "shop"
        assert second._runtime.manifests.current() == before
        assert state_files(tmp_path) == files
        second.tick()
        assert counts(second) == {"DE": 1, "FR": 1, "IT": 1}
        assert second.get_view("countries").get("IT") == [{"country": "IT", "users": 1}]


def test_every_tick_of_a_run_is_reported_once_and_in_order(tmp_path: Path) -> None:
    seen = []
    with declare(tmp_path) as app:
        app.start(on_tick=lambda report: seen.append(report.tick))
        for country in ("DE", "FR", "IT"):
            assert counts(app, at_least=move(app, u1=country)) == {country: 1}
        app.stop()

        assert seen == list(range(1, app._runtime.manifests.tick() + 1))


def test_an_error_in_the_background_ends_the_run(tmp_path: Path) -> None:
    def fail(report: TickReport) -> None:
        if report.tick > 1:
            raise ZeroDivisionError("who was told")

    with declare(tmp_path) as app:
        app.start(on_tick=fail)
        move(app, u1="DE")
        runner = app._runtime._runner
        assert runner is not None
        with pytest.raises(ZeroDivisionError, match="who was told"):
            runner.wait()
        with pytest.raises(ZeroDivisionError, match="who was told"):
            app.sql("SELECT * FROM countries", at_least=move(app, u1="FR"), timeout=240)


def state_files(home: Path) -> set[str]:
    return {str(path) for path in (home / "views").rglob("*.parquet")}


def test_an_app_that_runs_in_the_background_ends_when_it_is_shut_out(tmp_path: Path) -> None:
    with declare(tmp_path) as first, declare(tmp_path) as second:
        first.start()
        token = move(first, u1="DE")
        assert counts(first, at_least=token) == {"DE": 1}
        runner = first._runtime._runner
        assert runner is not None

        second.tick()
        move(second, u1="FR")

        with pytest.raises(Fenced):
            runner.wait()
        second.tick()
        assert counts(second) == {"FR": 1}


def test_a_tick_that_fails_changes_nothing_and_ticks_go_on_when_the_row_is_corrected(
    spark: SparkSession, tmp_path: Path
) -> None:
    good, bad = {"id": 1, "part": 6, "whole": 3}, {"id": 2, "part": 6, "whole": 0}
    schema, shares = "id BIGINT, part BIGINT, whole BIGINT", "SELECT id, part div whole AS share FROM rows"
    assert failure_of(spark, {"rows": (schema, [good, bad])}, {"shares": shares}, "shares") == "DIVIDE_BY_ZERO"
    with hw.App("shop", home=tmp_path) as app:
        rows = app.table("rows", schema, key="id")
        app.view("shares", shares)
        line = f"{os.path.relpath(__file__)}:{declared_line('shares')}"
        app.view("many", "SELECT count(*) AS many FROM rows")
        rows.upsert([good])
        app.tick()
        before = app._runtime.manifests.current()
        rows.upsert([bad])

        for _ in range(2):
            with pytest.raises(ViewFailed) as caught:
                app.tick()

        error = caught.value
        assert error.message == f'view "shares" ({line}) cannot be computed'
        assert error.data["condition"] == "DIVIDE_BY_ZERO"
        assert "try_divide" in (error.hint or "")
        assert app._runtime.manifests.current() == before
        assert app.sql("SELECT * FROM many").to_pylist() == [{"many": 1}]
        assert app._runtime.serving.tick == before.tick

        rows.upsert([{"id": 2, "part": 6, "whole": 2}])
        app.tick()
        assert app.sql("SELECT * FROM shares ORDER BY id").to_pylist() == [{"id": 1, "share": 2}, {"id": 2, "share": 3}]
        assert app.sql("SELECT * FROM many").to_pylist() == [{"many": 2}]
        assert app._runtime.serving.tick == before.tick + 1


def declared_line(view: str) -> int:
    text = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(text, 1) if f'app.view("{view}"' in line)


def test_a_serving_store_that_refused_a_tick_has_it_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> bool:
        raise DiskFull("no space left on the disk")

    with declare(tmp_path) as app:
        move(app, u1="DE")
        with monkeypatch.context() as full:
            full.setattr(ServingStore, "apply", refuse)
            with pytest.raises(DiskFull):
                app.tick()
        move(app, u2="DE")
        app.tick()

        assert app.get_view("countries").get("DE") == [{"country": "DE", "users": 2}]
        assert app._runtime.serving.tick == app._runtime.manifests.tick() == 2


def test_stopping_from_within_a_tick_ends_the_run(tmp_path: Path) -> None:
    with declare(tmp_path) as app:
        seen = []

        def stop(report: Any) -> None:
            seen.append(report.tick)
            if len(seen) == 2:
                app.stop()
            else:
                move(app, u2="FR")

        move(app, u1="DE")
        app.run(on_tick=stop)

        assert seen == [1, 2]
        assert counts(app) == {"DE": 1, "FR": 1}
