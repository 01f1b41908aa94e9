"""Views of which Spark can make nothing, in an app that ran before: they are paused, and the others run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli.main import app as command_line
from headwater.errors import InvalidDeclaration, ViewFailed, ViewPaused
from headwater.log.maintenance.alerts import lasting

pytestmark = pytest.mark.usefixtures("spark")
GOOD = "SELECT id, amount + 1 AS more FROM orders"
MISMATCH = "SELECT id, amount + array(1) AS more FROM orders"  # only Spark knows that this cannot be
UNHELD = "SELECT id, make_ym_interval(amount, 0) AS more FROM orders"


def declare(home: Path, odd: str = GOOD, *, on_error: str = "pause", **more: str) -> hw.App:
    app = hw.App("shop", home=home, on_error=on_error)
    app.topic("orders", "id BIGINT, amount INT")
    app.view("odd", odd)
    app.view("most", "SELECT max(more) AS most FROM odd", on_error="stop")  # it waits all the same
    app.view("counts", "SELECT count(*) AS n FROM orders")
    for name, sql in more.items():
        app.view(name, sql)
    return app


def rows(app: hw.App, view: str) -> list[tuple[object, ...]]:
    found = sorted(tuple(row.values()) for row in app.sql(f"SELECT * FROM {view}").to_pylist())
    served = app._runtime.serving.query(f"SELECT * FROM {view}").to_pylist()
    assert sorted(tuple(row.values()) for row in served) == found
    return found


@pytest.mark.parametrize(("sql", "reason"), [(MISMATCH, "DATATYPE_MISMATCH"), (UNHELD, "which a view cannot hold")])
def test_a_view_that_ran_before_keeps_its_rows_and_the_others_run(tmp_path: Path, sql: str, reason: str) -> None:
    home = tmp_path / "home"
    with declare(home) as app:
        app.get_topic("orders").append([{"id": 1, "amount": 10}])
        app.tick()
    for number in (2, 3):  # a restart changes nothing
        with declare(home, sql) as app:
            token = app.get_topic("orders").append([{"id": number, "amount": 10 * number}])
            app.tick()

            assert rows(app, "counts") == [(number,)]
            assert (rows(app, "odd"), rows(app, "most")) == ([(1, 11)], [(11,)])
            paused = {view.name: view.paused for view in app.views if view.paused is not None}
            assert {name: (each["tick"], each["because"]) for name, each in paused.items() if each} == {
                "odd": (1, ["odd"]),
                "most": (1, ["odd"]),
            }
            assert [alert.kind for alert in lasting(app.log)] == ["view_paused"]
            assert reason in lasting(app.log)[0].message
            with pytest.raises(ViewPaused, match='view "most" is paused since'):
                app.sql("SELECT * FROM most", at_least=token)
            for asked in ("odd", "most"):
                with pytest.raises(ViewPaused) as caught:
                    app.get_view(asked).resume()
                assert reason in str(caught.value)
            assert [found.view for found in app.verify()] == ["counts"]

    with declare(home, GOOD.replace("+ 1", "+ 2")) as app:
        app.tick()

        assert {view.name: view.paused for view in app.views} == dict.fromkeys(("odd", "most", "counts"))
        assert (rows(app, "odd"), rows(app, "most")) == ([(1, 12), (2, 22), (3, 32)], [(32,)])
        assert lasting(app.log) == []
        assert all(found.equal for found in app.verify())


def test_it_is_told_without_a_new_row_and_the_query_of_before_brings_it_back(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "shop.py"
    with declare(home) as app:
        app.get_topic("orders").append([{"id": 1, "amount": 10}])
        app.tick()
    with declare(home, MISMATCH, new="SELECT * FROM odd") as app:  # a new one that reads it waits too
        app.tick()
        assert [view.name for view in app.views if view.paused is not None] == ["odd", "most", "new"]
        tick = app._runtime.manifests.tick()
        app.tick()
        assert app._runtime.manifests.tick() == tick  # told once
    file.write_text(
        f"import headwater as hw\napp = hw.App('shop', home={str(home)!r}, on_error='pause')\n"
        f"app.topic('orders', 'id BIGINT, amount INT')\napp.view('odd', {MISMATCH!r})\n"
    )
    planned = CliRunner().invoke(command_line, ["plan", str(file), "--json"])
    assert planned.exit_code == 0, planned.output
    assert json.loads(planned.stdout)["views"][0]["paused"]["because"] == ["odd"]
    with declare(home) as app:
        app.get_topic("orders").append([{"id": 2, "amount": 20}])
        app.tick()

        assert (rows(app, "odd"), rows(app, "most")) == ([(1, 11), (2, 21)], [(21,)])
        assert all(view.paused is None for view in app.views)


@pytest.mark.parametrize(("sql", "reason"), [(MISMATCH, "DATATYPE_MISMATCH"), (UNHELD, "which a view cannot hold")])
def test_a_new_view_that_spark_refuses_pauses_alone(tmp_path: Path, sql: str, reason: str) -> None:
    with declare(tmp_path) as app:
        app.get_topic("orders").append([{"id": 1, "amount": 10}])
        app.tick()
    for number in (2, 3):
        with declare(tmp_path, new=sql) as app:
            token = app.get_topic("orders").append([{"id": number, "amount": 10 * number}])
            app.tick()

            assert (rows(app, "counts"), rows(app, "most")) == ([(number,)], [(10 * number + 1,)])
            assert [view.name for view in app.views if view.paused is not None] == ["new"]
            assert reason in lasting(app.log)[0].message
            with pytest.raises(ViewPaused, match='view "new" is paused'):
                app.sql("SELECT * FROM new", at_least=token)
    with declare(tmp_path, new=GOOD) as app:
        app.tick()

        assert rows(app, "new") == [(1, 11), (2, 21), (3, 31)]
        assert lasting(app.log) == []


def test_the_first_start_and_a_view_that_may_not_pause_are_refused_as_a_whole(tmp_path: Path) -> None:
    with (
        declare(tmp_path, new=UNHELD) as app,
        pytest.raises(InvalidDeclaration, match=r'view "new" \(.*\): column "more" .* cannot hold'),
    ):
        app.tick()
    with declare(tmp_path) as app:
        app.tick()
    with declare(tmp_path, MISMATCH, on_error="stop") as app, pytest.raises(ViewFailed, match='view "odd"'):
        app.tick()
