"""Stalls: rows wait, and no tick comes.

What it is: ``StallWatch``, which looks at an app from any process, without Spark, and says for how long it has not got
on.
Invariants: rows wait when a tick would take them: of captured tables only whole transactions. A tick that takes long
is no stall while Spark finishes tasks (a first fill, a rebuild, a large backlog); one task that takes long, or Python
that computes, has ``PATIENCE`` times as long. The limit is never less than ``TICKS`` of the longest tick of late, and a
process that has just taken over has ``FIRST_TICK`` times as long.
Not here: what is done about it (``server/engine/watchdog.py``, ``cli/views/run_command.py``), the signs themselves
(``liveness.py``).
Read next: ``liveness.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError
from headwater.log.contract import EventLog
from headwater.log.event_time import capture_markers
from headwater.views.compiler.plan import topic_of
from headwater.views.lifecycle.liveness import LivenessSigns, signs_of
from headwater.views.state.manifest import Manifest, Manifests
from headwater.views.tick.reports import TickReports

PATIENCE = 10
TICKS = 3
FIRST_TICK = 5
TICKS_SEEN = 60


@dataclass(frozen=True)
class StallFinding:
    """What one look found. ``stalled_seconds``: since the app last got on while rows wait; 0 when none do."""

    tick: int = 0
    epoch: int = 0
    alive: bool = False
    waiting_rows: int = 0
    stalled_seconds: float = 0.0
    limit_seconds: float = 0.0
    stalled: bool = False

    @property
    def sentence(self) -> str:
        """For people."""
        return (
            f"{self.waiting_rows} row{' waits' if self.waiting_rows == 1 else 's wait'}, and no tick has come for "
            f"{self.stalled_seconds:.0f} s"
        )


class StallClocks:
    """When an app last got on, and when it last gave any sign.

    >>> clocks = StallClocks()
    >>> clocks.note(0.0, ("tick 7",), LivenessSigns(True, done=5, busy=1))
    >>> clocks.note(50.0, ("tick 7",), LivenessSigns(True, done=5, busy=2))
    >>> clocks.stalled(100.0, limit=60.0), clocks.stalled(120.0, limit=60.0)
    (False, True)
    """

    def __init__(self) -> None:
        self._known: tuple[object, ...] | None = None
        self._signs = LivenessSigns()
        self.moved = self.busy = 0.0

    def note(self, now: float, known: tuple[object, ...], signs: LivenessSigns) -> None:
        """What is known of the app by now; anything new of it is getting on."""
        if known != self._known or signs.done != self._signs.done:
            self.moved = self.busy = now
        elif signs.busy != self._signs.busy:
            self.busy = now
        self._known, self._signs = known, signs

    def stalled(self, now: float, *, limit: float) -> bool:
        """Whether it has neither got on nor given a sign for too long."""
        return now - self.busy > limit or now - self.moved > PATIENCE * limit


def topics_read(views: Iterable[Any]) -> set[str]:
    """The topics that views of an app read, in lower case."""
    reads = (view.plan.reads if view.plan is not None else view.declared.inputs for view in views)
    return {topic_of(name).lower() for names in reads for name in names}


class StallWatch:
    """Looks at one app; call ``look`` every second or so."""

    def __init__(
        self, log: EventLog, app: str, reads: Callable[[], Collection[str]], folder: Path, *, limit_seconds: float
    ) -> None:
        self._log = log
        self._reads = reads  # the topics that the views read, in lower case
        self._folder = folder
        self._limit = limit_seconds
        self._manifests = Manifests(log.local.catalog, app)
        self._reports = TickReports(log.local.catalog, app)
        self._manifest = Manifest()
        self._clocks = StallClocks()

    def look(self, *, about: object = None) -> StallFinding:
        """How the app is. When ``about`` changes, which the caller knows of it, that is getting on too."""
        now = self._log.clock.monotonic()
        tick, epoch = self._manifests.tick(), self._manifests.epoch()
        if tick != self._manifest.tick:
            self._manifest = self._manifests.current()
        waiting = self._waiting()
        signs = signs_of(self._folder, epoch)
        self._clocks.note(now, (tick, epoch, about, waiting > 0), signs)
        if not waiting:
            return StallFinding(tick, epoch, signs.alive)
        seconds = now - self._clocks.moved
        # The first tick of a process reads the state, and Java is not warm yet.
        limit = self._limit * (1 if self._manifest.epoch == epoch else FIRST_TICK)
        if not self._clocks.stalled(now, limit=limit):
            return StallFinding(tick, epoch, signs.alive, waiting, seconds, limit)
        longest = max((float(report["seconds"]) for report in self._reports.last(TICKS_SEEN)), default=0.0)
        limit = max(limit, TICKS * longest)
        stalled = self._clocks.stalled(now, limit=limit)
        return StallFinding(tick, epoch, signs.alive, waiting, seconds, limit, stalled)

    def reset(self) -> None:
        """Something was done about it: wait a full measure before the next conclusion."""
        self._clocks = StallClocks()

    def _waiting(self) -> int:
        reads, frontier = self._reads(), self._manifest.frontier
        topics = [self._log.get_topic(name) for name in self._log.topic_names() if name.lower() in reads]
        ends = capture_markers.bound(topics, {topic.name: topic.end_offsets() for topic in topics})
        waiting = 0
        for topic in topics:
            try:
                begin = frontier.get(topic.name) or topic.start_offsets()
            except HeadwaterError:  # deleted meanwhile
                continue
            waiting += sum(max(0, end - begin.get(number, 0)) for number, end in ends[topic.name].items())
        return waiting
