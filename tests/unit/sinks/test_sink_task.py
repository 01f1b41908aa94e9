"""The follower: what becomes of a sink that fails, and who is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import Corruption, SinkRefused, Unavailable
from headwater.log.home import Log
from headwater.log.maintenance.alerts import Alert
from headwater.sinks.runner.sink_runner import SinkRunner
from headwater.sinks.runner.sink_status import SinkState
from headwater.sinks.runner.sink_task import RETRY_MAX_S, UNKNOWN_MAX, SinkTask
from headwater.sinks.sink import SinkContext, Target
from headwater.testing import ListSink, ManualClock
from tests.services.sinks.synthetic import SyntheticView


@pytest.fixture
def told() -> list[Alert]:
    return []


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock, told: list[Alert]) -> Iterator[Log]:
    with Log(tmp_path / "home", clock=clock, on_alert=told.append, maintenance_interval=None) as log:
        yield log


@pytest.fixture
def view() -> SyntheticView:
    view = SyntheticView("id BIGINT, n INT")
    view.change([{"id": 1, "n": 1}])
    return view


def follower_of(view: Any, sink: ListSink, log: Log, name: str = "copy") -> SinkTask:
    return SinkTask(name, "the view", "app", sink, view, log)


def test_ticks_that_wait_come_as_one_delivery(view: SyntheticView, log: Log) -> None:
    sink = ListSink()
    task = follower_of(view, sink, log)
    task.catch_up()
    for number in range(5):
        view.change([{"id": 1, "n": number}, {"id": 2 + number, "n": 0}])

    task.catch_up()

    assert (sink.fills, len(sink.deliveries), sink.deliveries[0].ticks) == (1, 1, 5)
    assert sorted(map(str, sink.rows)) == sorted(map(str, view.rows_now()))


def test_a_sink_that_does_not_answer_is_told_of_once_and_then_counted(
    view: SyntheticView, log: Log, told: list[Alert]
) -> None:
    sink = ListSink()
    task = follower_of(view, sink, log)
    task.catch_up()
    sink.fail(*[Unavailable("nobody there")] * 20)
    view.change([{"id": 2, "n": 2}])

    pauses = []
    for _ in range(20):
        task.catch_up()
        pauses.append(task.retry_in)
    down = task.status
    task.catch_up()

    assert (down.state, down.failures, down.lag.ticks) == (SinkState.RETRYING, 20, 1)
    assert down.error is not None
    assert down.error["message"] == "nobody there"
    assert [(alert.kind, alert.state) for alert in told] == [("sink", "begin"), ("sink", "end")]
    assert told[0].message == "sink app/the view/copy does not answer: nobody there"
    assert 0.05 <= pauses[0] <= 0.1
    assert RETRY_MAX_S / 2 <= pauses[-1] <= RETRY_MAX_S
    assert (task.status.state, task.status.failures, sink.tick) == (SinkState.FOLLOWING, 0, view.tick)


def test_it_is_told_again_when_it_comes_back(view: SyntheticView, log: Log, told: list[Alert]) -> None:
    sink = ListSink()
    task = follower_of(view, sink, log)
    for _ in range(2):
        sink.fail(Unavailable("nobody there"))
        view.commit()
        task.catch_up()
        task.catch_up()

    assert [alert.state for alert in told] == ["begin", "end"] * 2


def test_app_tick_does_not_wait_for_a_sink_that_did_not_answer_a_moment_ago(
    view: SyntheticView, log: Log, clock: ManualClock
) -> None:
    sink = ListSink()
    task = follower_of(view, sink, log)
    sink.fail(Unavailable("nobody there"))
    task.catch_up()

    early = task.catch_up(patient=True)
    clock.advance(1)
    late = task.catch_up(patient=True)

    assert (early.state, late.state) == (SinkState.RETRYING, SinkState.FOLLOWING)


def test_a_sink_that_is_refused_stops_with_the_error_and_an_alert(
    view: SyntheticView, log: Log, told: list[Alert]
) -> None:
    sink = ListSink()
    task = follower_of(view, sink, log)
    sink.fail(SinkRefused("no such type", hint="Cast it."))

    task.catch_up()
    again = task.catch_up()

    assert again.state is SinkState.STOPPED
    assert again.error is not None
    assert (again.error["code"], again.error["hint"]) == ("sink_refused", "Cast it.")
    assert [alert.message for alert in told] == ["sink app/the view/copy has stopped: no such type"]
    task.restart()
    assert task.catch_up().state is SinkState.FOLLOWING


def test_an_error_that_nobody_mapped_is_tried_again_and_then_stops_this_sink_only(
    view: SyntheticView, log: Log, told: list[Alert]
) -> None:
    sink = ListSink()
    task = follower_of(view, sink, log)

    def states(tries: int) -> list[SinkState]:
        sink.fail(*[ZeroDivisionError("division by zero") for _ in range(tries)])
        return [task.catch_up().state for _ in range(tries)]

    assert states(UNKNOWN_MAX - 1) == [SinkState.RETRYING] * (UNKNOWN_MAX - 1)
    assert task.catch_up().state is SinkState.FOLLOWING
    view.change([{"id": 2, "n": 2}])
    sink.fail(*[Unavailable("nobody there") for _ in range(UNKNOWN_MAX)])  # which is not counted
    assert [task.catch_up().state for _ in range(UNKNOWN_MAX)] == [SinkState.RETRYING] * UNKNOWN_MAX
    assert states(UNKNOWN_MAX)[-2:] == [SinkState.RETRYING, SinkState.STOPPED]
    status = task.catch_up()
    assert status.error is not None
    assert status.error["message"] == "unexpected ZeroDivisionError: division by zero"
    why = "unexpected ZeroDivisionError: division by zero"
    assert [alert.message for alert in told if alert.state == "begin"] == [
        f"sink app/the view/copy fails: {why}",  # the first time, when it went on
        "sink app/the view/copy does not answer: nobody there",
        f"sink app/the view/copy has stopped: {why}",
    ]


def test_a_full_copy_that_took_too_long_says_so_and_begins_anew(
    view: SyntheticView, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> Iterator[Any]:
        yield from ()
        raise FileNotFoundError(2, "No such file", "run-7.arrow")

    head = view.head()
    with monkeypatch.context() as patched:
        patched.setattr(view, "rows", lambda: nullcontext((head, gone())))
        sink = ListSink()
        task = follower_of(view, sink, log)
        failed = task.catch_up()

    assert failed.state is SinkState.RETRYING
    assert failed.error is not None
    assert failed.error["message"] == 'a full copy of view "the view" took longer than the rows of its tick are kept'
    assert task.catch_up().state is SinkState.FOLLOWING


def test_a_sink_that_has_come_apart_is_filled_anew_but_not_for_ever(view: SyntheticView, log: Log) -> None:
    sink = ListSink()
    task = follower_of(view, sink, log)
    task.catch_up()
    view.change([{"id": 2, "n": 2}])
    sink.fail(Corruption("a row is missing"))

    mended = task.catch_up()
    assert (mended.state, sink.fills) == (SinkState.FOLLOWING, 2)
    for _ in range(3):
        view.change([{"id": 3, "n": 2}])
        sink.fail(Corruption("a row is missing"))
        status = task.catch_up()

    assert status.state is SinkState.STOPPED


def test_a_process_that_was_shut_out_stops_in_silence(view: SyntheticView, log: Log, told: list[Alert]) -> None:
    sink = ListSink()
    old, new = follower_of(view, sink, log), follower_of(view, sink, log)
    old.catch_up()
    view.number = 2
    view.change([{"id": 2, "n": 2}])
    new.catch_up()
    view.number = 1
    view.change([{"id": 3, "n": 3}])

    status = old.catch_up()

    assert (status.state, told) == (SinkState.STOPPED, [])
    view.number = 2
    new.catch_up()
    assert follower_of(view, ListSink(), log).status.state is SinkState.FOLLOWING, (
        "what the new one said is still there"
    )
    assert status.error is not None
    assert status.error["code"] == "fenced"


def test_a_sink_that_is_ahead_of_its_home_is_filled_anew(view: SyntheticView, log: Log) -> None:
    sink = ListSink()
    view.change([{"id": 2, "n": 2}])
    follower_of(view, sink, log).catch_up()
    back = SyntheticView("id BIGINT, n INT")  # as from a backup: fewer ticks of the same home
    back.change([{"id": 1, "n": 1}])

    follower_of(back, sink, log).catch_up()

    assert (sink.fills, sink.tick, sink.rows) == (2, back.tick, [{"id": 1, "n": 1}])


def test_another_layout_asks_for_a_new_copy(view: SyntheticView, log: Log) -> None:
    class Folded(ListSink):
        fold = "one"

        @property
        def layout(self) -> str:
            return self.fold

    sink = Folded()
    follower_of(view, sink, log).catch_up()
    sink.fold = "two"
    follower_of(view, sink, log).catch_up()

    assert sink.fills == 2


class Slow(ListSink):
    """A sink that takes nothing until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let, self.asked = threading.Event(), threading.Event()

    def open(self, context: SinkContext, log: Log) -> Target:
        self.asked.set()
        assert self.let.wait(60)
        return super().open(context, log)


def test_a_slow_sink_delays_only_itself(view: SyntheticView, log: Log) -> None:
    slow, quick = Slow(), ListSink()
    runner = SinkRunner([follower_of(view, slow, log, "slow"), follower_of(view, quick, log, "quick")])
    runner.start()
    try:
        assert slow.asked.wait(60)
        for _ in range(3):
            tick = view.change([{"id": view.tick, "n": 0}])
            runner.wake()
            reached(quick, tick)
        assert slow.tick == -1
    finally:
        slow.let.set()
        reached(slow, view.tick)
        runner.close()

    assert not runner.running
    view.commit()
    assert quick.tick < view.tick, "after stop nothing is delivered"


def test_a_thread_goes_on_though_it_could_not_be_written_down_how_its_sink_is(
    view: SyntheticView, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, full = ListSink(), [OSError("the disk is full"), OSError("the disk is full")]
    task = follower_of(view, sink, log)
    save = task._statuses.save

    def saved(*arguments: Any) -> None:
        if full:
            raise full.pop()
        save(*arguments)

    monkeypatch.setattr(task._statuses, "save", saved)
    runner = SinkRunner([task])
    runner.start()
    try:
        reached(sink, view.tick)
    finally:
        runner.close()
    assert not full


def reached(sink: ListSink, tick: int) -> None:
    pause = threading.Event()
    for _ in range(6000):
        if sink.tick >= tick:
            return
        pause.wait(0.01)
    raise AssertionError(f"tick {tick} was never delivered")
