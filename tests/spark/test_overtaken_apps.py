"""An app that retention overtakes: it is warned before, it says why it stops, and it can go on.

What it is: an app as a reader of its topics: positions, the alerts before and after a loss, the error of the next tick,
and ``accept_loss``, by Python, by ``headwater run --accept-loss`` and by ``headwater serve --accept-loss``.
Invariants: rows are skipped only when that was asked for; then the manifest of the tick and an alert say which.
Not here: readers in general (``tests/unit/log/maintenance/test_until_read.py``).
Read next: ``views/tick/overtaken.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headwater as hw
from headwater.cli.main import app as command_line
from headwater.errors import OffsetOutOfRange
from headwater.log.maintenance.alerts import Alert
from headwater.testing import ManualClock
from headwater.views.state.manifest import Manifests
from tests.short_lived import SHORT_LIVED
from tests.unit.command_line import CommandLine
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("spark")

APP = """
import headwater as hw

app = hw.App("shop", home={home!r})
clicks = app.topic("clicks", "page STRING", retention="100 seconds")
app.view("pages", "SELECT page, count(*) AS clicks FROM clicks GROUP BY page")
"""


def shop(home: Path, clock: ManualClock, told: list[Alert] | None = None) -> hw.App:
    app = hw.App("shop", home=home)
    app._log = hw.Log(home, clock=clock, on_alert=None if told is None else told.append, maintenance_interval=None)
    app.topic("clicks", "page STRING", retention="100 seconds")
    app.view("pages", "SELECT page, count(*) AS clicks FROM clicks GROUP BY page")
    return app


def clicked(app: hw.App, page: str, times: int) -> None:
    app.log.get_topic("clicks").append([{"page": page}] * times)


def overtaken_shop(home: Path, clock: ManualClock, told: list[Alert] | None = None) -> hw.App:
    """Two rows that a tick has taken, three that retention took first, four that are there."""
    app = shop(home, clock, told)
    clicked(app, "home", 2)
    app.tick()
    clicked(app, "lost", 3)
    clock.advance(101)
    app.log.maintain()
    clicked(app, "kept", 4)
    return app


def test_an_app_is_listed_with_its_lag(tmp_path: Path) -> None:
    with shop(tmp_path, ManualClock()) as app:
        clicked(app, "home", 2)
        app.tick()
        clicked(app, "home", 3)

        found = CommandLine(tmp_path).json("lag")["readers"]

    assert [(each["reader"], each["kind"], each["lag"]) for each in found] == [("shop", "app", 3)]
    assert found[0]["positions"] == {"0": 2}


def test_it_is_warned_before_it_loses_rows_and_told_the_end(tmp_path: Path) -> None:
    clock, told = ManualClock(), list[Alert]()
    with shop(tmp_path, clock, told) as app:
        clicked(app, "home", 2)
        app.tick()
        clicked(app, "home", 3)
        clock.advance(80)
        app.log.maintain()

        app.tick()
        app.log.maintain()

    assert [(alert.kind, alert.state, alert.detail["app"]) for alert in told] == [
        ("lag_at_risk", "begin", "shop"),
        ("lag_at_risk", "end", "shop"),
    ]
    assert 'app "shop" is 3 rows behind in topic "clicks"' in told[0].message


def test_the_error_tells_the_true_reason_and_the_way_on(tmp_path: Path) -> None:
    with overtaken_shop(tmp_path, ManualClock()) as app:
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange) as refused:
                app.tick()

    error = refused.value
    assert error.message == (
        'retention of topic "clicks" has overtaken app "shop": 3 rows were dropped before a tick took them'
    )
    assert "up to offset 2; retention moved its start to 5" in str(error.detail)
    assert "--accept-loss" in str(error.hint)
    assert "group" not in str(error.hint)


def test_with_accept_loss_it_goes_on_and_says_without_which_rows(tmp_path: Path) -> None:
    clock, told = ManualClock(), list[Alert]()
    with overtaken_shop(tmp_path, clock, told) as app:
        app.tick(accept_loss=True)
        clicked(app, "kept", 1)
        app.tick()
        app.log.maintain()
        rows = {row["page"]: row["clicks"] for row in app.get_view("pages").rows()}
        manifests = Manifests(app.log.catalog, "shop")
        kept = {tick: manifests.at(tick).lost for tick, _ in manifests.kept()}

    assert rows == {"home": 2, "kept": 5}
    assert kept == {1: {}, 2: {"clicks": {"0": [2, 5]}}, 3: {}}
    assert [(alert.kind, alert.state) for alert in told if alert.kind != "lag_at_risk"] == [
        ("lag_lost", "begin"),
        ("loss_accepted", "once"),
        ("lag_lost", "end"),
    ]
    accepted = next(alert for alert in told if alert.kind == "loss_accepted")
    assert accepted.detail == {"app": "shop", "tick": 2, "position": 2, "start": 5, "rows_lost": 3}


def test_a_loss_is_recorded_also_when_no_row_is_left(tmp_path: Path) -> None:
    clock = ManualClock()
    with shop(tmp_path, clock) as app:
        clicked(app, "home", 2)
        app.tick()
        clicked(app, "lost", 3)
        clock.advance(101)
        app.log.maintain()

        report = app.tick(accept_loss=True)

        assert (report.tick, report.rows_in) == (2, 0)
        assert Manifests(app.log.catalog, "shop").current().lost == {"clicks": {"0": [2, 5]}}
        assert app.tick().tick == 2


def test_the_command_goes_on_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    overtaken_shop(home, ManualClock()).close()
    file = tmp_path / "shop.py"
    file.write_text(APP.format(home=str(home)))

    refused = command_line(["run", str(file), "--once", "--json"], standalone_mode=False)
    told = capsys.readouterr()
    accepted = command_line(["run", str(file), "--once", "--json", "--accept-loss"], standalone_mode=False)

    assert refused == OffsetOutOfRange.exit_status
    assert "--accept-loss" in told.err
    assert accepted == 0
    assert '"tick": 2, "rows_in": 4' in capsys.readouterr().out


def test_a_server_goes_on_too(tmp_path: Path) -> None:
    home = tmp_path / "home"
    overtaken_shop(home, ManualClock()).close()
    file = tmp_path / "shop.py"
    file.write_text(APP.format(home=str(home)))
    command = [sys.executable, "-m", "headwater.cli.main", "serve", str(file), "--json", "--port", "0", "--accept-loss"]
    environment = {**os.environ, **SHORT_LIVED, "PYSPARK_PYTHON": sys.executable}

    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            with hw.Log(home, maintenance_interval=None) as log:
                manifests = Manifests(log.catalog, "shop")
                eventually(lambda: manifests.current().tick == 2, seconds=120)
                lost = manifests.current().lost
        finally:
            server.terminate()

    assert lost == {"clicks": {"0": [2, 5]}}
