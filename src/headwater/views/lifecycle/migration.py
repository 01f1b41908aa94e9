"""A migration: from the views that ran to the views that are declared, while both do their work.

What it is: ``as_they_ran`` finds what can go on as it was while new and changed views are filled; ``Migration`` is a
rebuild in a thread of its own.
Invariants: what goes on is exactly what the manifest has, by its fingerprints, or there is none; it is left only by the
rebuild's swap, so readers see the old views up to date, and then the new ones.
Not here: the rebuild (``rebuild.py``); who begins it (``views/runtime.py``).
Read next: ``rebuild.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError
from headwater.log.contract import EventLog
from headwater.views.event_time.timing import Timing
from headwater.views.lifecycle.rebuild import Rebuild, RebuildReport
from headwater.views.lifecycle.rebuild_progress import RebuildProgress
from headwater.views.state.manifest import Manifest
from headwater.views.tick.prepare import Prepared, prepare
from headwater.views.view_declaration import ViewDeclaration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRESS_SECONDS = 0.2
# Views that read fewer rows than this are filled in the next tick: that takes no longer than a few ticks.
BESIDE_ROWS_MIN = 200_000


def as_they_ran(
    manifest: Manifest,
    declared: Iterable[ViewDeclaration],
    wanted: Prepared,
    log: EventLog,
    spark: SparkSession,
    scratch: Path,
) -> Prepared | None:
    """The views of the manifest as they ran, as far as they are still declared; None when they cannot go on.

    That is so when there are none, or when one was a function, which is known no more.
    """
    older = []
    for view in declared:
        about = manifest.views.get(view.name)
        if about is None or view.name in wanted.unprepared:
            continue
        changed = about["fingerprint"] != wanted.views[view.name].fingerprint
        sql = about.get("sql")
        timing = Timing(**about.get("timing", {}))
        older.append(replace(view, sql=sql, timing=timing) if changed and sql else view)
    places = {name: place for place, name in enumerate(manifest.views)}
    older.sort(key=lambda view: places[view.name])  # each behind those that it read then
    try:
        found = prepare(older, log, spark, scratch)
    except HeadwaterError:
        return None  # it reads what is there no more, or is there otherwise
    if not found.views or any(
        view.fingerprint != manifest.views[name]["fingerprint"] for name, view in found.views.items()
    ):
        return None
    # What only new views read is taken in from now on too, so that it is there when they are filled.
    return replace(found, inputs={**found.inputs, **wanted.inputs}, unprepared=wanted.unprepared)


def rows_to_read(prepared: Prepared, names: Iterable[str]) -> int:
    """How many rows the topics and tables hold that these views read, themselves or through others."""
    needed = set(names)
    for name in reversed(list(prepared.views)):
        if name in needed:
            needed |= set(prepared.views[name].plan.reads)
    topics = [base.topic for name, base in prepared.inputs.items() if name in needed]
    return sum(sum(topic.end_offsets().values()) - sum(topic.start_offsets().values()) for topic in topics)


class Migration:
    """A rebuild that is under way."""

    def __init__(self, rebuild: Rebuild, on_error: Callable[[Exception], bool] | None = None) -> None:
        self.rebuild = rebuild
        self._on_error = on_error  # whether that was all there is to do about it
        self._settled = False
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-rebuild")
        self._done = self._pool.submit(self._run)
        self._pool.shutdown(wait=False)

    def _run(self) -> RebuildReport:
        try:
            return self.rebuild.run()
        except Exception as error:
            self._settled = self._on_error is not None and self._on_error(error)
            raise

    @property
    def running(self) -> bool:
        """Whether it still has work to do."""
        return not self._done.done()

    def check(self) -> None:
        """Raise the error that ended it, if one did."""
        if self._done.done() and not self._settled:
            self._done.result()

    def wait(self, on_progress: Callable[[RebuildProgress], None] | None = None) -> RebuildReport:
        """Sleep until it is done; an interrupt stops it."""
        try:
            while not wait([self._done], PROGRESS_SECONDS).done:
                if on_progress is not None:
                    on_progress(self.rebuild.progress.now())
        except BaseException:
            self.stop()
            raise
        return self._done.result()

    def cancel(self) -> None:
        """Let it end soon, without its views. Returns at once."""
        if self.running:
            self.rebuild.progress.cancel()

    def stop(self) -> None:
        """End it, and wait until it has cleared up."""
        self.cancel()
        wait([self._done])
