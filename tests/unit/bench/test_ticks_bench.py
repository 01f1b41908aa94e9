"""Thousands of ticks through the real state store, manifests, merges and pruning: nothing grows with their number."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import headwater as hw
from bench.ticks_bench import COLUMNS, Simulation, TickSample, judged
from headwater.views.state import state_store

TICKS = 1_000 * int(os.environ.get("HEADWATER_THOROUGH", "1"))
KEPT = 50


def test_nothing_grows_with_the_number_of_ticks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "RELEASED_SECONDS_MAX", 0)
    samples = []
    with hw.Log(tmp_path / "home", maintenance_interval=None) as log:
        simulation = Simulation(log, orders=2_000, kept=KEPT, large=((250, 2_000), (50, 200)))
        while simulation.tick_number < TICKS:
            simulation.tick()
            if simulation.tick_number % 50 == 0:
                samples.append(simulation.sample())
        simulation.check()
        kept = simulation.manifests.kept()
        whole = [simulation.manifests.at(tick) for tick, _ in kept]
        simulation.close()

    later = samples[len(samples) // 2 :]
    assert [tick for tick, _ in kept] == list(range(TICKS - KEPT, TICKS + 1))
    assert None not in whole
    # Two relations: each tick adds a run to each of them and ends as many, give or take what waits for a merge.
    assert max(sample.manifest_rows for sample in later) <= 4 * KEPT + 200
    assert max(sample.runs for sample in later) <= 150
    assert max(sample.files for sample in later) <= 40
    assert max(sample.catalog_megabytes for sample in later) <= 1.5 * max(s.catalog_megabytes for s in samples[:10])


def test_what_grows_from_the_first_third_to_the_last_does_not_hold() -> None:
    flat = TickSample(0, 10, 1.0, 10.0, 20, 3_000, 200.0, 2.0, 0.5, 0.3, 40.0)
    growing = [TickSample(**{**vars(flat), "tick": 10_000 * n, "files": 10 * n}) for n in range(1, 13)]

    found = {line.name: line for line in judged(growing)}

    assert found["files, last third beside the first"].holds is False
    assert found["files, last third beside the first"].value == pytest.approx(105 / 25)
    steady = [found[f"{heading}, last third beside the first"] for heading in COLUMNS if heading != "files"]
    assert {line.holds for line in steady} == {True, None}
