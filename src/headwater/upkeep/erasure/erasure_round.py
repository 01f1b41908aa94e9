"""Erasure round: the places besides the log from which something is erased, and what is said of each.

What it is: ``ErasureRound`` goes through captures' files, snapshots of aggregates, and the views and sinks of apps, and
notes what became of each. What is erased, a person or what was too old, has a record that apps follow.
Invariants: nothing is called done that was not done.
Not here: what is erased (``person_erasure.py``, ``purpose_expiry.py``).
Read next: ``person_erasure.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headwater.log.erasure.erasure_records import ErasureRecord, ErasureRecords
from headwater.log.erasure.log_erasure import ErasedTopic, names_of
from headwater.upkeep.erasure.erasure_certificate import PlaceReport, PlaceState
from headwater.upkeep.erasure.large_value_erasure import forget_large
from headwater.views.lifecycle.erasure_follower import ErasureFollower
from headwater.views.lifecycle.liveness import signs_of
from headwater.views.state.manifest import Manifests

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.log.topic import Topic
    from headwater.views.runtime import AppRuntime

DONE, PENDING, IMPOSSIBLE = PlaceState.DONE, PlaceState.PENDING, PlaceState.IMPOSSIBLE
LOOK_S = 0.2


class ErasureRound:
    """The places of a home. With ``runtime`` the views of that app follow at once."""

    leftover = PENDING  # what a sink's system keeps by itself, which is for its owner to clear
    at_the_source = "delete the person there: what is read from there again is not let in here"

    def __init__(
        self,
        log: Log,
        *,
        runtime: AppRuntime | None = None,
        forget_in_sinks: Callable[[], None] = lambda: None,
        wait_s: float = 60.0,
    ) -> None:
        self.log = log
        self.runtime = runtime
        self.forget_in_sinks = forget_in_sinks
        self.wait_s = wait_s  # for processes that run apps
        self.places: list[PlaceReport] = []

    def note(self, place: str, state: PlaceState, detail: str, rows: int | None = None) -> None:
        """Say what became of a place."""
        self.places.append(PlaceReport(place, state, detail, rows))

    def consumers(self, found: Sequence[ErasedTopic]) -> None:
        """Groups that have read rows."""
        for name in names_of(found):
            groups = [group.name for group in self.log.get_topic(name).groups()]
            if groups:
                self.note(
                    f"groups of {name}",
                    IMPOSSIBLE,
                    f"{', '.join(sorted(groups))} have read rows and keep what they made of them: tell who runs them",
                )

    def captures(self, topics: Sequence[Topic]) -> None:
        """Large values that captures remember by key: they look them up again when they need them."""
        names = [topic.name for topic in topics if topic.settings.captured_by is not None]
        for path, done in forget_large(self.log.home, names).items():
            told = "large values of its tables are forgotten" if done else "a reader keeps its log: run this again"
            self.note(f"capture {path.stem}", DONE if done else PENDING, told)
        if names:
            self.note(f"databases of {', '.join(names)}", IMPOSSIBLE, self.at_the_source)

    def snapshots(self) -> None:
        """Snapshots of aggregates."""
        for path in sorted((self.log.home / "aggregates").glob("*.sqlite")):
            for each in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
                self.log.files.unlink(each, label="erase.remove_snapshots")
            self.note(f"snapshots of {path.stem}", DONE, "removed; aggregates are read from their events")

    # Views and sinks

    def apps(self) -> list[tuple[str, int]]:
        """The apps of the home, with their ticks."""
        return [
            (row["name"], row["tick"]) for row in self.log.catalog.read("SELECT name, tick FROM apps ORDER BY name")
        ]

    def views(self, record: ErasureRecord) -> None:
        """The views and sinks of every app."""
        records = ErasureRecords(self.log.catalog)
        for app, tick in self.apps():
            address = (
                self.runtime.manifests.address() if self.runtime is not None and self.runtime.name == app else None
            )
            if not tick:
                records.followed(app, [record], 0)
                self.note(f"views of {app}", DONE, "it has none yet")
            elif address is not None:
                self.note(
                    f"state of {app}", PlaceState.NOT_COVERED, f"it is at {address}: objects of earlier ticks stay"
                )
            if not tick:
                continue
            if self._runs_elsewhere(app):
                self._await(app, record)
            elif self.runtime is not None and self.runtime.name == app:
                self._follow(self.runtime, record)
            else:
                self.note(f"views of {app}", PENDING, "they follow before the app's next tick: it is not running")

    def _runs_elsewhere(self, app: str) -> bool:
        """Whether another process runs the app, which this one must not shut out."""
        own = self.runtime is not None and self.runtime.name == app and self.runtime._engine is not None
        epoch = Manifests(self.log.catalog, app).epoch()
        return not own and signs_of(self.log.home / "views" / app, epoch).alive

    def _await(self, app: str, record: ErasureRecord) -> None:
        """The process that runs the app corrects its views before its next tick."""
        records, deadline = ErasureRecords(self.log.catalog), time.monotonic() + self.wait_s
        while app not in records.standing(record) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        standing = records.standing(record).get(app)
        told = f"the process that runs it has not followed after {self.wait_s:g} s: ask again"
        if standing is not None:
            told = f"corrected with tick {standing[0]}; earlier ticks are forgotten a minute after it: ask again then"
        if standing is not None and standing[1]:
            told = f"corrected with tick {standing[0]}; every earlier one is forgotten"
        self.note(f"views of {app}", DONE if standing is not None and standing[1] else PENDING, told)
        self._sinks(app, record)

    def _follow(self, runtime: AppRuntime, record: ErasureRecord) -> None:
        with runtime.mapped_errors():
            runtime.tick()  # before which the views are corrected
            self.forget_in_sinks()
            done = ErasureFollower(runtime.engine, runtime.log, runtime.spark, runtime.scratch).forget()
        standing = ErasureRecords(self.log.catalog).standing(record).get(runtime.name)
        told = "a reader keeps the log of a database file: run this again"
        if standing is not None and done:
            told = f"corrected with tick {standing[0]}; every earlier one is forgotten"
        self.note(f"views of {runtime.name}", DONE if standing is not None and done else PENDING, told)
        paused = sorted(runtime.engine.paused)
        if paused:
            self.note(
                f"paused views of {runtime.name}",
                PENDING,
                f"{', '.join(paused)}: they are corrected when they are resumed",
            )
        self._sinks(runtime.name, record)

    def _sinks(self, app: str, record: ErasureRecord) -> None:
        """What the app's sinks have answered."""
        for name, answer in ErasureRecords(self.log.catalog).sinks(app, record).items():
            if answer is None:
                self.note(f"sink {name}", PENDING, "it is cleared when the app has forgotten earlier ticks")
            elif answer[0] is None:
                self.note(f"sink {name}", DONE, "the rows left with the change, and nothing of them is kept")
            else:
                self.note(f"sink {name}", IMPOSSIBLE if answer[1] else self.leftover, answer[0])


def told_of(each: ErasedTopic) -> str:
    """What was done in a topic."""
    done = each.erased
    if not done.rows:
        return "no row of the person"
    parts = [count_of(done.segments, "segment")] if done.segments else []
    parts += [f"{count_of(done.archived, 'file')} of the archive"] if done.archived else []
    return f"{count_of(done.rows, 'row')} in {' and '.join(parts)}"


def count_of(number: int, what: str) -> str:
    """A number with its noun.

    >>> count_of(1, "row"), count_of(1_000, "row")
    ('1 row', '1,000 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
