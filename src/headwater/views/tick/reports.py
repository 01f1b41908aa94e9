"""Tick reports: what a tick did and how long it took.

What it is: ``TickReport`` is what ``app.tick()`` returns; ``TickReports`` keeps the last ones as JSON in the catalog,
for other processes.
Invariants: a report is written after its tick was committed, by the process that committed it, and is worth nothing to
the tick: where it cannot be written the tick is as good as any. Only the last ``KEPT`` are there.
Not here: what is true of a tick (``views/state/manifest.py``).
Read next: ``engine.py``.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.clock import format_us
from headwater.errors import HeadwaterError
from headwater.log.catalog.catalog import Catalog

if TYPE_CHECKING:
    from headwater.views.state.manifest import Frontier
    from headwater.views.tick.evaluate import ViewProgress

logger = logging.getLogger("headwater.views")

KEPT = 300


@dataclass(frozen=True)
class TickReport:
    """What one tick did."""

    tick: int
    rows_in: int
    seconds: float
    views: tuple[ViewProgress, ...] = ()
    frontier: Frontier = field(default_factory=dict)
    behind: int = 0  # rows in the log that this tick did not take
    paused: tuple[str, ...] = ()  # views that failed in this tick, and those that read them

    @property
    def plans_reused(self) -> int:
        """Queries that ran a plan which an earlier tick had made."""
        return sum(each.plans_reused for each in self.views)

    @property
    def plans_made(self) -> int:
        """Queries that Spark planned in this tick."""
        return sum(each.plans_made for each in self.views)

    @property
    def jobs(self) -> int:
        """Queries that were Spark jobs; the others ran on the driver's thread."""
        return sum(each.jobs for each in self.views)

    @property
    def moved(self) -> bool:
        """Whether there was anything to do."""
        return bool(self.views) or self.rows_in > 0

    def to_json(self, *, idle: bool = True) -> dict[str, Any]:
        """The report as JSON values, without the frontier; ``idle``: with views that stood still."""
        return {
            "tick": self.tick,
            "rows_in": self.rows_in,
            "seconds": round(self.seconds, 4),
            "behind": self.behind,
            "views": [
                {
                    "view": each.view,
                    "changes": each.changes,
                    "rows_read": each.rows_read,
                    "actions": each.actions,
                    "plans_reused": each.plans_reused,
                    "jobs": each.jobs,
                    "seconds": round(each.seconds, 4),
                }
                for each in self.views
                if idle or not each.idle
            ],
        }


class TickReports:
    """The reports of one app in a home's catalog.

    >>> import headwater as hw, tempfile
    >>> reports = TickReports(hw.Log(tempfile.mkdtemp()).local.catalog, "shop")
    >>> reports.save(TickReport(1, rows_in=7, seconds=0.25), 0)
    >>> reports.last(10)
    [{'tick': 1, 'rows_in': 7, 'seconds': 0.25, 'behind': 0, 'views': [], 'at': '1970-01-01T00:00:00.000Z'}]
    """

    def __init__(self, catalog: Catalog, app: str) -> None:
        self.catalog = catalog
        self.app = app

    def save(self, report: TickReport, committed_us: int) -> None:
        """Keep a report; forget those that are too old."""
        text = json.dumps({**report.to_json(idle=False), "at": format_us(committed_us)}, separators=(",", ":"))
        try:
            with self.catalog.write() as db:
                db.execute(
                    "INSERT OR REPLACE INTO tick_reports (app, tick, report) VALUES (?, ?, ?)",
                    (self.app, report.tick, text),
                )
                db.execute("DELETE FROM tick_reports WHERE app = ? AND tick <= ?", (self.app, report.tick - KEPT))
        except HeadwaterError as error:  # the tick is committed, and that is what counts
            logger.warning("the report of tick %d was not kept: %s", report.tick, error.message)

    def last(self, count: int) -> list[dict[str, Any]]:
        """The last reports, the latest at the end."""
        rows = self.catalog.read(
            "SELECT report FROM tick_reports WHERE app = ? ORDER BY tick DESC LIMIT ?", (self.app, count)
        )
        return [json.loads(row["report"]) for row in reversed(rows)]


@dataclass(frozen=True)
class PlanCounts:
    """How many Spark queries a view ran in some ticks, with plans reused and with plans made, and how many as jobs."""

    ticks: int = 0
    reused: int = 0
    made: int = 0
    jobs: int = 0

    def __str__(self) -> str:
        """A sentence.

        >>> print(PlanCounts(ticks=40, reused=79, made=1, jobs=2))
        80 Spark queries in the last 40 ticks, 79 with a reused plan, 1 planned; 78 on the driver, 2 as jobs
        """
        of = "tick" if self.ticks == 1 else f"{self.ticks} ticks"
        total = self.reused + self.made
        queries = "query" if total == 1 else "queries"
        plans = f"{self.reused:,} with a reused plan, {self.made:,} planned"
        ways = f"{total - self.jobs:,} on the driver, {self.jobs:,} as {'a job' if self.jobs == 1 else 'jobs'}"
        return f"{total:,} Spark {queries} in the last {of}, {plans}; {ways}"


def plan_counts(reports: list[dict[str, Any]], view: str) -> PlanCounts:
    """The plans of a view, of all these reports.

    >>> views = [{"view": "revenue", "actions": 3, "plans_reused": 2, "jobs": 1}]
    >>> plan_counts([{"tick": 1, "views": views}, {"tick": 2, "views": []}], "revenue")
    PlanCounts(ticks=1, reused=2, made=1, jobs=1)
    """
    found = [each for report in reports for each in report["views"] if each["view"] == view]
    reused = sum(each["plans_reused"] for each in found)
    actions, jobs = (sum(each[what] for each in found) for what in ("actions", "jobs"))
    return PlanCounts(len(found), reused, actions - reused, jobs)
