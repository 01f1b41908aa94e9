"""The standby: all that an engine can do before it takes the app over.

What it is: ``Standby.warm_up`` starts Spark, prepares the views and makes the plans that the running engine keeps;
``Standby.note_plans`` is called by the running engine, and writes down which those are.
Invariants: warming up takes nothing over and reads no row. A plan that cannot be made ahead is made when it is needed.
Not here: when it is called (``server/engine/engine_process.py``).
Read next: ``views/spark/plans/plan_record.py``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.views.spark.jvm import lost_contact
from headwater.views.spark.plans.plan_record import PlanRecord

if TYPE_CHECKING:
    from headwater.views.runtime import AppRuntime

logger = logging.getLogger("headwater.views")

RESTS = 3.0  # times as long as it worked: a quarter of one core is what a standby takes from the engine


class Standby:
    """An app's runtime before it runs, and what the next one needs to know of it."""

    def __init__(self, runtime: AppRuntime) -> None:
        self._runtime = runtime

    @cached_property
    def _record(self) -> PlanRecord:
        return PlanRecord(self._runtime.folder / "plans.json", self._runtime.spark.version)

    def warm_up(self, pause: Callable[[float], bool]) -> None:
        """Be as ready as can be; called again, it makes the plans that the running engine has made since.

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
