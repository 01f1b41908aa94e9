"""Erasure follower: before a tick, the views of an app follow the erasures of its home.

What it is: ``ErasureFollower.follow`` is called before each tick: while a process erases in the log, ticks stand still;
then the views are corrected; and when the sinks had time to take that, the ticks before it are forgotten.
Invariants: no tick begins over a log that is half erased; what one that was under way made of it is corrected too. An
erasure that a killed process has begun is ended here. An app that was not running follows when it begins. Forgetting is
put off, never left out: it is tried again before each tick.
Not here: correcting and forgetting (``erasure_rebuild.py``).
Read next: ``erasure_rebuild.py``, ``upkeep/erasure/``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import Conflict, Unavailable
from headwater.log.erasure.erasure_records import ErasureRecords
from headwater.log.erasure.log_erasure import resume
from headwater.views.lifecycle.erasure_rebuild import ErasureRebuild, forget_before
from headwater.views.tick.engine import TickEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.log.contract import EventLog

logger = logging.getLogger("headwater.views")

FORGET_AFTER_US = 60_000_000  # so long sinks and subscribers can take a correction as a change; then as a full copy


class ErasureFollower:
    """Keeps the views of one app free of erased people."""

    def __init__(
        self,
        engine: TickEngine,
        log: EventLog,
        spark: SparkSession,
        scratch: Path,
        forgot: Callable[[], None] = lambda: None,
    ) -> None:
        self.engine = engine
        self.log = log
        self.spark = spark
        self.scratch = scratch
        self.app = engine.manifests.app
        self.records = ErasureRecords(log.local.catalog)
        self._forgot = forgot  # called when earlier ticks are forgotten: sinks clear what is theirs
        self._at_work = False

    def follow(self) -> bool:
        """Do what is due; False when the tick has to wait."""
        if self._at_work:
            return True
        self._at_work = True
        try:
            return self._follow()
        finally:
            self._at_work = False

    def _follow(self) -> bool:
        log = self.log.local
        if log.read_only:
            return True
        if not resume(log):
            return False
        waiting = self.records.to_follow(self.app)
        if waiting:
            tick = self.engine.manifest.tick
            if tick:
                if self.engine.initial:  # views that are new are filled first: the others can be compared then
                    self.engine.tick()
                people = [record.erased for record in waiting]
                try:
                    rebuild = ErasureRebuild(self.engine, people, self.log, self.spark, self.scratch)
                except Conflict:  # views are being rebuilt: when they are swapped in they are corrected with the others
                    return True
                tick = rebuild.run().tick
            self.records.followed(self.app, waiting, tick)
        elif (tick := self.records.to_forget(self.app) or 0) and self._is_old(tick):
            try:
                if self.forget():
                    self._forgot()
            except Unavailable as error:
                logger.warning("ticks before an erasure are kept for now: %s", error.message)
        return True

    def _is_old(self, tick: int) -> bool:
        manifest = self.engine.manifests.at(tick)
        now_us = self.log.clock.now_us()
        return manifest is None or now_us - manifest.committed_us >= FORGET_AFTER_US

    def forget(self) -> bool:
        """Forget the ticks before the last erasure, now; False while a reader keeps a database file as it was."""
        tick = self.records.to_forget(self.app)
        if tick is None:
            return True
        if self.engine.manifest.tick:
            forget_before(self.engine)
        done = self.engine.publisher.store.vacuum()
        done &= self.log.local.catalog.vacuum()
        if done:
            self.records.forgotten(self.app, tick)
        return done
