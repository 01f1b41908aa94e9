"""Declaring: the half of an app that says what there is.

What it is: ``AppDeclarations``, from which ``App`` comes: a name and a home, and the topics, tables, views, sinks,
inlets and attached stores that are declared in it. ``topic``, ``table``, ``view``, ``sink`` and ``inlet`` declare;
``get_topic`` and so on find what was declared.
Invariants: a declaration that makes no sense is refused at once, with the user's line. Declaring starts no Spark and
connects to nothing, but for a captured table, whose columns its database says.
Not here: running and asking (``app.py``), what was declared of views (``views/declared_views.py``).
Read next: ``app.py``, ``log/topic.py``, ``views/declared_views.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

import pyarrow as pa

from headwater.app_privacy import AppPrivacy
from headwater.app_services import AppServices
from headwater.durations import Duration
from headwater.errors import InvalidDeclaration
from headwater.log.catalog.encrypted_volume import folders_of, is_required, require_encrypted
from headwater.log.contract import Capability, EventLog, EventTopic, require
from headwater.log.table import Table, declare_table, open_table
from headwater.log.topic_settings import TableOptions, TopicOptions, check_name
from headwater.log_address import open_log
from headwater.objects.object_address import ObjectAddress

if TYPE_CHECKING:
    from headwater.capture.app_captures import Captures
    from headwater.capture.database import CaptureSource
    from headwater.federation.attachments import Attachment, Attachments
    from headwater.inlets.declared_inlets import DeclaredInlets
    from headwater.inlets.inlet import Inlet, InletDeclaration
    from headwater.log.schema.personal_columns import Personal
    from headwater.patterns.pattern_builder import Pattern
    from headwater.sinks.postgres.postgres_serving import PostgresServing
    from headwater.sinks.runner.declared_sinks import DeclaredSinks, SinkHandle
    from headwater.sinks.sink import Sink
    from headwater.views.runtime import AppRuntime
    from headwater.views.view import View
    from headwater.views.view_declaration import ViewDeclaration, ViewFunction

OnError = Literal["stop", "pause"]
LOG_VARIABLE, STATE_VARIABLE, SERVE_VARIABLE = "HEADWATER_LOG", "HEADWATER_STATE", "HEADWATER_SERVE"


# The home that apps are declared on, whatever they say: a restored copy, for a drill (``upkeep/backup/``).
run_on: ContextVar[Path | None] = ContextVar("run_on", default=None)


class AppDeclarations(AppPrivacy):
    """The declarations of one app."""

    def __init__(
        self,
        name: str,
        home: str | os.PathLike[str] | None = None,
        *,
        log: str | None = None,
        state: str | None = None,
        serve: str | None = None,
        spark: Mapping[str, str] | None = None,
        on_error: OnError = "stop",
        home_encryption: Literal["required"] | None = None,
    ) -> None:
        from headwater.views.declared_views import DeclaredViews
        from headwater.views.tick.pausing import checked_policy

        check_name("app", name)
        self.on_error = checked_policy(on_error)  # of views that say nothing else
        self.name = name
        self.encrypted = is_required(home_encryption)  # the home, and whatever else holds rows on this machine
        self.home = home if home is not None else f"./{name}-data"
        self.file: Path | None = None  # that declares it, when a command has read it
        # What the app's file leaves open is the machine's to say: so one file runs on a laptop and on a cluster.
        self.log_address = log or os.environ.get(LOG_VARIABLE) or None
        stored = state or os.environ.get(STATE_VARIABLE) or None
        self.state = None if stored is None else ObjectAddress.parse(stored)  # None: in the home
        self.spark_settings = dict(spark or {})
        self._log: EventLog | None = None
        self._views = DeclaredViews(lambda: self.log, lambda: self._runtime, lambda: self._log is not None)
        self._made_runtime: AppRuntime | None = None
        self._services = AppServices(self)
        self.aggregates, self.claimed, self.processes, self.constraints = {}, {}, {}, {}
        self.services, self.answering, self.stored_searches = {}, {}, {}
        self.serving: PostgresServing | None = None  # None: only from this machine's disk
        if (elsewhere := run_on.get()) is not None:  # a restored copy: nothing outside of it is touched
            self.home, self.log_address, self.state = elsewhere, None, None
        elif served := serve or os.environ.get(SERVE_VARIABLE):
            self._serve_from(served)

    def _serve_from(self, address: str) -> None:
        from headwater.sinks.postgres.postgres_serving import ALL_VIEWS, NAME, PostgresServing

        if not address.startswith(("postgresql://", "postgres://")):
            raise InvalidDeclaration(
                f"views cannot be served from {address.partition('://')[0]!r}",
                hint='Write serve="postgresql://user@host/database", or leave it out.',
            )
        self.serving = PostgresServing(address, self.name)
        self.sinks.declare(ALL_VIEWS, self.serving, NAME, self.serving.task)

    @property
    def log(self) -> EventLog:
        """The app's log, opened when first needed.

        >>> import headwater as hw, tempfile
        >>> [topic.name for topic in hw.App("shop", home=tempfile.mkdtemp()).log.topics()]
        []
        """
        if self._log is None:
            if self.encrypted:
                require_encrypted(folders_of(self.home))
            self._log = open_log(self.home, self.log_address)
        return self._log

    # Topics and tables

    def topic(self, name: str, schema: str | pa.Schema, **settings: Unpack[TopicOptions]) -> EventTopic:
        """Declare a topic: make it, or let its columns and settings grow. See ``Log.topic``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> app.topic("orders", "order_id BIGINT, amount DOUBLE", key="order_id", partitions=2).settings.partitions
        2
        """
        self._views.check_free(name)
        return self.log.topic(name, schema, **settings)

    def get_topic(self, name: str) -> EventTopic:
        """The topic of this home that has this name, whichever app declared it.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> _ = app.topic("orders", "amount DOUBLE")
        >>> app.get_topic("orders")
        Topic(orders, amount DOUBLE)
        """
        return self.log.get_topic(name)

    def table(
        self,
        name: str,
        schema: str | pa.Schema | None = None,
        *,
        key: str | Sequence[str] | None = None,
        source: CaptureSource | None = None,
        **settings: Unpack[TableOptions],
    ) -> Table:
        """Declare a table. Without a key it is a multiset: equal rows may be there twice.

        With a ``source`` instead of a schema it follows a table of another database, which says its columns and its
        key. See ``docs/capture.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = users.upsert([{"id": 7, "country": "DE"}])
        >>> _ = users.delete([{"id": 7}])
        """
        self._views.check_free(name)
        if (schema is None) == (source is None):
            problem = "neither columns nor a source" if schema is None else "a source, so its columns are not declared"
            hint = "Leave the schema out." if source else f'To find one that exists: app.get_table("{name}").'
            raise InvalidDeclaration(f'table "{name}" has {problem}', hint=hint, table=name)
        if source is None:
            return declare_table(self.log, name, schema, key=key, **settings)
        require(self.log, Capability.PRODUCER_SEQUENCES, f'capture into table "{name}"')
        return self.captures.declare(self.log, name, source, key, settings)

    def get_table(self, name: str) -> Table:
        """The table of this home that has this name. A topic with a key is one too.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> _ = app.table("users", "id BIGINT, country STRING", key="id")
        >>> app.get_table("user")
        Traceback (most recent call last):
            ...
        headwater.errors.UnknownTopic: no table "user" in this home
          Hint: Did you mean "users"?
        """
        return open_table(self.log, name)

    # Views

    def view(
        self,
        name: str,
        sql: str | Pattern,
        *,
        serve: bool = True,
        late: Literal["correct", "drop"] | None = None,
        horizon: Duration | None = None,
        emit: Literal["now", "final"] = "now",
        closes: str | None = None,
        late_alert: float = 0.01,
        on_error: OnError | None = None,
        privacy: Mapping[str, Personal | None] | None = None,
        people_min: int | None = None,
        rows_by: Mapping[str, str] | None = None,
    ) -> View:
        """Declare a view by SQL. ``get_view`` finds it again; ``view_function`` declares one by a PySpark function.

        The SQL is Spark's, and has MATCH_RECOGNIZE besides, which ``hw.pattern`` writes. It may read topics, tables and
        views that were declared before. Nothing runs here.
        ``serve=False`` keeps its rows out of the serving store: then Spark reads them.

        - ``late="drop"`` sets rows aside that are older than the watermark (else they correct what was shown). Spark:
          a watermark delay of zero; of rows that are merely out of order, the topic's ``lateness_ms`` is the delay.
        - ``horizon="10 minutes"`` sets rows aside that are older than the watermark by more than that, and lets go of
          what no row can change any more. Spark: the watermark delay of ``withWatermark``, and the state TTL.
        - ``emit="final"`` shows a row when it cannot change any more. Spark: append mode; ``"now"`` is update mode.
        - ``closes``, an expression, says when that is, where no window does. Spark: the event time that the watermark
          is compared with.

        See ``docs/time.md``. ``on_error="pause"``: when it fails, it stands still, and other views go on. See
        ``docs/failures.md``. ``people_min=5``: groups of fewer people are not shown; ``privacy`` says of columns that
        they are personal, or (None) that they are not; ``rows_by={"tenant": "tenant"}`` shows readers the rows in
        whose column stands their own claim. See ``docs/privacy.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> _ = app.table("users", "id BIGINT, country STRING", key="id")
        >>> app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        View('countries', columns=country, users)
        """
        from headwater.views.event_time.timing import Timing
        from headwater.views.view_declaration import ViewDeclaration, caller

        timing = Timing.declared(name, late=late, horizon=horizon, emit=emit, closes=closes, late_alert=late_alert)
        policy = self._policy(on_error)
        text = sql if isinstance(sql, str) else sql.sql
        declared = ViewDeclaration(name, text, caller(), serve=serve, timing=timing, on_error=policy)
        text = self._of_people(declared.title, text, people_min)
        return self._declare(replace(declared, sql=text, people_min=people_min, privacy=privacy or {}, rows_by=rows_by))

    def view_function(
        self,
        name: str | None = None,
        *,
        inputs: Sequence[str | EventTopic | Table | View],
        by: str | Sequence[str] = (),
        serve: bool = True,
        on_error: OnError | None = None,
        privacy: Mapping[str, Personal | None] | None = None,
        rows_by: Mapping[str, str] | None = None,
    ) -> Callable[[ViewFunction], View]:
        """Declare a view by a PySpark function of frames, one for each input; the decorated name is the view.

        Without ``by`` the function is called row by row, so to say: it must give for a union of rows the union of what
        it gives for each. With ``by`` it is given all rows of each key that was touched. Each of its columns is as
        personal as its inputs, unless ``privacy`` says otherwise.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> @app.view_function(inputs=[users])
        ... def german(users):
        ...     return users.where("country = 'DE'")
        >>> german
        View('german', columns=…)
        """
        from headwater.views.view_declaration import ViewDeclaration, caller

        location, policy = caller(), self._policy(on_error)
        names = tuple(given if isinstance(given, str) else given.name for given in inputs)
        keys = (by,) if isinstance(by, str) else tuple(by)

        def declare(function: ViewFunction) -> View:
            view = name or function.__name__
            return self._declare(
                ViewDeclaration(
                    view,
                    None,
                    location,
                    function,
                    names,
                    keys,
                    serve=serve,
                    on_error=policy,
                    privacy=privacy or {},
                    rows_by=rows_by,
                )
            )

        return declare

    def _policy(self, on_error: str | None) -> str:
        from headwater.views.tick.pausing import checked_policy

        return checked_policy(on_error or self.on_error)

    def _declare(self, declared: ViewDeclaration) -> View:
        view = self._views.declare(declared)
        self._stop_runtime()
        return view

    def get_view(self, name: str) -> View:
        """The view that was declared under this name.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> _ = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = app.view("countries", "SELECT DISTINCT country FROM users")
        >>> app.get_view("country")
        Traceback (most recent call last):
            ...
        headwater.errors.UnknownView: no view "country" was declared
          Hint: Did you mean "countries"?
        """
        return self._views.find(name)

    @property
    def views(self) -> list[View]:
        """The declared views, in the order of their declaration.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> _ = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = app.view("countries", "SELECT DISTINCT country FROM users")
        >>> [view.name for view in app.views]
        ['countries']
        """
        return list(self._views)

    def drop_view(self, name: str) -> None:
        """Take a declaration back. Its state goes with the next tick. Refused while another view reads it.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> _ = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = app.view("countries", "SELECT DISTINCT country FROM users")
        >>> app.drop_view("countries")
        >>> app.views
        []
        """
        self._views.check_unread(name)
        self._services.refuse_drop(name)
        self._views.drop(name)
        self._stop_runtime()

    # What stands beside them

    def sink(self, view: str | View, sink: Sink, *, name: str | None = None, mask: bool = False) -> SinkHandle:
        """Declare what carries a view to another system.

        It begins with a full copy and then follows tick by tick: in the background under ``run`` and ``start``, and as
        the last part of ``tick()``. See ``docs/sinks.md``. With ``mask`` it gets masks in place of personal values: see
        ``docs/privacy.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> countries = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> app.sink(countries, hw.sinks.SQLite(f"{tempfile.mkdtemp()}/copy.db")).name
        'countries.sqlite'
        """
        carried = view if isinstance(view, str) else view.name
        if carried not in self._views:
            raise InvalidDeclaration(
                f'there is no view "{carried}" for a sink to carry',
                hint=f'Declare one before it; of a topic or table: app.view("…", "SELECT * FROM {carried}").',
                view=carried,
            )
        return self.sinks.declare(carried, sink, name, masked=self.personal_data if mask else None)

    def get_sink(self, name: str) -> SinkHandle:
        """The sink that was declared under this name; or the only one of the view of this name.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> _ = app.sink("countries", hw.sinks.SQLite(f"{tempfile.mkdtemp()}/copy.db"))
        >>> app.get_sink("countries").status().state
        <SinkState.IDLE: 'idle'>
        """
        return self.sinks.find(name)

    @property
    def sinks(self) -> DeclaredSinks:
        """The declared sinks.

        >>> import headwater as hw, tempfile
        >>> len(hw.App("shop", home=tempfile.mkdtemp()).sinks)
        0
        """
        return self._services.sinks

    def inlet(self, name: str, declared: InletDeclaration) -> Inlet:
        """Declare what lets foreign messages into a topic. See ``docs/inlets.md``.

        It runs under ``run`` and ``start``, or by itself: ``start`` and ``stop`` of the inlet.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> pushes = app.topic("pushes", "repository STRING")
        >>> app.inlet("github", hw.inlets.Webhook(pushes, path="/github"))
        <Inlet github (webhook) into pushes: not started>
        """
        require(self.log, Capability.REQUEST_IDS, f'inlet "{name}"')
        return self.inlets.declare(name, declared)

    def get_inlet(self, name: str) -> Inlet:
        """The inlet that was declared under this name.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> _ = app.inlet("github", hw.inlets.Webhook(app.topic("pushes", "repository STRING"), path="/github"))
        >>> app.get_inlet("github").counters.received
        0
        """
        return self.inlets.find(name)

    @property
    def inlets(self) -> DeclaredInlets:
        """The declared inlets.

        >>> import headwater as hw, tempfile
        >>> len(hw.App("shop", home=tempfile.mkdtemp()).inlets)
        0
        """
        return self._services.inlets

    def attach(
        self, name: str, url: str, *, rows_max: int | None = None, timeout: Duration | None = None
    ) -> Attachment:
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
        self._views.check_free(name)
        self.attachments.add(declared, keep=not declared.address.has_password)
        return declared

    @property
    def attachments(self) -> Attachments:
        """The stores that queries may read: those of the home, and those of this app."""
        return self._services.attachments

    @property
    def captures(self) -> Captures:
        """The databases that tables of this app follow.

        >>> import headwater as hw, tempfile
        >>> hw.App("shop", home=tempfile.mkdtemp()).captures.declared()
        {}
        """
        return self._services.captures

    # Inside

    @property
    def _runtime(self) -> AppRuntime:
        """Spark, the compiled views and their state; started when first needed."""
        from headwater.views.runtime import AppRuntime
        from headwater.views.state.remote.remote_state import RemoteState

        if self._made_runtime is None:
            state = None if self.state is None else RemoteState(self.state, self.log.identity)
            self._made_runtime = AppRuntime(
                self.name,
                self.log,
                self._views.declarations(),
                self.spark_settings,
                self.attachments,
                state,
                encrypted=self.encrypted,
            )
        return self._made_runtime

    def _stop_runtime(self) -> None:
        self._services.views_changed()
        if self._made_runtime is not None:
            self._made_runtime.close()
            self._made_runtime = None
