"""A view: the handle that users hold.

What it is: what a declared view can be asked: its plan, its rows, its changes, its history, whether it is right.
Invariants: asking changes nothing and takes no app over. Rows are read without Spark, unless the view is not served.
Not here: declaring (``declared_views.py``), maintaining (``views/tick/engine.py``).
Read next: ``views/serving/serving_store.py``, ``views/serving/change_feed.py``, ``views/lifecycle/verification.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.durations import Duration, to_seconds, to_timeout
from headwater.errors import Misuse
from headwater.log.schema.ddl import parse_view_ddl, spark_type
from headwater.log.schema.row_conversion import to_rows
from headwater.log.token import AtLeast
from headwater.notebook import NotebookCard, card_html

if TYPE_CHECKING:
    import pandas as pd

    from headwater.views.compiler.plan import ViewPlan
    from headwater.views.declared_views import DeclaredViews
    from headwater.views.lifecycle.diagnosis import Findings
    from headwater.views.lifecycle.rebuild import RebuildReport
    from headwater.views.lifecycle.rebuild_progress import RebuildProgress
    from headwater.views.lifecycle.verification import Difference
    from headwater.views.provenance.provenance import Provenance
    from headwater.views.runtime import AppRuntime
    from headwater.views.view_declaration import ViewDeclaration


class View:
    """One view of an app.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> _ = app.table("users", "id BIGINT, country STRING", key="id")
    >>> app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country").columns
    ['country', 'users']
    """

    def __init__(self, views: DeclaredViews, name: str) -> None:
        self._views = views
        self.name = name

    @property
    def declared(self) -> ViewDeclaration:
        """The declaration: SQL or function, and where it stands.

        >>> import headwater as hw, tempfile
        >>> hw.App("shop", home=tempfile.mkdtemp()).view("one", "SELECT 1 AS one").declared.sql
        'SELECT 1 AS one'
        """
        return self._views.declaration(self.name)

    @property
    def plan(self) -> ViewPlan | None:
        """How it is kept up to date, as far as that is known without Spark: None for a view by function.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> _ = app.table("users", "id BIGINT, country STRING", key="id")
        >>> app.view("countries", "SELECT DISTINCT country FROM users").plan.reads
        ('users',)
        """
        return self._views.plan(self.name)

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        if self.plan is not None:
            return [column.name for column in self.plan.columns]
        return list(self._runtime.prepared.views[self.name].schema.names)

    @property
    def _runtime(self) -> AppRuntime:
        return self._views.runtime

    # Reading

    def get(self, *key: Any, **columns: Any) -> list[dict[str, Any]]:
        """The rows with this key, or with these values, from the serving store: no Spark, under a millisecond.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> countries = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> _ = users.upsert([{"id": 1, "country": "DE"}, {"id": 2, "country": "FR"}])
        >>> _ = app.tick()
        >>> countries.get("DE") == countries.get(country="DE") == [{"country": "DE", "users": 1}]
        True
        """
        return self._runtime.serving.get(self.name, *key, **columns)

    def to_arrow(self, *, at_least: AtLeast | None = None, timeout: Duration = "30 seconds") -> pa.Table:
        """All its rows as an Arrow table, as of the last tick, or of one that covers ``at_least``, within ``timeout``.

        ``at_least`` is a token, or a position in a captured database: ``hw.lsn("0/16B3748")``, ``hw.gtid("0-1-42")``.

        They come from the serving store, without Spark. A view that was declared with ``serve=False`` is not there:
        Spark reads it, which takes seconds the first time. That depends on the declaration alone.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> countries = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> token = users.upsert([{"id": 1, "country": "DE"}, {"id": 2, "country": "DE"}])
        >>> _ = app.tick()
        >>> countries.to_arrow(at_least=token).to_pydict()
        {'country': ['DE'], 'users': [2]}
        """
        read = self._runtime.served_rows if self.declared.serve else self._runtime.spark_rows
        token, seconds = self._runtime.awaited(at_least, to_seconds(timeout, what="timeout"))
        return read(self.name, at_least=token, timeout=seconds)

    def to_pandas(self, *, at_least: AtLeast | None = None, timeout: Duration = "30 seconds") -> pd.DataFrame:
        """All its rows as a pandas DataFrame (needs the extra ``pandas``); see ``to_arrow``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> countries = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> _ = users.upsert([{"id": 1, "country": "DE"}])
        >>> _ = app.tick()
        >>> countries.to_pandas()
          country  users
        0      DE      1
        """
        return self.to_arrow(at_least=at_least, timeout=timeout).to_pandas()

    def rows(self, *, at_least: AtLeast | None = None, timeout: Duration = "30 seconds") -> Iterator[dict[str, Any]]:
        """All its rows as dicts, as ``Topic.rows`` and ``Table.rows`` give them; see ``to_arrow``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> countries = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> token = users.upsert([{"id": 1, "country": "DE"}])
        >>> _ = app.tick()
        >>> list(countries.rows(at_least=str(token)))
        [{'country': 'DE', 'users': 1}]
        """
        for batch in self.to_arrow(at_least=at_least, timeout=timeout).to_batches():
            yield from to_rows(batch)

    def verify(self) -> Difference:
        """Compute it from the log alone, by Spark, and compare with what the ticks made of it.

        ``equal`` says that they agree; else ``missing`` and ``surplus`` show the first differences. This reads
        everything that the view reads: a check for now and then.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> countries = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> _ = users.upsert([{"id": 1, "country": "DE"}])
        >>> _ = app.tick()
        >>> found = countries.verify()
        >>> found.equal, found.rows
        (True, 1)
        """
        found = self._runtime.verify(self.name)
        if not found:
            raise Misuse(
                f'view "{self.name}" has nothing to verify: no tick has computed it as it is declared',
                hint="Advance the app: app.tick(), or headwater run APP.py.",
                view=self.name,
            )
        return found[0]

    def changes(
        self, from_tick: int | None = None, *, follow: bool = False, timeout: Duration | None = None
    ) -> Iterator[pa.Table]:
        """What changed, one Arrow table for each tick that changed something.

        Each row has ``_change_type`` (insert, delete, update_preimage, update_postimage), ``_commit_version`` (the
        tick) and ``_commit_timestamp``. Remember the last ``_commit_version`` and go on at the next one. With
        ``follow`` it goes on until nothing has changed for ``timeout`` (seconds, or "1 minute").

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> countries = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> _ = users.upsert([{"id": 1, "country": "DE"}])
        >>> _ = app.tick()
        >>> [change] = [row for table in countries.changes() for row in table.to_pylist()]
        >>> change["_change_type"], change["_commit_version"], change["country"], change["users"]
        ('insert', 1, 'DE', 1)
        """
        return self._runtime.feed(self.name).changes(from_tick, follow=follow, timeout=to_timeout(timeout))

    def history(self, as_of: int | dt.datetime) -> pa.Table:
        """Its rows as they were after a tick, or at a moment, as far back as ticks are kept. Spark reads them.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> countries = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> for country in ("DE", "FR"):
        ...     _ = users.upsert([{"id": 1, "country": country}])
        ...     _ = app.tick()
        >>> countries.history(as_of=1).to_pylist()
        [{'country': 'DE', 'users': 1}]
        """
        return self._runtime.history(self.name, as_of)

    def why(self, *key: Any, at_tick: int | None = None, limit: int = 20, **columns: Any) -> Provenance:
        """The input events behind the row with this key, or with these values: stage by stage, down to topics.

        Of each topic the first ``limit`` events are shown, all are counted. ``at_tick``: as of an earlier tick that
        history covers. Spark computes it; see ``docs/why.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> countries = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> _ = users.upsert([{"id": 1, "country": "DE"}, {"id": 2, "country": "FR"}])
        >>> _ = app.tick()
        >>> [event] = countries.why("DE").events
        >>> str(event), event.row
        ('users[0]@0', {'id': 1, 'country': 'DE'})
        """
        from headwater.views.provenance.explanations import explained

        return explained(self._runtime, self.name, key, columns, at_tick=at_tick, limit=limit)

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

        return shown_watermark(self._runtime.manifests.current(), self.name)

    def late_rows(self) -> list[dict[str, Any]]:
        """How many rows came too late for it, by topic and producer. The rows are in the topic ``VIEW.late``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> _ = app.topic("clicks", "at TIMESTAMP", event_time="at")
        >>> query = "SELECT count(*) AS n FROM clicks GROUP BY window(at, '1 minute')"
        >>> app.view("minutes", query, late="drop").late_rows()
        []
        """
        from headwater.views.event_time.late_rows import describe

        manifest = self._runtime.manifests.current()
        names = {topic.name: topic.producer_names() for topic in self._views.log.topics()}
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

        found = paused_in(self._runtime.manifests.current()).get(self.name)
        return None if found is None else found.describe(self.name)

    def resume(self, *, on_progress: Callable[[RebuildProgress], None] | None = None) -> RebuildReport:
        """After a pause: recompute it over the rows of the last tick, with the paused views that wait for it.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp(), on_error="pause")
        >>> orders = app.table("orders", "id BIGINT, amount INT, parts INT", key="id")
        >>> shares = app.view("shares", "SELECT id, amount / parts AS share FROM orders")
        >>> _ = orders.upsert([{"id": 1, "amount": 6, "parts": 0}])
        >>> _ = app.tick()
        >>> shares.paused["because"]
        ['shares']
        >>> _ = orders.upsert([{"id": 1, "amount": 6, "parts": 2}])
        >>> _ = app.tick()
        >>> _ = shares.resume()
        >>> shares.paused, shares.get(id=1)
        (None, [{'id': 1, 'share': 3.0}])
        """
        return self._runtime.resume(self.name, on_progress=on_progress)

    def diagnose(self, *, limit: int = 10) -> Findings:
        """Find the records that it cannot be computed over, of the tick that failed, or would be next.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp(), on_error="pause")
        >>> orders = app.table("orders", "id BIGINT, amount INT, parts INT", key="id")
        >>> shares = app.view("shares", "SELECT id, amount / parts AS share FROM orders")
        >>> _ = orders.upsert([{"id": 1, "amount": 6, "parts": 2}, {"id": 2, "amount": 6, "parts": 0}])
        >>> _ = app.tick()
        >>> [(place, row)] = shares.diagnose().culprits[0].records
        >>> str(place), row["parts"]
        ('orders[0]@1', 0)
        """
        return self._runtime.diagnose(self.name, limit=limit)

    def explain(self) -> str:
        """Its stages: what each does, its kind, and what it costs per tick.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> countries = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> countries.explain().splitlines()[0]
        'view countries: a tick costs the groups touched'
        """
        from headwater.views.explain import explain

        return explain(self.plan or self._runtime.prepared.views[self.name].plan)

    def _repr_html_(self) -> str:
        return card_html(f"View {self.name}", self._card)

    def _card(self) -> NotebookCard:
        title, facts = f"View {self.name}", [("declared at", self.declared.location)]
        columns = [[column.name, ""] for column in self.plan.columns] if self.plan is not None else []
        if not self._views.is_open:  # showing opens nothing
            return NotebookCard(title, [*facts, ("log", "not open")], ["column", "type"], columns)
        manifest = self._runtime.manifests.current()
        known = manifest.views.get(self.name)
        if known is None:
            return NotebookCard(title, [*facts, ("tick", "not computed yet")], ["column", "type"], columns)
        columns = [[field.name, spark_type(field.type)] for field in parse_view_ddl(known["columns"])]
        more: list[tuple[str, object]] = [("tick", manifest.tick)]
        if self.declared.serve:
            more.append(("rows", self._runtime.served_count(self.name)))
        if (paused := self.paused) is not None:
            more.append(("paused", paused["reason"]))
        return NotebookCard(title, [*facts, *more], ["column", "type"], columns)

    def __repr__(self) -> str:
        columns = ", ".join(column.name for column in self.plan.columns) if self.plan is not None else "…"
        return f"View({self.name!r}, columns={columns})"
