"""The demo, as a stranger runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
WAIT_S = 580  # a minute on two quiet cores

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    path = tmp_path / "temporary"
    path.mkdir()
    return path


def take_interrupts() -> None:
    """What runs in the background of a shell ignores them, and its children too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(temporary: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "headwater.cli.main", "demo", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(temporary), "PYSPARK_PYTHON": sys.executable},
        preexec_fn=take_interrupts,
    )


def processes_of(temporary: Path) -> Iterator[str]:
    """The processes that work in this directory."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:  # it has just ended
                continue
            if any(str(temporary) in word for word in words):
                yield " ".join(words)


def test_the_demo_keeps_every_promise_and_leaves_nothing_behind(temporary: Path) -> None:
    output, narration = start(temporary, "--seconds", "15", "--json").communicate(timeout=WAIT_S)

    sys.stdout.write(narration)  # shown whole when this fails, and not cut as the message of an assertion
    assert output
    summary = json.loads(output)
    assert summary["problems"] == []
    assert summary["ok"]
    assert len(summary["views"]) == 13  # with the status of stored searches
    assert all(each["equal"] for each in summary["views"])
    # A basket is known to be left after half a minute: in a short run perhaps none is.
    assert {each["view"] for each in summary["views"] if not each["rows"]} <= {
        "abandoned_baskets",
        "hesitations",
        "wishes",
    }
    assert summary["sinks_equal"]
    assert summary["as_in_postgres"]
    assert summary["check_ok"]
    assert summary["backup"]["rows"] > 0
    assert summary["forgotten"]["rows"] > 0
    assert summary["alerts"] >= 1
    assert summary["corrections"] >= 1
    assert (summary["engines_killed"], summary["consumers_killed"]) == (1, 1)
    assert summary["page_views_skipped"] == 0
    paused = summary["paused_view"]
    assert (paused["view"], paused["others_went_on"], paused["resumed"]) == ("unit_prices", True, True)
    assert paused["reason"] == "Division by zero"
    assert summary["desk_ok"]
    assert summary["commands"]["accepted"] > 20
    assert summary["commands"]["rejected"] == 1
    assert summary["rule"]["reason"] == "the order costs another amount"
    assert summary["rule"]["repeated"]
    assert "view unit_prices is paused (Division by zero)" in narration
    assert summary["latency_ms"]["samples"] > 0
    late_order = summary["late_order"]
    assert float(late_order["after"]) == pytest.approx(float(late_order["before"]) + float(late_order["amount"]))
    assert narration.count("kill -9") == 2
    assert list(temporary.iterdir()) == []
    assert list(processes_of(temporary)) == []


def test_an_interrupted_demo_stops_its_processes_and_removes_its_home(temporary: Path) -> None:
    demo = start(temporary)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "Spark starts" in line:
            break

    demo.send_signal(signal.SIGINT)
    _, told = demo.communicate(timeout=WAIT_S)

    assert demo.returncode == 130, told
    assert list(temporary.iterdir()) == []
    assert list(processes_of(temporary)) == []


def test_the_demo_does_not_use_a_home_that_holds_something(temporary: Path) -> None:
    (temporary / "precious").write_text("data")

    demo = start(temporary, "--home", str(temporary), "--json")
    _, words = demo.communicate(timeout=WAIT_S)

    assert demo.returncode == 2
    assert json.loads(words)["message"].endswith("is not empty")
    assert [path.name for path in temporary.iterdir()] == ["precious"]
