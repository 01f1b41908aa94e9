"""An app: what a user declares.

What it is: a name and a home, and what is declared in it: topics, tables, views, sinks, inlets; running and asking it.
Invariants: making an ``App`` touches no disk and starts nothing; the home is opened by the first declaration, Spark by
the first tick. A declaration that makes no sense is refused at once, with the user's line.
Not here: the log itself (``log/home.py``), what a tick does (``views/tick/engine.py``), how sinks follow (``sinks/``).
Read next: ``views/tick/engine.py``, ``log/topic.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.app_services import AppServices
from headwater.errors import DeclarationConflict, InvalidDeclaration, InvalidView, UnknownView
from headwater.hints import suggestion
from headwater.log.home import Log
from headwater.log.table import Table, declare_table
from headwater.log.token import Token
from headwater.log.topic import Topic
from headwater.log.topic_settings import check_name

if TYPE_CHECKING:
    from headwater.capture.app_captures import Captures
    from headwater.capture.backfill import BackfillProgress
    from headwater.capture.database import CaptureSource
    from headwater.federation.attachments import Attachment, Attachments
    from headwater.inlets.declared_inlets import DeclaredInlets
    from headwater.inlets.inlet import Inlet
    from headwater.inlets.inlet import InletDeclaration as InletDeclaration
    from headwater.sinks.runner.declared_sinks import DeclaredSinks, SinkHandle
    from headwater.sinks.runner.sink_status import SinkStatus
    from headwater.sinks.sink import Sink
    from headwater.views.event_time.timing import Duration
    from headwater.views.lifecycle.rebuild import RebuildReport
    from headwater.views.lifecycle.rebuild_progress import RebuildProgress
    from headwater.views.runtime import AppRuntime
    from headwater.views.tick.reports import TickReport
    from headwater.views.view import View
    from headwater.views.view_declaration import ViewDeclaration


class App:
    """An app over one home.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> orders = app.topic("orders", "order_id BIGINT, amount DOUBLE", key="order_id")
    >>> token = orders.append([{"order_id": 1, "amount": 9.5}])
    >>> str(token)
    'orders:0=1'
    """

    def __init__(
        self,
        name: str,
        home: str | os.PathLike[str] | None = None,
        *,
        spark: Mapping[str, str] | None = None,
        on_error: str = "stop",
    ) -> None:
        from headwater.views.tick.pausing import checked_policy

        check_name("app", name)
        self.on_error = checked_policy(on_error)  # of views that say nothing else
        self.name = name
        self.home = home if home is not None else f"./{name}-data"
        self.spark_settings = dict(spark or {})
        self._log: Log | None = None
        self._declared: dict[str, ViewDeclaration] = {}
        self._plans: dict[str, Any] = {}
        self._waiting: dict[str, str] = {}  # views that were refused, and what each did not find
        self._operation: AppRuntime | None = None
        self._companions = AppServices(self)

    @property
    def log(self) -> Log:
        """The app's log, opened when first needed."""
        if self._log is None:
            self._log = Log(self.home)
        return self._log

    # Declaring

    def topic(self, name: str, schema: str | pa.Schema | None = None, **settings: Any) -> Topic:
        """Declare a topic, or open one that exists. See ``Log.topic``."""
        self._not_a_view(name)
        return self.log.topic(name, schema, **settings)

    def table(
        self,
        name: str,
        schema: str | pa.Schema | None = None,
        *,
        key: str | Sequence[str] | None = None,
        source: CaptureSource | None = None,
        **settings: Any,
    ) -> Table:
        """Declare a table, or open one that exists. Without a key it is a bag: equal rows may be there twice.

        With a ``source`` it follows a table of another database, which says its columns and its key. See
        ``docs/capture.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = users.upsert([{"id": 7, "country": "DE"}])
        >>> _ = users.delete([{"id": 7}])
        """
        self._not_a_view(name)
        if source is None:
            return declare_table(self.log, name, schema, key=key, **settings)
        if schema is not None:
            raise InvalidDeclaration(
                f'table "{name}" has a source, so its columns are not declared', hint="Leave the schema out."
            )
        return self.captures.declare(self.log, name, source, key, settings)

    def view(
        self,
        name: str | None = None,
        sql: str | None = None,
        *,
        inputs: Sequence[Any] | None = None,
        by: str | Sequence[str] | None = None,
        serve: bool = True,
        late: str | None = None,
        horizon: Duration | None = None,
        emit: str = "now",
        closes: str | None = None,
        late_alert: float = 0.01,
        on_error: str | None = None,
    ) -> Any:
        """Declare a view by SQL, or by a PySpark function; or open one that was declared.

        The SQL is Spark's. It may read topics, tables and views that were declared before. Nothing runs here.

        ``late="drop"`` sets rows aside that are older than the watermark (else they correct what was shown), and
        ``horizon="10 minutes"`` those that are older by more than that. ``emit="final"`` shows a row when it cannot
        change any more: when its window has closed, or at ``closes``, an expression. See ``docs/time.md``.

        ``on_error="pause"``: when it fails, it stands still, and other views go on. See ``docs/failures.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> _ = app.table("users", "id BIGINT, country STRING", key="id")
        >>> app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        View('countries', columns=country, users)

        A function of frames: row by row, or with ``by`` over all rows of each key that was touched.

        >>> @app.view(inputs=["users"])
        ... def german(users):
        ...     return users.where("country = 'DE'")
        >>> app.view("german").name
        'german'
        """
        from headwater.views.event_time.timing import Timing
        from headwater.views.tick.pausing import checked_policy
        from headwater.views.view import View
        from headwater.views.view_declaration import ViewDeclaration, caller

        policy = checked_policy(on_error or self.on_error)
        if inputs is not None:
            if (late, horizon, emit, closes) != (None, None, "now", None):
                raise InvalidDeclaration(
                    "late, horizon, emit and closes are for views in SQL",
                    hint="Declare them on a view in SQL, and let the function read that one.",
                )
            return self._by_function(name, inputs, by, serve, caller(), policy)
        if name is None:
            raise InvalidDeclaration(
                "a view needs a name and a query", hint='app.view("revenue", "SELECT …"), or @app.view(inputs=[…])'
            )
        if sql is None:
            if name not in self._declared:
                raise UnknownView(
                    f'no view "{name}" was declared', hint=suggestion(name, list(self._declared)), view=name
                )
            return View(self, name)
        self._check_view_name(name)
        timing = Timing.declared(name, late=late, horizon=horizon, emit=emit, closes=closes, late_alert=late_alert)
        declared = ViewDeclaration(name, sql, caller(), serve=serve, timing=timing, on_error=policy)
        self._declare(declared, self._compiled(declared))
        return View(self, name)

    def _by_function(
        self,
        name: str | None,
        inputs: Sequence[Any],
        by: str | Sequence[str] | None,
        serve: bool,
        location: str,
        on_error: str,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        from headwater.views.compiler.sql.refusal import circle
        from headwater.views.view_declaration import ViewDeclaration

        names = tuple(given if isinstance(given, str) else given.name for given in inputs)
        keys = (by,) if isinstance(by, str) else tuple(by or ())

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            view = name or function.__name__
            self._check_view_name(view)
            declared = ViewDeclaration(view, None, location, function, names, keys, serve, on_error=on_error)
            relations = self._relations()
            for given in names:
                if given not in relations:
                    known = ", ".join(sorted(relations)) or "none yet"
                    missing = f'there is no topic, table or view "{given}"', f"There are: {known}."
                    sentence, hint = circle(view, given, self._waiting) or missing
                    self._waiting[view] = given
                    raise InvalidDeclaration(f"{declared.title}: {sentence}", hint=hint, view=view, table=given)
            self._declare(declared, None)
            return function

        return declare

    def _check_view_name(self, name: str) -> None:
        check_name("view", name)
        if name in self._declared:
            raise DeclarationConflict(
                f'view "{name}" is declared twice, first at {self._declared[name].location}',
                hint="Give one of the two another name.",
                view=name,
            )
        if any(topic.name == name for topic in self.log.topics()):
            raise DeclarationConflict(
                f'"{name}" is a topic or table of this home already', hint="Give the view another name.", view=name
            )

    def _not_a_view(self, name: str) -> None:
        if name in self._declared:
            raise DeclarationConflict(
                f'"{name}" is a view already, declared at {self._declared[name].location}',
                hint="Give the topic another name.",
                topic=name,
            )

    def _relations(self) -> dict[str, Any]:
        from headwater.views.compiler.plan import Relation
        from headwater.views.tick.prepare import relations_of

        relations = relations_of(self.log)
        for name, plan in self._plans.items():
            columns, key = (plan.columns, plan.key) if plan is not None else ((), ())
            relations[name] = Relation(name, columns, key, is_view=True)
        return relations

    def _compiled(self, declared: ViewDeclaration) -> Any:
        """Compile without Spark: all but types is checked here. Its parser is asked about what ours cannot read."""
        from headwater.views.compiler.whole_query import mentioned
        from headwater.views.event_time.timing import timed_plan
        from headwater.views.spark.spark_parser import reader
        from headwater.views.tick.prepare import event_times_of

        assert declared.sql is not None
        read = reader(lambda: self.operation.spark)
        # Of some views Spark alone knows the columns: what reads them is checked when it starts.
        unknown = {name for name, plan in self._plans.items() if plan is None or not plan.columns}
        if unknown and unknown & mentioned(declared.sql, read):
            return None
        try:
            return timed_plan(
                declared.name,
                declared.sql,
                self._relations(),
                declared.timing,
                event_times_of(self.log),
                waiting=self._waiting,
                read=read,
            )
        except (InvalidDeclaration, InvalidView) as error:
            if "table" in error.data:
                self._waiting[declared.name] = error.data["table"]
            error.message = f"{declared.title}: {error.message}"
            error.args = (error.message,)
            error.data.setdefault("view", declared.name)
            error.data.setdefault("location", declared.location)
            raise

    def _declare(self, declared: ViewDeclaration, plan: Any) -> None:
        self._declared[declared.name] = declared
        self._plans[declared.name] = plan
        self._waiting.pop(declared.name, None)
        self._stop_operation()

    def drop_view(self, name: str) -> None:
        """Take a declaration back. Its state goes with the next tick. Refused while another view reads it."""
        if name not in self._declared:
            self.view(name)
        readers = [
            other
            for other, plan in self._plans.items()
            if name in (plan.reads if plan is not None else self._declared[other].inputs)
        ]
        if readers:
            raise InvalidDeclaration(
                f'view "{name}" cannot be dropped: {", ".join(readers)} reads it',
                hint=f"Drop {readers[0]} first.",
                view=name,
                readers=readers,
            )
        self._companions.refuse_drop(name)
        del self._declared[name], self._plans[name]
        self._stop_operation()

    def sink(self, view: str, sink: Sink | None = None, *, name: str | None = None) -> SinkHandle:
        """Declare what carries a view to another system; or open one that was declared, by its name or its view's.

        It begins with a full copy and then follows tick by tick: in the background under ``run`` and ``start``, and as
        the last part of ``tick()``. See ``docs/sinks.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> app.sink("countries", hw.sinks.SQLite(f"{tempfile.mkdtemp()}/copy.db")).name
        'countries.sqlite'
        >>> app.sink("countries").status().state
        <State.IDLE: 'idle'>
        """
        if sink is None:
            return self.sinks.find(view)
        if view not in self._declared:
            raise InvalidDeclaration(
                f'there is no view "{view}" for a sink to carry',
                hint=f'Declare one before it; of a topic or table: app.view("…", "SELECT * FROM {view}").',
                view=view,
            )
        return self.sinks.declare(view, sink, name)

    @property
    def sinks(self) -> DeclaredSinks:
        """The declared sinks."""
        return self._companions.sinks

    def inlet(self, name: str, declared: InletDeclaration | None = None) -> Inlet:
        """Declare what lets foreign messages into a topic; or open one that was declared. See ``docs/inlets.md``.

        It runs under ``run`` and ``start``, or by itself: ``start`` and ``stop`` of the inlet.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> pushes = app.topic("pushes", "repository STRING")
        >>> app.inlet("github", hw.inlets.Webhook(pushes, path="/github"))
        <Inlet github (webhook) into pushes: not started>
        >>> app.inlet("github").counters.received
        0
        """
        return self.inlets.find(name) if declared is None else self.inlets.declare(name, declared)

    @property
    def inlets(self) -> DeclaredInlets:
        """The declared inlets."""
        return self._companions.inlets

    def attach(self, name: str, url: str, *, rows_max: int | None = None, timeout: float | None = None) -> Attachment:
        """Attach another store, so that queries can read its tables beside ours. See ``docs/federation.md``.

        The home remembers it, for ``headwater query``, unless a password is written into the URL: then it is known to
        this app alone. Better is a variable of the environment: ``postgresql://reader:${CRM_PASSWORD}@db/crm``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> app.attach("crm", "postgresql://reader:secret@db.example/crm")
        Attachment(crm: postgresql://reader:***@db.example/crm)
        >>> list(app.attachments)
        ['crm']
        """
        from headwater.federation.attachments import ROWS_MAX, TIMEOUT_SECONDS, Attachment

        declared = Attachment.declared(name, url, rows_max=rows_max or ROWS_MAX, timeout=timeout or TIMEOUT_SECONDS)
        self._not_a_view(name)
        self.attachments.add(declared, keep=not declared.address.has_password)
        return declared

    @property
    def attachments(self) -> Attachments:
        """The stores that queries may read: those of the home, and those of this app."""
        return self._companions.attachments

    @property
    def captures(self) -> Captures:
        """The databases that tables of this app follow."""
        return self._companions.captures

    @property
    def views(self) -> list[View]:
        """The declared views, in the order of their declaration."""
        return [self.view(name) for name in self._declared]

    # Running

    @property
    def operation(self) -> AppRuntime:
        """Spark, the compiled views and their state; started when first needed."""
        from headwater.views.runtime import AppRuntime

        if self._operation is None:
            self._operation = AppRuntime(
                self.name, self.log, self._declared.values(), self.spark_settings, self.attachments
            )
        return self._operation

    def tick(self, *, rows_max: int | None = None, sinks: bool = True) -> TickReport:
        """Advance all views over what the log holds (at most ``rows_max`` rows of each topic), and return.

        Then the sinks are brought to this tick, as far as they answer; with ``sinks=False``, or while ``start`` leads
        them along in the background, that is not waited for.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> token = users.upsert([{"id": 1, "country": "DE"}, {"id": 2, "country": "DE"}])
        >>> app.tick().rows_in
        2
        >>> app.query("SELECT * FROM countries", at_least=token).to_pylist()
        [{'country': 'DE', 'users': 2}]
        """
        report = self.operation.tick(rows_max=rows_max)
        self._companions.ticked(sync=sinks)
        return report

    def sync_sinks(self) -> list[SinkStatus]:
        """Bring every sink to the last committed tick, those that were stopped too; returns how each is."""
        return self.sinks.sync()

    def run(self, *, timeout: float | None = None, on_tick: Callable[[TickReport], None] | None = None) -> None:
        """Keep all views up to date until interrupted (or for ``timeout`` seconds).

        What was declared beside them runs too: captures, inlets, sinks.
        """
        with self._companions.running(on_tick) as told:
            self.operation.run(timeout=timeout, on_tick=told)

    def start(self, *, on_tick: Callable[[TickReport], None] | None = None) -> None:
        """Like ``run``, in the background; ``stop`` ends it."""
        self.operation.start(on_tick=self._companions.start(on_tick))

    def stop(self) -> None:
        """End what ``start`` began, after the running tick."""
        self._companions.stop_inflow()
        if self._operation is not None:
            self._operation.stop()
        self._companions.stop()

    def capture(
        self,
        *,
        until: str | None = None,
        timeout: float | None = None,
        on_progress: Callable[[BackfillProgress], None] | None = None,
    ) -> None:
        """Follow the databases of captured tables until interrupted, or for ``timeout`` seconds.

        ``until="caught up"`` ends it when everything that is committed now is in the log: for tests, notebooks, cron.
        ``run`` and ``start`` do this by themselves, in the background.
        """
        self.captures.run(self.log, until=until, timeout=timeout, on_progress=on_progress)

    def rebuild(self, name: str, *, on_progress: Callable[[RebuildProgress], None] | None = None) -> RebuildReport:
        """Compute a view anew from what its inputs hold, beside the live one, and swap it in with one tick.

        Until then the live view answers, and ``start`` goes on ticking. ``on_progress`` is told some times a second.

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
        self.view(name)  # an unknown one is told before Spark is started
        return self.operation.rebuild(name, on_progress=on_progress)

    # Reading

    def query(self, sql: str, *, at_least: Token | str | None = None, timeout: float = 30.0) -> pa.Table:
        """Run a query over views, tables, topics and attached stores, as of one tick that covers ``at_least``."""
        token = Token.parse(at_least) if isinstance(at_least, str) else at_least
        return self.operation.query(sql, at_least=token, timeout=timeout)

    # Ending

    def _stop_operation(self) -> None:
        self._companions.declared_anew()
        if self._operation is not None:
            self._operation.close()
            self._operation = None

    def close(self) -> None:
        """Stop what runs, and close the log, if it was opened. Spark stays, for the next app of this process."""
        self._companions.close()
        self._stop_operation()
        if self._log is not None:
            self._log.close()
            self._log = None

    def __enter__(self) -> App:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"App({self.name!r}, home={str(self.home)!r})"
