"""Our side of patterns: a topic that nobody has read yet, into the matches; then ticks on top of the state.

What it is: the payments are appended through the log and sealed, as they would be. Each run is an app over a copy of
that home, with one view: the clock starts when everything waits in the log and the view is compiled, and stops when
the first tick is committed. The last run goes on with ticks of new payments.
Invariants: the patterns take turns, and the first turn warms up and is not counted; every match is checked, after the
catch-up and after the last tick.
Not here: the peer (``peers/flink_matches.py``).
Read next: ``peers/flink_matches.py``.
"""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path

import headwater as hw
from bench.processor_time import processor_seconds
from bench.views.memory import peak_of
from bench.views.scale import Lines
from bench.views.throughput import seal
from bench.watch.pattern_scale import PROCESSOR_RATE, RATE, PatternScale
from bench.watch.payments import DDL, PATTERNS, Matches, Pattern, Payments, difference, matches_of
from headwater.views.view import View

APPEND_ROWS = 200_000


def measure(scale: PatternScale, folder: Path) -> Lines:
    """Events a second in one catch-up, and what a tick takes after it, by pattern."""
    lines = Lines()
    payments = Payments(scale.every, scale.cards)
    with opened(folder / "home", scale) as app:
        for start in range(0, scale.events, APPEND_ROWS):
            app.get_topic("payments").append(payments.table.slice(start, min(APPEND_ROWS, scale.events - start)))
        seal(app.get_topic("payments"))
    took: dict[str, list[tuple[float, float]]] = {pattern.name: [] for pattern in PATTERNS}
    for run in range(scale.runs + 1):
        for pattern in PATTERNS:  # in turns, so that all find Spark equally warm
            home = folder / f"{pattern.name}-{run}"
            shutil.copytree(folder / "home", home)
            with opened(home, scale) as app:
                view = app.view("matches", f"SELECT first_id, last_id FROM payments {pattern.clause}")
                took[pattern.name].append(caught_up(app))
                expected = payments.matches(pattern, scale.events)
                check(view, expected)
                if run == scale.runs:
                    seconds, spent = map(statistics.median, zip(*took[pattern.name][1:], strict=True))
                    lines.figure(pattern.title, scale.events / seconds, RATE)
                    lines.figure(pattern.title, scale.events / spent, PROCESSOR_RATE)
                    lines.figure(f"{pattern.title}: matches", len(expected), "matches")
                    ticked(app, pattern, payments, scale, lines)
                    check(view, payments.matches(pattern, scale.every))
            shutil.rmtree(home)
    lines.figure("peak memory, Python and JVM", peak_of() / 1e9, "GB")
    return lines


def opened(home: Path, scale: PatternScale) -> hw.App:
    """The app, with its topic and no view."""
    app = hw.App("cards", home=home, spark={"spark.driver.memory": scale.driver_memory})
    app.topic("payments", DDL, event_time="paid_at", lateness="1 second")
    return app


def caught_up(app: hw.App) -> tuple[float, float]:
    """The seconds, on the clock and of processor time, in which the view takes everything that waits."""
    app._runtime.prepared  # compiled before the clock starts  # noqa: B018
    before, began = processor_seconds(), time.perf_counter()
    while app.tick().behind:
        pass
    return time.perf_counter() - began, processor_seconds() - before


def ticked(app: hw.App, pattern: Pattern, payments: Payments, scale: PatternScale, lines: Lines) -> None:
    """Ticks of each size; the first of a size plans its queries and is not counted."""
    topic, at = app.get_topic("payments"), scale.events
    for rows, ticks in scale.ticks:
        seconds, spent, read = [], [], []
        for _ in range(ticks):
            topic.append(payments.table.slice(at, rows))
            at += rows
            before, began = processor_seconds(), time.perf_counter()
            told = app.tick()
            seconds.append(time.perf_counter() - began)
            spent.append(processor_seconds() - before)
            read.append(sum(each.rows_read for each in told.views))
        name = f"{pattern.title}: tick of {rows:,}"
        lines.figure(name, statistics.median(seconds[1:]) * 1e3, "ms")
        lines.figure(f"{name}, processor", statistics.median(spent[1:]) * 1e3, "ms")
        lines.figure(f"{name}, rows read", statistics.median(read[1:]), "rows")


def check(view: View, expected: Matches) -> None:
    """A time counts only with the right matches."""
    wrong = difference(matches_of(view.to_arrow()), expected)
    if wrong is not None:
        raise AssertionError(wrong)
