"""The standby: all that an engine can do before it takes the app over.

What it is: ``Standby.wait`` starts Spark, prepares the views, makes the plans that the running engine keeps, and
returns when it is called or, if asked to, when no process runs the app. ``Standby.note_plans`` is called by the
running engine, and writes down which plans those are.
Invariants: a standby takes nothing over. A plan that cannot be made ahead is made when it is needed.
Not here: who calls it (``server/engine/engine_process.py``, ``cli/views/run_command.py``); whether the other one is
gone (``active_process.py``); the copies that it keeps in step (``state_follower.py``).
Read next: ``active_process.py``, ``state_follower.py``; ``views/spark/plans/plan_record.py``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.views.lifecycle.active_process import ActiveProcess
from headwater.views.lifecycle.state_follower import StateFollower
from headwater.views.spark.jvm import ended, lost_contact
from headwater.views.spark.plans.plan_record import PlanRecord

if TYPE_CHECKING:
    from headwater.views.runtime import AppRuntime

logger = logging.getLogger("headwater.views")

RESTS = 3.0  # times as long as it worked: a quarter of one core is what a standby takes from the engine
WARM_UP_S = 2.0  # between two looks at the plans of the running engine
LOOK_S = 1.0  # between two looks at the other process


class Standby:
    """An app's runtime before it runs, and what the next one needs to know of it."""

    def __init__(self, runtime: AppRuntime) -> None:
        self._runtime = runtime

    def wait(self, called: threading.Event, *, on_ready: Callable[[], None], watches: bool = False) -> None:
        """Be as ready as can be until ``called``; with ``watches`` at most until no process runs the app any more.

        ``on_ready`` is called once, when everything is prepared. A standby that watches has copies of the state and of
        the served rows, and keeps them in step; they may be on another machine than the engine that runs.
        """
        runtime = self._runtime
        active = ActiveProcess(runtime.manifests, runtime.folder, runtime.log.clock)
        follower, told = StateFollower(runtime), False
        try:
            while not called.is_set():
                with runtime.mapped_errors():
                    self.warm_up(called.wait)
                    if ended(runtime.running_spark) is not None:
                        raise ConnectionError("Spark has ended")
                    gone = watches and active.is_gone()
                    if watches and not gone:
                        follower.follow()
                if not told:
                    on_ready()
                    told = True
                if gone:
                    return
                called.wait(LOOK_S if watches else WARM_UP_S)
        finally:
            follower.close()

    @cached_property
    def _record(self) -> PlanRecord:
        return PlanRecord(self._runtime.folder / "plans.json", self._runtime.spark.version)

    def warm_up(self, pause: Callable[[float], bool]) -> None:
        """Prepare the views; called again, make the plans that the running engine has made since.

        ``pause`` is called after each plan with the seconds to rest, since the engine needs the processor more; when it
        returns True, the rest is left.
        """
        views, recorded = self._runtime.prepared.views, self._record.read()
        for name in views.keys() & recorded.keys():
            for key in recorded[name]:
                began = time.monotonic()
                try:
                    made = views[name].sessions.plan_cache.plan_ahead(key)
                except Exception as error:
                    if lost_contact(error):
                        raise
                    logger.info("a plan of view %s is not made ahead: %s", name, error)
                    made = True
                if made and pause(RESTS * (time.monotonic() - began)):
                    return

    def note_plans(self) -> None:
        """Write down which plans the views keep."""
        views = self._runtime.engine.prepared.views
        self._record.save({name: view.sessions.plan_cache for name, view in views.items()})
