"""Views over captured tables: a tick shows whole transactions only, also when it takes little at a time.

What it is: an app with a join over two captured tables, ticked by hand and in the background.
Invariants: the views' total is zero after every tick; a tick takes at least one batch, and ends at a marker.
Not here: the markers themselves (``test_conformance.py``).
Read next: ``views/tick/engine.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from tests.services.captures.contents import every_marker, markers_of
from tests.short_lived import SHORT_LIVED

pytestmark = pytest.mark.parametrize("server", ["postgres"], indirect=True)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[hw.App]:
    os.environ.update(SHORT_LIVED)
    with hw.App("shop", home=tmp_path / "home", spark={"spark.master": "local[2]"}) as made:
        yield made


def declare(app: hw.App, database: Any) -> None:
    for name in ("credits", "debits"):
        app.table(name, source=database.source(name))
    app.view(
        "total",
        "SELECT sum(amount) AS total, count(*) AS transfers FROM ("
        "SELECT amount FROM credits UNION ALL SELECT amount FROM debits)",
    )


def make(database: Any) -> None:
    for name in ("credits", "debits"):
        database.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, amount INT)")


def transfer(database: Any, number: int) -> None:
    database.execute(
        "BEGIN",
        f"INSERT INTO credits VALUES ({number}, {number})",
        f"INSERT INTO debits VALUES ({number}, -{number})",
        "COMMIT",
    )


def total(app: hw.App) -> tuple[Any, Any]:
    (row,) = app.sql("SELECT * FROM total").to_pylist()
    return row["total"], row["transfers"]


def test_a_tick_ends_at_a_marker(database: Any, app: hw.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.log.commits.cut_numbers.CUT_ROWS_MAX", 1)  # so that a limit can be small
    make(database)
    declare(app, database)
    for number in range(1, 4):
        transfer(database, number)
        app.capture(until="caught up", timeout=60)

    ends = [dict(marker.ends) for marker in every_marker(markers_of(app.get_table("credits").topic))]
    seen = []
    for _ in range(20):
        report = app.tick(rows_max=1)
        if not report.moved:
            break
        seen.append({name: report.frontier[name][0] for name in ("credits", "debits")})
        assert total(app)[0] in (0, None)

    assert len(seen) >= 2
    assert all(each in ends for each in seen)
    assert total(app) == (0, 6)


def test_rows_behind_the_last_marker_wait(database: Any, app: hw.App) -> None:
    make(database)
    declare(app, database)
    transfer(database, 1)
    app.capture(until="caught up", timeout=60)
    app.tick()
    credits = app.get_table("credits").topic
    credits.append([{"id": 77, "amount": 77}])  # as a capture that dies before its marker

    report = app.tick()

    assert not report.moved
    assert report.behind == 0
    assert app.sql("SELECT * FROM credits WHERE id = 77").num_rows == 0


def test_run_streams_and_ticks_in_one_process(database: Any, app: hw.App) -> None:
    make(database)
    declare(app, database)
    transfer(database, 1)
    seen = []
    app.start(on_tick=lambda report: seen.append(report.tick))
    try:
        for number in range(2, 5):
            transfer(database, number)
        credits = app.get_table("credits").topic
        assert credits.wait({0: 3}, timeout=60)
        token = hw.Token({"credits": {0: 4}, "debits": {0: 4}})
        app.sql("SELECT * FROM total", at_least=token, timeout=60)
    finally:
        app.stop()

    assert total(app) == (0, 8)
    assert seen
