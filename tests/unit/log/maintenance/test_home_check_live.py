"""A check while other processes append, roll, seal, compact and retain finds nothing wrong."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.log.home import Log
from headwater.log.maintenance.home_check import check_home

# Small segments and a short retention, so that everything happens all the time.
BUSY = """
import itertools, sys
import headwater as hw
from headwater.log.maintenance.compaction import compact_partition

log = hw.Log(sys.argv[1], maintenance_interval=0.05)
seed = int(sys.argv[2])
users = log.topic("users", "id INT, name STRING", key="id", partitions=2, compact=True, tombstone_grace="50 ms",
                  segment_bytes_max=20_000)
clicks = log.topic("clicks", "x INT, at TIMESTAMP", event_time="at", segment_bytes_max=10_000, retention="300 ms")
consumer = clicks.consumer(f"readers-{seed}")
print("ready", flush=True)
for turn in itertools.count():
    users.append([{"id": (turn * seed + n) % 50, "name": "x" * 20} for n in range(20)])
    users.delete([{"id": turn % 50}])
    clicks.append([{"x": n, "at": "2030-01-01T00:00:00Z"} for n in range(50)], producer=f"p{seed}", sequence=turn)
    try:
        batch = consumer.poll(timeout=0)
        if batch is not None:
            consumer.commit(batch)
    except hw.errors.OffsetOutOfRange:
        consumer.close()
        clicks.group(f"readers-{seed}").reset("latest", force=True)
        consumer = clicks.consumer(f"readers-{seed}")
    if turn % 7 == 0:
        users.partition(turn % 2).roll()
    if turn % 20 == 0:
        compact_partition(users, turn % 2, force=True)
"""


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    processes = []
    try:
        for seed in ("3", "7"):
            command = [sys.executable, "-c", BUSY, str(home), seed]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            processes.append(process)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate()[1]
        yield home
        for process in processes:
            assert process.poll() is None, process.communicate()[1]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_check_of_a_busy_home_is_clean(busy: Path) -> None:
    seen: dict[str, int] = {"segments": 0, "rows": 0}
    with Log(busy, maintenance_interval=None) as log:
        for _ in range(10):
            before = log.get_topic("clicks").end_offsets()
            for report in (log.check(), check_home(busy)):
                # A group that retention overtakes is told, and rightly so.
                problems = [problem for problem in report.problems if "overtaken" not in problem.message]
                assert problems == [], str(report)
                seen["segments"] += report.segments
                seen["rows"] += report.rows
            deadline = time.monotonic() + 60
            while log.get_topic("clicks").end_offsets() == before:
                assert time.monotonic() < deadline, "the others do not append any more"
                time.sleep(0.01)

    assert seen["segments"] > 0
    assert seen["rows"] > 0
