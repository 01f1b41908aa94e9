"""A view: the handle that users hold.

What it is: what a declared view can be asked: its plan, its rows, its changes, its history.
Invariants: asking changes nothing and takes no app over.
Not here: declaring (``app.py``), maintaining (``views/tick/engine.py``).
Read next: ``views/serving/change_feed.py``, ``views/lifecycle/verification.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.log.token import Token

if TYPE_CHECKING:
    from headwater.views.compiler.plan import ViewPlan
    from headwater.views.lifecycle.diagnosis import Findings
    from headwater.views.lifecycle.rebuild import RebuildReport
    from headwater.views.lifecycle.rebuild_progress import RebuildProgress


class View:
    """One view of an app.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> _ = app.table("users", "id BIGINT, country STRING", key="id")
    >>> app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country").columns
    ['country', 'users']
    """

    def __init__(self, app: Any, name: str) -> None:
        self.app = app
        self.name = name

    @property
    def declared(self) -> Any:
        """The declaration: SQL or function, and where it stands."""
        return self.app._declared[self.name]

    @property
    def plan(self) -> ViewPlan | None:
        """How it is kept up to date, as far as that is known without Spark: None for a view by function.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> _ = app.table("users", "id BIGINT, country STRING", key="id")
        >>> app.view("countries", "SELECT DISTINCT country FROM users").plan.reads
        ('users',)
        """
        found: ViewPlan | None = self.app._plans[self.name]
        return found

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        if self.plan is not None:
            return [column.name for column in self.plan.columns]
        return list(self.app.operation.prepared.views[self.name].schema.names)

    def rows(self, *, at_least: Token | None = None, timeout: float = 30.0) -> pa.Table:
        """Its rows as of the last tick, or of one that covers ``at_least``."""
        contents = self.app.operation.contents(at_least=at_least, timeout=timeout, views=[self.name])
        return contents.frame(self.name).toArrow()

    def get(self, *key: Any, **columns: Any) -> list[dict[str, Any]]:
        """The rows with this key, or with these values, from the serving store: no Spark, under a millisecond."""
        found: list[dict[str, Any]] = self.app.operation.serving.get(self.name, *key, **columns)
        return found

    def changes(
        self, from_tick: int | None = None, *, follow: bool = False, timeout: float | None = None
    ) -> Iterator[pa.Table]:
        """What changed, one Arrow table for each tick that changed something.

        Each row has ``_change_type`` (insert, delete, update_preimage, update_postimage), ``_commit_version`` (the
        tick) and ``_commit_timestamp``. Remember the last ``_commit_version`` and go on at the next one.
        """
        found: Iterator[pa.Table] = self.app.operation.feed(self.name).changes(
            from_tick, follow=follow, timeout=timeout
        )
        return found

    def history(self, as_of: int | dt.datetime) -> pa.Table:
        """Its rows as they were after a tick, or at a moment, as far back as ticks are kept."""
        return self.app.operation.history(self.name, as_of)

    def watermark(self) -> str | None:
        """The event time before which its last tick expects nothing more; None: it reads no topic that has one.

        >>> import datetime as dt, headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> clicks = app.topic("clicks", "at TIMESTAMP", event_time="at")
        >>> minutes = app.view("minutes", "SELECT count(*) AS n FROM clicks GROUP BY window(at, '1 minute')")
        >>> _ = clicks.append([{"at": dt.datetime(2026, 1, 1, 12)}])
        >>> app.tick().tick, minutes.watermark()
        (1, '2026-01-01T12:00:00.000Z')
        """
        from headwater.views.event_time.late_rows import shown_watermark

        return shown_watermark(self.app.operation.manifests.current(), self.name)

    def stragglers(self) -> list[dict[str, Any]]:
        """How many rows came too late for it, by topic and producer. The rows are in the topic ``VIEW.late``."""
        from headwater.views.event_time.late_rows import describe

        manifest = self.app.operation.manifests.current()
        names = {topic.name: self.app.log.registry.producer_names(topic.id) for topic in self.app.log.topics()}
        return describe(manifest, self.name, names)

    @property
    def paused(self) -> dict[str, Any] | None:
        """Why, since when and at which tick it stands still; None while it runs. See ``docs/failures.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp(), on_error="pause")
        >>> _ = app.table("users", "id BIGINT, country STRING", key="id")
        >>> app.view("countries", "SELECT DISTINCT country FROM users").paused is None
        True
        """
        from headwater.views.tick.pausing import paused_in

        found = paused_in(self.app.operation.manifests.current()).get(self.name)
        return None if found is None else found.told(self.name)

    def resume(self, *, on_progress: Callable[[RebuildProgress], None] | None = None) -> RebuildReport:
        """After a pause: compute it anew from what its inputs hold now, with the paused views that wait for it."""
        report: RebuildReport = self.app.operation.resume(self.name, on_progress=on_progress)
        return report

    def diagnose(self, *, limit: int = 10) -> Findings:
        """Find the records that it cannot be computed over, of the tick that failed, or would be next."""
        found: Findings = self.app.operation.diagnose(self.name, limit=limit)
        return found

    def explain(self) -> str:
        """Its stages: what each does, its kind, and what it costs per tick."""
        from headwater.views.explain import explain

        return explain(self.plan or self.app.operation.prepared.views[self.name].plan)

    def __repr__(self) -> str:
        columns = ", ".join(column.name for column in self.plan.columns) if self.plan is not None else "…"
        return f"View({self.name!r}, columns={columns})"
