"""``headwater run`` whose Java hangs: it says so, raises an alert, and ends the alert when ticks come again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from headwater.log.home import Log
from headwater.log.maintenance.alerts import lasting
from tests.short_lived import SHORT_LIVED
from tests.spark.test_interrupts import APP, SOURCE
from tests.waiting import eventually

PATIENCE_S = 120.0


def spark_of(pid: int) -> psutil.Process | None:
    """The Java that Spark runs in, not the one before it that finds out how to start it."""
    for each in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            if "org.apache.spark.deploy.SparkSubmit" in each.cmdline() and each.name() == "java":
                return each
    return None


@pytest.mark.timeout(300)
def test_a_run_that_hangs_says_so_and_the_alert_ends_with_the_next_tick(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(APP.format(home=str(tmp_path / "home")))
    with Log(tmp_path / "home", maintenance_interval=None) as log:
        log.topic("orders", "id BIGINT").append([{"id": 1}])
        process = subprocess.Popen(
            [sys.executable, "-m", "headwater.cli.main", "run", str(file), "--stalled-after", "1s"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **SHORT_LIVED, "PYTHONPATH": str(SOURCE), "PYSPARK_PYTHON": sys.executable},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert process.stdout is not None
        try:
            java = eventually(lambda: spark_of(process.pid))
            java.suspend()

            alert = eventually(lambda: lasting(log))[0]
            assert alert.kind == "engine"
            assert alert.message.startswith('app "shop": 1 row waits, and no tick has come for ')

            java.resume()
            assert process.stdout.readline().startswith("tick 1: 1 rows")
            eventually(lambda: not lasting(log))
            os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=PATIENCE_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert 'app "shop": 1 row waits, and no tick has come for ' in said
    assert "Traceback" not in said
