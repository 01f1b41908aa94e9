"""Ctrl-C: what a person sees who ends ``headwater run``, and what is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.views.state.manifest import Manifests
from tests.short_lived import SHORT_LIVED

SOURCE = Path(__file__).parents[2] / "src"
APP = """
import headwater as hw
app = hw.App("shop", home={home!r})
app.topic("orders", "id BIGINT")
app.view("many", "SELECT count(*) AS many FROM orders")
"""
SLOW = (
    APP
    + """
app.view("pairs", "SELECT count(*) AS many FROM orders a JOIN orders b ON a.id % 7 <> b.id % 11", on_error="pause")
"""
)


def of_session(leader: int) -> list[str]:
    """The programs of a session that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                _, _, rest = (entry / "stat").read_text().rpartition(")")
                state, _, _, session = rest.split()[:4]
                if int(session) == leader and state != "Z":
                    found.append((entry / "cmdline").read_text())
            except OSError:  # it has just ended
                continue
    return found


def run(file: Path) -> subprocess.Popen[str]:
    """``headwater run`` in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "headwater.cli.main", "run", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **SHORT_LIVED, "PYTHONPATH": str(SOURCE), "PYSPARK_PYTHON": sys.executable},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("when", ["Java starts", "it runs"])
def test_ctrl_c_ends_a_run_without_a_trace_and_leaves_nothing_behind(tmp_path: Path, when: str) -> None:
    file = tmp_path / "shop.py"
    file.write_text(APP.format(home=str(tmp_path / "home")))
    process = run(file)
    try:
        served = tmp_path / "home" / "views" / "shop" / "serving.index"  # touched when a tick is served
        signs = {
            "Java starts": lambda: any("java" in each for each in of_session(process.pid)),
            "it runs": served.exists,
        }
        while not signs[when]() and process.poll() is None:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all of them
        _, said = process.communicate(timeout=120)

        assert (process.returncode, said) == (0, f'app "shop" in {tmp_path / "home"}, 1 view\n')
        deadline = time.monotonic() + 60
        while (left := of_session(process.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert left == []
    finally:
        if of_session(process.pid):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.timeout(300)
def test_ctrl_c_gives_up_a_long_first_fill_and_no_view_is_paused_for_it(tmp_path: Path) -> None:
    file, home = tmp_path / "shop.py", tmp_path / "home"
    file.write_text(SLOW.format(home=str(home)))
    with hw.Log(home) as log:
        log.topic("orders", "id BIGINT").append(pa.table({"id": range(1_000_000)}))  # 10^12 pairs: hours
    process = run(file)
    try:
        begun = home / "views" / "shop" / "epoch-1.alive"  # the engine is there, and fills the views
        while not begun.exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(5)  # the join runs; if it does not yet, the test shows less
        os.killpg(process.pid, signal.SIGINT)
        shown, said = process.communicate(timeout=120)

        assert (process.returncode, shown, said) == (0, "", f'app "shop" in {home}, 2 views\n')
        with hw.Log(home) as log:
            assert Manifests(log.catalog, "shop").current().tick == 0  # and so no view is paused
    finally:
        if of_session(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
