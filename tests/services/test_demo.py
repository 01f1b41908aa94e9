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

from tests.spark.conftest import SHORT_LIVED

SOURCE = Path(__file__).parents[2] / "src"
WAIT_S = 280


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    path = tmp_path / "temporary"
    path.mkdir()
    return path


def start(temporary: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "headwater.cli.main", "demo", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **SHORT_LIVED, "PYTHONPATH": str(SOURCE), "TMPDIR": str(temporary)},
    )  # fmt: skip


def children_of(home: str) -> Iterator[int]:
    """The processes on this home."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:  # it has just ended
                continue
            if "headwater.cli.demo_parts" in words and any(word.startswith(home) for word in words):
                yield int(entry.name)


def test_the_demo_keeps_every_promise_and_leaves_nothing_behind(temporary: Path) -> None:
    output, narration = start(temporary, "--seconds", "12", "--json").communicate(timeout=WAIT_S)

    summary = json.loads(output)
    assert summary["ok"], (summary["problems"], narration)
    assert summary["problems"] == []
    assert summary["events"] == summary["replay_rows"] > 0
    assert (summary["skipped"], summary["missing"], summary["written_twice"], summary["accepted_twice"]) == (0, 0, 0, 0)
    assert summary["accepted"] == summary["acceptable"] > 0
    assert summary["dead_letters"] == summary["poison"] > 0
    assert len(summary["takeover_seconds"]) == summary["consumers_killed"] == 1
    assert summary["producers_killed"] == summary["workers_killed"] == 1
    assert (summary["copy"]["equal"], summary["copy"]["killed"]) == (True, 1)
    assert summary["copy"]["transfers"] > 0
    assert summary["schema_version"] == 2
    assert summary["coupons"] > 0
    assert summary["wake_whole_run_ms"]["samples"] > 0
    assert summary["check_ok"]
    views = summary["views"]
    assert [(each["view"], each["equal"]) for each in views["verified"]] == [
        ("revenue", True), ("best_customers", True), ("minutes", True), ("total", True),
    ]  # fmt: skip
    assert views["late"] == views["sent_late"] > 0
    assert views["killed"] == 1
    assert views["ticks"] >= views["feed_ticks"] >= 5
    assert views["latency_whole_run_ms"]["samples"] > 0
    assert sum(row["orders"] for row in views["revenue"]) > 0
    assert narration.count("kill -9") == 5
    assert list(temporary.iterdir()) == []
    assert list(children_of(str(temporary))) == []


def test_an_interrupted_demo_stops_its_processes_and_removes_its_home(temporary: Path) -> None:
    demo = start(temporary)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "web and mobile append" in line:
            break

    demo.send_signal(signal.SIGINT)
    demo.communicate(timeout=WAIT_S)

    assert demo.returncode == 130
    assert list(temporary.iterdir()) == []
    assert list(children_of(str(temporary))) == []


def test_without_the_views_the_demo_needs_no_spark(temporary: Path) -> None:
    demo = start(temporary, "--seconds", "10", "--log-only", "--json")
    output, narration = demo.communicate(timeout=WAIT_S)

    summary = json.loads(output)

    assert summary["ok"], (summary["problems"], narration)
    assert summary["views"] is None
    assert "Spark" not in narration


def test_the_demo_does_not_use_a_home_that_holds_something(temporary: Path) -> None:
    (temporary / "precious").write_text("data")

    demo = start(temporary, "--home", str(temporary), "--json")
    _, words = demo.communicate(timeout=WAIT_S)

    assert demo.returncode == 2
    assert json.loads(words)["message"].endswith("is not empty")
    assert [path.name for path in temporary.iterdir()] == ["precious"]
