"""Tick parts: the processor time of a tick, taken apart.

What it is: ticks of one changed row and of 1 000 changes, by one view and by five; of each part the processor time of
its thread, without the parts inside it; and the time of the whole process and of Java, with its compilers.
Invariants: processor time, so that it says the same on a busy machine, but for waiting; the first ticks warm up and are
not counted; views are checked at the end. The clocks around the parts take a few per cent by themselves.
Not here: how long a change takes to be visible (``latency.py``).
Read next: ``latency.py``.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.views.latency import appends, single_changes
from bench.views.scale import Lines, Scale
from bench.views.shop_app import FIVE_VIEWS, ShopApp, opened
from headwater.views.serving.publish import Publisher
from headwater.views.spark.plans.driver_lane import LaneThread
from headwater.views.spark.plans.plan_cache import PlanCache
from headwater.views.stages.stage_run import StageRun
from headwater.views.state.manifest import Manifests
from headwater.views.state.merge import RunMerge
from headwater.views.state.state_store import StateStore
from headwater.views.tick.engine import TickEngine
from headwater.views.tick.evaluate import Evaluation

WARM_UPS, TICKS = 60, 200
PARTS = (
    (TickEngine, "_input_relations", "rows of the log, with the old rows of their keys"),
    (StageRun, "run", "stages: keys, lookups, their own state"),
    (PlanCache, "collect", "Spark's plans, run over py4j"),
    (LaneThread, "give", "tables handed to Java"),
    (StateStore, "_write", "new runs encoded, beside"),
    (StateStore, "next", "the next traces"),
    (Manifests, "commit", "the manifest's commit"),
    (Publisher, "follow", "the serving store"),
    (RunMerge, "run", "runs merged, beside"),
    (Evaluation, "run", "views shared out and gathered"),
    (TickEngine, "tick", "the rest of the tick"),
)


def measure(scale: Scale, folder: Path) -> Lines:
    """The parts for one view and for five."""
    lines = Lines()
    for title, views in (("one view", None), ("five views", FIVE_VIEWS)):
        with opened(folder / title, scale, orders=scale.latency_orders, views=views) as shop:
            _take_apart(lines, f"one changed row, {title}", shop, single_changes(shop))
            _take_apart(lines, f"{scale.tick_changes} changes, {title}", shop, appends(shop, scale.tick_changes))
            shop.tick_all()
            shop.check()
    return lines


def _take_apart(lines: Lines, title: str, shop: ShopApp, turns: Iterator[Any]) -> None:
    for append in itertools.islice(turns, WARM_UPS):
        append()
        shop.app.tick()
    java = [child for child in psutil.Process().children(recursive=True) if child.name() == "java"]
    own = of_java = 0.0
    with clocks() as parts:
        for append in itertools.islice(turns, TICKS):
            append()
            before = time.process_time(), _seconds(java)
            shop.app.tick()
            own, of_java = own + time.process_time() - before[0], of_java + _seconds(java) - before[1]
    for _, _, part in PARTS:
        lines.figure(f"{title}: {part}", parts[part] / TICKS * 1e3, "ms")
    lines.figure(f"{title}: Python, all of it", own / TICKS * 1e3, "ms")
    lines.figure(f"{title}: Java, all of it", of_java / TICKS * 1e3, "ms")


def _seconds(processes: list[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


@contextmanager
def clocks() -> Iterator[Counter[str]]:
    """While it is open: the processor seconds of each part, in whatever thread."""
    spent: Counter[str] = Counter()
    inside = threading.local()
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in PARTS]

    def clocked(work: Any, part: str) -> Any:
        @functools.wraps(work)
        def clock(*arguments: Any, **named: Any) -> Any:
            outer = getattr(inside, "spent", 0.0)
            inside.spent, began = 0.0, time.thread_time()
            try:
                return work(*arguments, **named)
            finally:
                took = time.thread_time() - began
                spent[part] += took - inside.spent
                inside.spent = outer + took

        return clock

    for owner, name, part in PARTS:
        setattr(owner, name, clocked(getattr(owner, name), part))
    try:
        yield spent
    finally:
        for owner, name, work in before:
            setattr(owner, name, work)
