"""The benchmark's report: medians, bars, and peers that are not there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from bench.report import Bar, Measurement, Samples, show, to_json

BENCH = Path(__file__).parents[3] / "bench"
BENCHMARKS = sorted(path.stem for path in BENCH.glob("*_bench.py"))
# Each in a child of a process that has imported what most of them import: a third of the time.
EACH_BY_ITSELF = """
import os, runpy, sys
import headwater.app
folder, *names = sys.argv[1:]
for name in names:
    child = os.fork()
    if not child:
        said = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.argv = [name, "--help"]
        runpy.run_module(f"bench.{name}", run_name="__main__")
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def _samples() -> Samples:
    samples = Samples()
    for seconds in (1.0, 2.0, 10.0):
        samples.add("ours", rows=1_000, seconds=seconds)
    samples.add("slow peer", rows=10, seconds=1.0)
    samples.add("fast peer", rows=100, seconds=1.0)
    samples.missing["Kafka"] = "no Kafka jars"
    return samples


def test_a_figure_is_the_median_of_its_runs() -> None:
    measurements = _samples().measurements([])

    assert Measurement("ours", 500.0, "records/s") in measurements
    assert Measurement("ours", 0.05, "MB/s") in measurements


def test_a_bar_is_held_against_the_best_peer() -> None:
    bar = Bar("fast enough", "ours", ("slow peer", "fast peer", "absent peer"), 5.0)

    ratio = _samples().ratio(bar)

    assert ratio == Measurement("fast enough", 5.0, "x fast peer", 5.0, True)


def test_a_bar_without_a_peer_does_not_hold() -> None:
    ratio = _samples().ratio(Bar("fast enough", "ours", ("absent peer",), 1.0))

    assert (ratio.value, ratio.holds) == (None, False)


def test_a_ratio_without_a_demand_neither_holds_nor_fails() -> None:
    ratio = _samples().ratio(Bar("for information", "ours", ("fast peer",)))

    assert (ratio.value, ratio.bar, ratio.holds) == (5.0, None, None)


def test_an_unavailable_peer_is_a_line_with_its_reason() -> None:
    samples = _samples()
    console = Console(record=True, width=200)

    show(samples, [], console, title="rates")

    assert "not available: no Kafka jars" in console.export_text()
    assert "Kafka: not available: no Kafka jars" in [line.name for line in samples.measurements([])]


def test_the_list_for_programs_is_json_with_five_fields() -> None:
    bar = Bar("fast enough", "ours", ("fast peer",), 10.0)

    records = json.loads(to_json(_samples().measurements([bar])))

    assert all(set(record) == {"name", "value", "unit", "bar", "holds"} for record in records)
    assert [record["holds"] for record in records if record["bar"]] == [False]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """The status of each benchmark's ``--help``, and what it said."""
    folder = tmp_path_factory.mktemp("said")
    command = [sys.executable, "-c", EACH_BY_ITSELF, str(folder), *BENCHMARKS]
    done = subprocess.run(command, cwd=BENCH.parent, capture_output=True, text=True, check=True)
    statuses = map(int, done.stdout.split())
    return {name: (status, (folder / name).read_text()) for name, status in zip(BENCHMARKS, statuses, strict=True)}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_starts(started: dict[str, tuple[int, str]], name: str) -> None:
    """A benchmark is run seldom: at least its modules must find each other."""
    status, said = started[name]

    assert status == 0, said
    assert "usage" in said.lower()
