"""Stalls: what counts as rows that wait without a tick, by a hand-driven clock and without Spark."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater as hw
from headwater.log.home import Log
from headwater.testing import ManualClock
from headwater.views.lifecycle.liveness import signs_of
from headwater.views.lifecycle.stalls import FIRST_TICK, PATIENCE, StallWatch
from headwater.views.state.manifest import Manifest, Manifests

LIMIT_S = 60.0


class Runner:
    """Somebody who runs the app "shop", by hand."""

    def __init__(self, log: Log, folder: Path) -> None:
        self.log, self.folder = log, folder
        self.manifests = Manifests(log.catalog, "shop")
        folder.mkdir(parents=True)
        self.take_over()

    def take_over(self) -> None:
        self.epoch = self.manifests.take_over()
        self.fd = os.open(self.folder / f"epoch-{self.epoch}.alive", os.O_RDWR | os.O_CREAT)
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def tick(self) -> None:
        """Take all rows."""
        frontier = {"orders": self.log.get_topic("orders").end_offsets()}
        self.manifests.commit(Manifest(self.manifests.tick() + 1, epoch=self.epoch, frontier=frontier))

    def tell(self, *, done: int, busy: int) -> None:
        os.pwrite(self.fd, json.dumps({"done": done, "busy": busy}).encode(), 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[Log]:
    with hw.Log(tmp_path / "home", clock=clock, maintenance_interval=None) as log:
        log.topic("orders", "id BIGINT")
        yield log


@pytest.fixture
def runner(log: Log, tmp_path: Path) -> Iterator[Runner]:
    runner = Runner(log, tmp_path / "shop")
    runner.tick()
    yield runner
    os.close(runner.fd)


@pytest.fixture
def watch(log: Log, runner: Runner) -> StallWatch:
    watch = StallWatch(log, "shop", lambda: {"orders"}, runner.folder, limit_seconds=LIMIT_S)
    assert watch.look().alive
    return watch


def pass_time(clock: ManualClock, watch: StallWatch, seconds: float) -> bool:
    """Look every few seconds; whether it is stalled in the end."""
    for _ in range(int(seconds // 5)):
        clock.advance(5)
        stalled = watch.look().stalled
    return stalled


def test_an_idle_app_is_not_stalled_and_one_that_leaves_rows_is(
    clock: ManualClock, log: Log, watch: StallWatch, runner: Runner
) -> None:
    assert not pass_time(clock, watch, 1000)

    log.get_topic("orders").append([{"id": 1}, {"id": 2}])
    assert not pass_time(clock, watch, LIMIT_S - 5)
    assert pass_time(clock, watch, 20)
    assert watch.look().sentence.startswith("2 rows wait, and no tick has come for ")

    runner.tick()
    assert not watch.look().stalled


def test_ticks_that_never_catch_up_are_no_stall(
    clock: ManualClock, log: Log, watch: StallWatch, runner: Runner
) -> None:
    for number in range(100):
        log.get_topic("orders").append([{"id": number}])
        runner.tick()
        log.get_topic("orders").append([{"id": number}])
        assert not pass_time(clock, watch, 10)


def test_a_long_tick_is_no_stall_while_tasks_are_finished_and_one_endless_task_is_in_the_end(
    clock: ManualClock, log: Log, watch: StallWatch, runner: Runner
) -> None:
    log.get_topic("orders").append([{"id": 1}])
    for number in range(200):
        runner.tell(done=number, busy=number)
        assert not pass_time(clock, watch, 30)

    stalled_after = 0
    while not watch.look().stalled:
        stalled_after += 5
        runner.tell(done=199, busy=1000 + stalled_after)  # at work, and nothing gets finished
        clock.advance(5)

    assert PATIENCE * LIMIT_S - 40 <= stalled_after <= PATIENCE * LIMIT_S + 10


def test_a_process_that_has_taken_over_has_longer_for_its_first_tick(
    clock: ManualClock, log: Log, watch: StallWatch, runner: Runner
) -> None:
    log.get_topic("orders").append([{"id": 1}])
    os.close(runner.fd)
    runner.take_over()

    assert not pass_time(clock, watch, FIRST_TICK * LIMIT_S - 5)
    assert pass_time(clock, watch, 20)


def test_who_has_ended_is_not_alive(watch: StallWatch, runner: Runner) -> None:
    assert signs_of(runner.folder, runner.epoch).alive

    fcntl.flock(runner.fd, fcntl.LOCK_UN)  # as the kernel does for a process that ends

    assert not watch.look().alive
    assert not signs_of(runner.folder, runner.epoch + 1).alive
