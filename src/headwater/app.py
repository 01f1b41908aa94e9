"""An app: what a user declares, runs and asks.

What it is: ``App``: running its views once or for good, rebuilding them, backups, erasure, queries in Spark's SQL,
verifying.
Invariants: making an ``App`` touches no disk and starts nothing; the home is opened by the first declaration, Spark by
the first tick. Reading never takes an app over: it works while another process runs it.
Not here: declaring (``app_declarations.py``), the log itself (``log/home.py``), what a tick does
(``views/tick/engine.py``).
Read next: ``app_declarations.py``, ``views/view.py``, ``views/tick/engine.py``.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from headwater.app_declarations import AppDeclarations, run_on
from headwater.durations import Duration, to_seconds, to_timeout
from headwater.errors import InvalidDeclaration
from headwater.log.token import AtLeast, Token
from headwater.notebook import NotebookCard, card_html

if TYPE_CHECKING:
    from headwater.capture.backfill import BackfillProgress
    from headwater.log.commits.undo import UndoReport
    from headwater.log.contract import EventTransaction
    from headwater.log.producer import Producer
    from headwater.log.schema.event_metadata import Metadata
    from headwater.sinks.runner.sink_status import SinkStatus
    from headwater.upkeep.erasure.erasure_certificate import ErasureCertificate
    from headwater.upkeep.erasure.purpose_expiry import ExpiryReport
    from headwater.views.lifecycle.rebuild import RebuildReport
    from headwater.views.lifecycle.rebuild_progress import RebuildProgress
    from headwater.views.lifecycle.verification import Difference
    from headwater.views.serving.snapshot import QueryReply
    from headwater.views.tick.reports import TickReport

BACKUP_RATE = 50_000_000  # bytes a second: appends meanwhile lose less than a tenth


class App(AppDeclarations):
    """An app over one home, whose log is in the home, or at an address: ``log="kafka://host:9092"``.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> orders = app.topic("orders", "order_id BIGINT, amount DOUBLE", key="order_id")
    >>> token = orders.append([{"order_id": 1, "amount": 9.5}])
    >>> str(token)
    'orders:0=1'
    """

    # Running

    def tick(self, *, rows_max: int | None = None, sinks: bool = True, accept_loss: bool = False) -> TickReport:
        """Advance all views over what the log holds (at most ``rows_max`` rows of each topic), and return.

        Then the sinks are brought to this tick, as far as they answer; with ``sinks=False``, or while ``start`` leads
        them along in the background, that is not waited for. Rows that retention dropped before a tick took them are an
        error; with ``accept_loss`` the tick goes on without them, and its manifest and an alert say so.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> token = users.upsert([{"id": 1, "country": "DE"}, {"id": 2, "country": "DE"}])
        >>> app.tick().rows_in
        2
        >>> app.sql("SELECT * FROM countries", at_least=token).to_pylist()
        [{'country': 'DE', 'users': 2}]
        """
        report = self._runtime.tick(rows_max=rows_max, accept_loss=accept_loss)
        self._services.ticked(sync=sinks)
        return report

    def transaction(
        self,
        *,
        request_id: str | None = None,
        producer: Producer | None = None,
        wait: Literal["views"] | None = None,
        timeout: Duration = "30 seconds",
        after: Token | str | None = None,
        metadata: Metadata | None = None,
    ) -> EventTransaction:
        """Rows of several topics and tables, positions and acknowledgements, all or none: see ``Transaction``.

        With ``wait="views"`` the block ends when the app's views contain the rows, at most ``timeout`` later.
        The rows are committed in any case; ``NotYetCovered`` says that the views are behind.
        ``after``: wait first until this home holds what a token names (``Log.wait_for``).
        ``metadata``: of all its rows, see ``Metadata``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> orders, bills = app.topic("orders", "n INT"), app.topic("bills", "n INT")
        >>> with app.transaction(request_id="order-1") as t:
        ...     t.append(orders, [{"n": 1}])
        ...     t.append(bills, [{"n": 1}])
        >>> str(t.token)
        'bills:0=1;orders:0=1'
        """
        if wait not in (None, "views"):
            raise InvalidDeclaration(f"wait cannot be {wait!r}", hint='Use wait="views", or leave it out.')
        seconds = to_seconds(timeout, what="timeout")
        begun = self.log.transaction(request_id=request_id, producer=producer, after=after, metadata=metadata)
        if wait is not None:
            begun.on_commit(lambda token: self._runtime.covering(token, seconds))
        return begun

    def undo(
        self,
        *tables: str,
        since: dt.datetime,
        until: dt.datetime,
        producer: str | None = None,
        actor: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        by: str | None = None,
    ) -> UndoReport:
        """Take back what a producer or an actor changed in tables from ``since`` up to ``until``: see ``docs/why.md``.

        Inverse events are appended in one transaction: the row that each key had before, or a tombstone. A key that
        somebody else changed afterwards is a conflict and stays; with ``force`` it is restored too. ``dry_run`` only
        tells. The same call again is recognised. ``by``: who undoes it.

        >>> import datetime as dt, headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = users.upsert([{"id": 1, "country": "DE"}])
        >>> begin = dt.datetime.now(dt.UTC)
        >>> wrong = [{"id": 1, "country": "XX"}, {"id": 2, "country": "XX"}]
        >>> _ = users.upsert(wrong, metadata=hw.Metadata(actor="bot"))
        >>> report = app.undo("users", actor="bot", since=begin, until=dt.datetime.now(dt.UTC))
        >>> [(change.action, change.row) for change in report.changes]
        [('upsert', {'id': 1, 'country': 'DE'}), ('delete', {'id': 2})]
        >>> list(users.rows())
        [{'id': 1, 'country': 'DE'}]
        """
        from headwater.log.commits.undo import UndoScope, undo
        from headwater.log.contract import Capability, require

        require(self.log, Capability.CONDITIONAL_APPENDS, "undo")
        scope = UndoScope(since, until, producer, actor)
        return undo(self.log.local, tables, scope, force=force, dry_run=dry_run, by=by)

    def sync_sinks(self) -> list[SinkStatus]:
        """Bring every sink to the last committed tick, those that were stopped too; returns how each is.

        >>> import headwater as hw, tempfile
        >>> hw.App("shop", home=tempfile.mkdtemp()).sync_sinks()
        []
        """
        return self.sinks.sync()

    def backup(
        self,
        to: str,
        *,
        every: Duration = "1 day",
        keep: str | None = None,
        drill: Duration | None = None,
        key_file: str | os.PathLike[str] | None = None,
        key_command: str | None = None,
        rate: int | None = BACKUP_RATE,
    ) -> None:
        """Declare that the home is backed up while the app runs, to a folder or ``s3://…``. See ``docs/backup.md``.

        ``keep="7d,4w,12m"`` prunes after each backup. ``drill="1 week"``: so often backups are restored and verified.
        ``key_file`` or ``key_command`` gives the key that they are encrypted with: see ``docs/encryption.md``.
        ``rate``: bytes that are copied in a second, at most; None: as many as can be.

        >>> import headwater as hw, tempfile
        >>> hw.App("shop", home=tempfile.mkdtemp()).backup("/backup/shop", every="1 hour", keep="24h,7d", drill="1 day")
        """
        from headwater.encryption.encryption_key import KeySource
        from headwater.upkeep.backup.backup_schedule import BackupPlan

        if run_on.get() is None:  # a restored copy is not backed up
            seconds = None if drill is None else to_seconds(drill, what="drill")
            key = KeySource.of(key_file, key_command)
            self._services.backups[to] = BackupPlan(to, to_seconds(every, what="every"), keep, seconds, key, rate)

    def erase(
        self,
        *,
        dry_run: bool = False,
        backups: Sequence[str] = (),
        key_file: str | os.PathLike[str] | None = None,
        key_command: str | None = None,
        markers: Sequence[str] = (),
        **person: Any,
    ) -> ErasureCertificate:
        """Erase a person from the log, the views and the sinks of this app; see ``docs/erasure.md``.

        The person is given by a subject that topics declare: ``erase(user_id=7)``. ``dry_run``: only tell.
        ``backups``: places where backups are rewritten, beside those that the app declares or the home has made, with
        ``key_file`` or ``key_command`` if they are encrypted. ``markers``: texts of the person that are searched for at
        the end.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> of_users = {"id": hw.Personal("user_id"), "name": hw.Personal("user_id", by="id")}
        >>> users = app.table("users", "id BIGINT, name STRING", key="id", privacy=of_users)
        >>> _ = users.upsert([{"id": 7, "name": "Ada"}])
        >>> [str(place.state) for place in app.erase(user_id=7, dry_run=True).places]
        ['would be erased']
        """
        from headwater.encryption.encryption_key import KeySource

        key = KeySource.of(key_file, key_command)
        return self._services.erase(person, dry_run=dry_run, backups=backups, key=key, markers=markers)

    def expire(self, *, dry_run: bool = False) -> ExpiryReport:
        """Blank what is kept longer than its purposes, everywhere: what ``run`` and ``start`` do once a day.

        ``dry_run``: only tell. See ``docs/privacy.md``.

        >>> import datetime as dt, headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> address = hw.Personal("user_id", by="user_id", purpose="shipping")
        >>> of_users = {"user_id": hw.Personal("user_id"), "address": address}
        >>> schema = "user_id BIGINT, address STRING, at TIMESTAMP"
        >>> orders = app.topic("orders", schema, event_time="at", privacy=of_users)
        >>> app.purpose("shipping", keep="180 days")
        >>> _ = orders.append([{"user_id": 7, "address": "Main Street", "at": dt.datetime(2020, 1, 1)}])
        >>> app.expire().rows, [row["address"] for row in orders.rows()]
        (1, [None])
        """
        return self._services.expire(dry_run=dry_run)

    def run(
        self,
        *,
        timeout: Duration | None = None,
        on_tick: Callable[[TickReport], None] | None = None,
        accept_loss: bool = False,
    ) -> None:
        """Keep all views up to date until interrupted, or for ``timeout`` (seconds, or a text such as "1 hour").

        What was declared beside them runs too: captures, inlets, sinks. ``accept_loss``: see ``tick``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> _ = users.upsert([{"id": 1, "country": "DE"}])
        >>> app.run(timeout="1 second", on_tick=lambda report: print(f"tick {report.tick}: {report.rows_in} rows"))
        tick 1: 1 rows
        """
        seconds = to_timeout(timeout)
        with self._services.running(on_tick) as after_tick:
            self._runtime.run(timeout=seconds, on_tick=after_tick, accept_loss=accept_loss)

    def start(self, *, on_tick: Callable[[TickReport], None] | None = None) -> None:
        """Like ``run``, in the background; ``stop`` ends it.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> countries = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> app.start()
        >>> token = users.upsert([{"id": 1, "country": "DE"}])
        >>> list(countries.rows(at_least=token))
        [{'country': 'DE', 'users': 1}]
        >>> app.stop()
        """
        self._runtime.start(on_tick=self._services.start(on_tick))

    def stop(self) -> None:
        """End what ``start`` began, after the running tick.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> _ = app.view("one", "SELECT 1 AS one")
        >>> app.start()
        >>> app.stop()
        """
        self._services.stop_inflow()
        if self._made_runtime is not None:
            self._made_runtime.stop()
        self._services.stop()

    def capture(
        self,
        *,
        until: str | None = None,
        timeout: Duration | None = None,
        on_progress: Callable[[BackfillProgress], None] | None = None,
    ) -> None:
        """Follow the databases of captured tables until interrupted, or for ``timeout`` (seconds, or "1 hour").

        ``until="caught up"`` ends it when everything that is committed now is in the log: for tests, notebooks, cron.
        ``run`` and ``start`` do this by themselves, in the background.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> messages = app.topic("dbz.users", "value STRING")
        >>> source = hw.capture.Debezium("dbz.users", schema="id BIGINT, name STRING", key="id")
        >>> users = app.table("users", source=source)
        >>> _ = messages.append([{"value": '{"op": "c", "after": {"id": 1, "name": "Ada"}}'}])
        >>> app.capture(until="caught up")
        >>> users.get(1)
        [{'id': 1, 'name': 'Ada'}]
        """
        self.captures.run(self.log, until=until, timeout=to_timeout(timeout), on_progress=on_progress)

    def rebuild(self, name: str, *, on_progress: Callable[[RebuildProgress], None] | None = None) -> RebuildReport:
        """Recompute a view from what its inputs hold, beside the live one, and swap it in with one tick.

        Until then the live view answers, and ``start`` goes on ticking. ``on_progress`` is called some times a second.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> _ = users.upsert([{"id": 1, "country": "DE"}])
        >>> app.tick().tick
        1
        >>> report = app.rebuild("countries")
        >>> report.tick, report.changes
        (2, {'countries': 0})
        """
        self.get_view(name)  # an unknown one is refused before Spark is started
        return self._runtime.rebuild(name, on_progress=on_progress)

    # Reading

    def sql(self, sql: str, *, at_least: AtLeast | None = None, timeout: Duration = "30 seconds") -> pa.Table:
        """Run a query in Spark's SQL over views, tables, topics and attached stores, as of one tick.

        Spark runs it: seconds for the first one, then a Spark job each. What a view holds is read without Spark by
        ``View.get``, ``rows``, ``to_arrow`` and ``to_pandas``; ``headwater query`` asks the serving store, in SQLite's
        dialect, without ``--spark``. The tick is the last one, or one that covers ``at_least``, for which it
        waits up to ``timeout`` (a text or seconds).

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = users.upsert([{"id": 1, "country": "DE"}])
        >>> app.sql("SELECT upper(country) AS country FROM users").to_pylist()
        [{'country': 'DE'}]
        """
        return self.sql_reply(sql, at_least=at_least, timeout=timeout).table

    def sql_reply(
        self, sql: str, *, at_least: AtLeast | None = None, timeout: Duration = "30 seconds", push_down: bool = True
    ) -> QueryReply:
        """As ``sql``, with what was fetched for it from attached stores. See ``docs/federation.md``.

        ``push_down=False`` fetches whole tables and filters here.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> app.sql_reply("SELECT 1 AS one").fetched
        ()
        """
        token, seconds = self._runtime.awaited(at_least, to_seconds(timeout, what="timeout"))
        return self._runtime.reply(sql, at_least=token, timeout=seconds, push_down=push_down)

    def verify(self) -> list[Difference]:
        """Compute every view from the log alone and compare; see ``View.verify``. One entry a view that has run.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> _ = users.upsert([{"id": 1, "country": "DE"}])
        >>> _ = app.tick()
        >>> [(found.view, found.equal) for found in app.verify()]
        [('countries', True)]
        """
        return self._runtime.verify()

    # Ending

    def close(self) -> None:
        """Stop what runs, and close the log, if it was opened. Spark stays, for the next app of this process.

        >>> import headwater as hw, tempfile
        >>> with hw.App("shop", home=tempfile.mkdtemp()) as app:  # or: app.close()
        ...     _ = app.topic("orders", "amount DOUBLE").append([{"amount": 9.5}])
        """
        self._services.close()
        for each in self.aggregates.values():
            each.close()
        self._stop_runtime()
        if self._log is not None:
            self._log.close()
            self._log = None

    def __enter__(self) -> App:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return card_html(f"App {self.name}", self._card)

    def _card(self) -> NotebookCard:
        title = f"App {self.name}"
        facts: list[tuple[str, object]] = [("home", self.home)]
        if self._log is None:  # showing an app makes no home
            return NotebookCard(title, [*facts, ("log", "not open")])
        runtime = self._runtime
        topics = [
            [
                "table" if topic.settings.key or topic.row().is_multiset else "topic",
                topic.name,
                sum(topic.end_offsets().values()) - sum(topic.start_offsets().values()),
            ]
            for topic in self.log.topics()
        ]
        views = [["view", view.name, runtime.served_count(view.name)] for view in self.views]
        facts += [("tick", runtime.manifests.tick()), ("sinks", len(self.sinks)), ("inlets", len(self.inlets))]
        return NotebookCard(title, facts, ["", "name", "rows or records"], [*topics, *views])

    def __repr__(self) -> str:
        return f"App({self.name!r}, home={str(self.home)!r})"
