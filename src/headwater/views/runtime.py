"""The runtime: one app's views at work in this process.

What it is: holds Spark, the engine and the runner, and starts each when it is first needed.
Invariants: only ticking takes the app over (a new epoch); reading never does, and works while another process runs it.
Not here: declaring (``app.py``); a tick (``views/tick/engine.py``).
Read next: ``views/tick/engine.py``, ``views/tick/driver.py``, ``views/serving/snapshot.py``.
"""

from __future__ import annotations

import datetime as dt
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.backoff import Backoff
from headwater.clock import to_us
from headwater.errors import HeadwaterError, Misuse, NotYetCovered, OffsetOutOfRange
from headwater.log.contract import EventLog
from headwater.log.token import AtLeast, Token
from headwater.views.compiler.frontend.query_tables import tables_in
from headwater.views.lifecycle.erasure_follower import ErasureFollower
from headwater.views.lifecycle.liveness import LivenessReporter
from headwater.views.serving.change_feed import ChangeFeed
from headwater.views.serving.committed_changes import CommittedChanges
from headwater.views.serving.publish import STORE, Publisher
from headwater.views.serving.serving_columns import quoted as served_name
from headwater.views.serving.serving_store import ServingStore
from headwater.views.serving.snapshot import QueryReply, RelationSnapshot
from headwater.views.spark.jvm import ended, mapped_errors
from headwater.views.spark.spark_session import start_session
from headwater.views.state.manifest import Manifest
from headwater.views.state.remote.remote_state import RemoteState, manifests_of, state_store
from headwater.views.tick import unprepared
from headwater.views.tick.engine import TickEngine
from headwater.views.tick.pausing import Pause, check_covered, is_its_own, paused_in, resumed_with
from headwater.views.tick.reports import TickReport
from headwater.views.view_declaration import ViewDeclaration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.federation.attachments import Attachment
    from headwater.views.lifecycle.diagnosis import Findings
    from headwater.views.lifecycle.migration import Migration
    from headwater.views.lifecycle.rebuild import Rebuild, RebuildReport
    from headwater.views.lifecycle.rebuild_progress import RebuildProgress
    from headwater.views.lifecycle.set_aside import RecordPlace
    from headwater.views.lifecycle.verification import Difference
    from headwater.views.stages.view_sessions import ViewSessions
    from headwater.views.tick.driver import TickDriver
    from headwater.views.tick.prepare import Prepared

OnTick = Callable[[TickReport], None]


class AppRuntime:
    """One app's views at work."""

    def __init__(
        self,
        name: str,
        log: EventLog,
        declared: Iterable[ViewDeclaration],
        settings: Mapping[str, str],
        attached: Mapping[str, Attachment] | None = None,
        state: RemoteState | None = None,
        *,
        encrypted: bool = False,
    ) -> None:
        self.name, self.log = name, log
        self.declared, self.settings = tuple(declared), settings
        self.attached, self.state = attached, state  # None: the state is in the home
        self.encrypted = encrypted  # what Spark writes must be, too
        self.folder = Path(log.home).absolute() / "views" / name
        # Its own: a process that was shut out in the middle of a tick goes on writing for a while.
        self.scratch = self.folder / "scratch" / uuid.uuid4().hex
        self.manifests = manifests_of(log.local.catalog, name, state)
        self.java_log = self.folder / "spark.log"
        self._spark: SparkSession | None = None
        self._prepared: Prepared | None = None
        self._sessions: Mapping[str, ViewSessions] = {}
        self._engine: TickEngine | None = None
        self._runner: TickDriver | None = None
        self._migration: Migration | None = None
        self._serving: ServingStore | None = None
        self._signs: LivenessReporter | None = None
        self.after_forgetting: Callable[[], None] = lambda: None  # when an erasure has forgotten earlier ticks

    @property
    def spark(self) -> SparkSession:
        """The session, started when first needed."""
        if self._spark is None:
            self._spark = start_session(self.name, self.settings, self.java_log, encrypted=self.encrypted)
        return self._spark

    @property
    def running_spark(self) -> SparkSession | None:
        """The session, if it was started."""
        return self._spark

    def mapped_errors(self) -> AbstractContextManager[None]:
        """Around whatever asks Spark: see ``views/spark/jvm.py``."""
        return mapped_errors(lambda: self._spark, self.java_log)

    @property
    def prepared(self) -> Prepared:
        """The compiled views."""
        from headwater.views.tick.prepare import prepare

        if self._prepared is None:
            self._prepared = prepare(
                self.declared,
                self.log,
                self.spark,
                self.scratch,
                answers=self.folder / "analysis.json",
                ran=self.manifests.current().views,
                sessions=self._sessions,
            )
        return self._prepared

    def prepare_again(self) -> None:
        """Topics may have changed since the views were prepared; the plans of their queries are kept."""
        self._sessions = {name: view.sessions for name, view in self.prepared.views.items()}
        self._prepared = None

    @property
    def engine(self) -> TickEngine:
        """The engine; making it takes the app over."""
        if self._engine is None:
            prepared, home = self.prepared, self.log.local
            store = state_store(self.folder, self.log, self.spark, self.manifests, self.state)
            publisher = Publisher(self.folder, self.manifests, prepared, self.log, self.spark)
            self._engine = TickEngine(prepared, self.manifests, store, publisher)
            places = (self.log, self.spark, self.scratch)
            self._engine.before_tick = ErasureFollower(self._engine, *places, lambda: self.after_forgetting()).follow
            self._signs = LivenessReporter(self.folder, self._engine.epoch, self.spark, home.files, self.java_log)
            self._clear_scratch()
        return self._engine

    @property
    def epoch(self) -> int:
        """The epoch of this process, when it has taken the app over; else of the one that has."""
        return self._engine.epoch if self._engine is not None else self.manifests.epoch()

    @property
    def committed(self) -> CommittedChanges:
        """What each tick changed."""
        return CommittedChanges(self.manifests, self.folder, self.log.local.files)

    def _clear_scratch(self) -> None:
        """Remove what processes before this one left. One that still runs is shut out by now."""
        for left in {*self.folder.glob("scratch/*")} - {self.scratch}:
            shutil.rmtree(left, ignore_errors=True)

    # Ticking

    def tick(self, *, rows_max: int | None = None, accept_loss: bool = False) -> TickReport:
        """One advance, now."""
        with self.mapped_errors():
            self._use_declared()
            return self.engine.tick(rows_max=rows_max, accept_loss=accept_loss)

    def start(self, *, on_tick: OnTick | None = None, accept_loss: bool = False) -> TickDriver:
        """Tick in the background, whenever something was appended."""
        from headwater.views.lifecycle.migration import BESIDE_ROWS_MIN, Migration, rows_to_read
        from headwater.views.tick.driver import TickDriver

        self.stop()
        self._end_migration()
        self._use_declared()
        engine = self.engine
        self.manifests.hold_lease(engine.epoch)
        if engine.initial and rows_to_read(self.prepared, engine.initial) >= BESIDE_ROWS_MIN:
            self._use_as_they_ran()
        runner = TickDriver(engine, on_tick, has_spark=lambda: ended(self._spark) is None, accept_loss=accept_loss)
        self._runner = runner  # before it starts: its first tick may stop it
        runner.start()
        if self._runner is runner and not self._declared_run():
            self._migration = Migration(self._rebuild_of([]), on_error=lambda error: self._not_filled(error, runner))
        return runner

    def _not_filled(self, error: Exception, runner: TickDriver) -> bool:
        """A migration has failed: the view that is to blame is paused, or everything stops; whether it was paused."""
        view = self.prepared.views.get(error.data.get("view", "")) if isinstance(error, HeadwaterError) else None
        if view is None or not is_its_own(error, view.declared):
            runner.stop()
            return False
        self.engine.give_up(self.prepared, view.name, error)
        return True

    def run(self, *, timeout: float | None = None, on_tick: OnTick | None = None, accept_loss: bool = False) -> None:
        """Tick until interrupted."""
        try:
            with self.mapped_errors():
                self.start(on_tick=on_tick, accept_loss=accept_loss).wait(timeout)
                if self._migration is not None:
                    self._migration.check()
        except KeyboardInterrupt:
            self.stop(cancel=True)
        finally:
            self.stop()

    def stop(self, *, cancel: bool = False) -> None:
        """End what ``start`` began, after the running tick; with ``cancel`` a long one is given up."""
        if self._runner is not None:
            self._runner.stop(cancel=cancel)
            self._runner = None
        if self._migration is not None:
            self._migration.cancel()  # no waiting: it may wait for the tick that calls this
        self.manifests.release_lease()

    # Views that are new, changed or recomputed

    def rebuild(self, view: str, *, on_progress: Callable[[RebuildProgress], None] | None = None) -> RebuildReport:
        """Recompute a view beside the live one, then swap; see ``views/lifecycle/rebuild.py``."""
        with self.mapped_errors():
            return self._rebuild(view, on_progress)

    def resume(self, view: str, *, on_progress: Callable[[RebuildProgress], None] | None = None) -> RebuildReport:
        """Recompute a paused view, with the paused ones that it reads or that waited for it, and let them run."""
        with self.mapped_errors():
            self._use_declared()
            unprepared.refuse(view, self.prepared.unprepared, self.engine.manifest)
            if view not in self.engine.paused:
                if view in self.engine.initial:
                    return self._rebuild(view, on_progress)
                raise Misuse(
                    f'view "{view}" is not paused',
                    hint=f"Paused are: {', '.join(self.engine.paused) or 'none'}.",
                    view=view,
                )
            return self._rebuild(view, on_progress)

    def _rebuild(self, view: str, on_progress: Callable[[RebuildProgress], None] | None) -> RebuildReport:
        from headwater.views.lifecycle.migration import Migration
        from headwater.views.lifecycle.rebuild import RebuildReport

        engine = self.engine
        unprepared.refuse(view, self.prepared.unprepared, engine.manifest)
        if self._migration is not None and self._migration.running:
            report = self._migration.wait(on_progress)
            if view in report.views:
                return report
        self._use_declared()
        if engine.initial and not self._use_as_they_ran():  # nothing could answer meanwhile: a tick does the same
            initial = tuple(name for name in engine.prepared.views if name in engine.initial)
            tick = engine.tick()
            if view in initial:
                return RebuildReport(initial, tick.tick, {}, initial, 0, tick.seconds)
        names = resumed_with(view, engine.paused, self.prepared) if view in engine.paused else [view]
        return Migration(self._rebuild_of(names)).wait(on_progress)

    def _rebuild_of(self, names: Collection[str]) -> Rebuild:
        from headwater.views.lifecycle.rebuild import Rebuild

        on_tick = None if self._runner is None else self._runner.on_tick
        return Rebuild(self.engine, self.prepared, names, self.spark, self.scratch, on_tick)

    def _declared_run(self) -> bool:
        """Whether ticks maintain the views that are declared, and none as they were before."""
        declared, running = self.prepared.views, self.engine.prepared.views
        return {name: view.fingerprint for name, view in declared.items()} == {
            name: view.fingerprint for name, view in running.items()
        }

    def _use_declared(self) -> None:
        """After a migration that came to nothing: let the next tick fill what is new."""
        if self.engine.pinned_tick is None and not self._declared_run():
            self.engine.use(self.prepared)

    def _use_as_they_ran(self) -> bool:
        """Let ticks go on with the views as they ran before; False when they cannot."""
        from headwater.views.lifecycle.migration import as_they_ran

        manifest, scratch = self.engine.manifest, self.scratch / "as-they-ran"
        found = as_they_ran(manifest, self.declared, self.prepared, self.log, self.spark, scratch)
        if found is not None:
            self.engine.use(found)
        return found is not None

    def _end_migration(self) -> None:
        if self._migration is not None:
            self._migration.stop()
            self._migration = None

    # Reading

    def contents(
        self,
        *,
        at_least: Token | None = None,
        timeout: float = 30.0,
        views: Collection[str] = (),
        bytes_max: int | None = None,
    ) -> RelationSnapshot:
        """Every relation as of a tick that covers ``at_least``, as paused ones of ``views`` must do now."""
        manifest = self.covering(at_least, timeout, views) if at_least is not None else self.manifests.current()
        return RelationSnapshot(self.log, self.folder, manifest, self.spark, self.attached, bytes_max)

    def spark_rows(self, view: str, *, at_least: Token | None = None, timeout: float = 30.0) -> pa.Table:
        """A view's rows, read by Spark from its state."""
        with self.mapped_errors():
            contents = self.contents(at_least=at_least, timeout=timeout, views=[view])
            self._check_computed(view, contents.manifest)
            return contents.frame(view).toArrow()

    def served_rows(self, view: str, *, at_least: Token | None = None, timeout: float = 30.0) -> pa.Table:
        """A view's rows in the serving store, without Spark."""
        if at_least is None:
            self._check_computed(view, self.manifests.current())
        else:
            deadline = time.monotonic() + timeout
            tick = self.covering(at_least, timeout, [view]).tick
            # A tick is in the store a moment after it was committed.
            if not self.serving.wait(tick, max(0.0, deadline - time.monotonic())):
                raise NotYetCovered(
                    f'the serving store of app "{self.name}" has not reached tick {tick} after {timeout:g} s',
                    detail=f"It is at tick {self.serving.tick}.",
                    hint="The app brings it up to date when it runs: headwater run APP.py, or app.tick().",
                    app=self.name,
                )
        return self.serving.query(f"SELECT * FROM {served_name(view)}")

    def served_count(self, view: str) -> int | None:
        """How many rows the serving store has of a view; None when it has no such view. Makes nothing."""
        if not (self.folder / STORE).exists() or view not in self.serving.views():
            return None
        (count,) = self.serving.query(f"SELECT count(*) AS n FROM {served_name(view)}").column("n").to_pylist()
        return int(count)

    def _check_computed(self, view: str, manifest: Manifest) -> None:
        if view not in manifest.views:
            raise NotYetCovered(
                f'view "{view}" has no rows yet: no tick has computed it',
                hint="Advance the app: app.tick(), or headwater run APP.py.",
                view=view,
            )

    def reply(
        self, sql: str, *, at_least: Token | None = None, timeout: float = 30.0, push_down: bool = True
    ) -> QueryReply:
        """The same, with what was fetched for it from attached stores."""
        with self.mapped_errors():
            views = tables_in(sql) if at_least is not None else ()
            return self.contents(at_least=at_least, timeout=timeout, views=views).reply(sql, push_down=push_down)

    @property
    def serving(self) -> ServingStore:
        """The serving store, for reading."""
        if self._serving is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._serving = ServingStore(self.folder / STORE)
        return self._serving

    def feed(self, view: str) -> ChangeFeed:
        """The changes of a view."""
        return ChangeFeed(view, self.committed, lambda tick, timeout: self.serving.wait(tick, timeout))

    def history(self, view: str, as_of: int | dt.datetime) -> pa.Table:
        """A view's rows after a tick, or at a moment."""
        kept = self.manifests.kept()
        if isinstance(as_of, dt.datetime):
            ticks = [tick for tick, committed_us in kept if committed_us <= to_us(as_of)]
        else:
            ticks = [tick for tick, _ in kept if tick == as_of]
        manifest = self.manifests.at(ticks[-1]) if ticks else None
        if manifest is None or view not in manifest.views:
            span = f"ticks {kept[0][0]} to {kept[-1][0]}" if kept else "no tick yet"
            raise OffsetOutOfRange(
                f'the history of view "{view}" at {as_of} is not kept',
                detail=f"Kept are {span}.",
                hint="Ask for a tick that is kept.",
                view=view,
            )
        with self.mapped_errors():
            return RelationSnapshot(self.log, self.folder, manifest, self.spark).frame(view).toArrow()

    def verify(self, view: str | None = None) -> list[Difference]:
        """Compute views from the log alone and compare; see ``views/lifecycle/verification.py``."""
        from headwater.views.lifecycle.verification import verify

        names = [view] if view is not None else list(self.prepared.views)
        with self.mapped_errors():
            contents = self.contents()
            unprepared.refuse(view or "", self.prepared.unprepared, contents.manifest)
            paused = paused_in(contents.manifest)
            running = {name: each for name, each in self.prepared.views.items() if name not in paused}
            found = verify(replace(self.prepared, views=running), contents, [name for name in names if name in running])
            for name in (name for name in names if name in paused and self._holds(name, contents.manifest)):
                found += verify(self.prepared, self._as_of(paused[name], contents), [name])
            places = {name: place for place, name in enumerate(self.prepared.views)}
            return sorted(found, key=lambda each: places[each.view])

    def diagnose(self, view: str, *, limit: int) -> Findings:
        """Find the records that a view cannot be computed over; see ``views/lifecycle/diagnosis.py``."""
        from headwater.views.lifecycle.diagnosis import Diagnosis

        with self.mapped_errors():
            contents = self.contents()
            manifest = contents.manifest
            unprepared.refuse(view, self.prepared.unprepared, manifest)
            pause = paused_in(manifest).get(view)
            ends = {name: self.log.get_topic(name).end_offsets() for name in self.prepared.topics}
            begin = manifest.frontier if pause is None else pause.frontier if pause.tick else {}
            tried = [ends] if pause is None else [pause.until, manifest.frontier]
            scratch = self.scratch / "diagnosis"
            try:
                for stop in tried:  # what came since may fail too, once what failed first was set aside
                    found = Diagnosis(view, self.prepared, contents, begin, stop, scratch).run(limit)
                    if found.culprits:
                        break
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            return found

    def set_aside(self, places: Sequence[RecordPlace], *, reason: str = "", by: str = "") -> RebuildReport:
        """Let the views of this app leave records out; see ``views/lifecycle/set_aside.py``."""
        from headwater.views.lifecycle.set_aside import SettingAside

        with self.mapped_errors():
            self._use_declared()
            if self.engine.initial:
                self.engine.tick()
            return SettingAside(self.engine, places, self.log, self.spark, self.scratch).run(reason=reason, by=by)

    def _holds(self, view: str, manifest: Manifest) -> bool:
        """Whether what a manifest has of a view is of the query that is declared."""
        held = manifest.views.get(view)
        return held is not None and held["fingerprint"] == self.prepared.views[view].fingerprint

    def _as_of(self, pause: Pause, contents: RelationSnapshot) -> RelationSnapshot:
        """The contents at the tick that a paused view stands at; as the log has them, if that tick is not kept."""
        then = self.manifests.at(pause.tick)
        manifest = then or replace(contents.manifest, frontier=pause.frontier, aside=pause.aside, tick=pause.tick)
        return RelationSnapshot(self.log, self.folder, manifest, self.spark)

    def awaited(self, at_least: AtLeast | None, timeout: float) -> tuple[Token | None, float]:
        """The token that a reader waits for, and the seconds that are left for the tick."""
        if at_least is None or isinstance(at_least, Token | str):
            return Token.of(at_least), timeout
        began = time.monotonic()
        token = at_least.token(self.log.local, timeout)
        return token, max(0.0, timeout - (time.monotonic() - began))

    def covering(self, token: Token, timeout: float, views: Collection[str] = ()) -> Manifest:
        """The current manifest, once it covers the token as far as it is about topics that views read.

        One of ``views`` that is paused and does not cover it is an error at once.
        """
        deadline = time.monotonic() + timeout
        backoff = Backoff(0.005, 0.05)
        while True:
            manifest = self.manifests.current()
            check_covered(manifest, views, token)
            known = {topic: of for topic, of in token.frontier.items() if self._read_by_views(topic, manifest)}
            if manifest.tick and manifest.token.covers(Token(known)):
                return manifest
            if self._runner is not None:
                self._runner.check()  # what is to bring the tick may have ended
                if self._migration is not None:
                    self._migration.check()
            if time.monotonic() > deadline:
                raise NotYetCovered(
                    f'the views of app "{self.name}" have not reached {token} after {timeout:g} s',
                    detail=f"They are at tick {manifest.tick}: {str(manifest.token) or 'nothing yet'}.",
                    hint="Is the app running? headwater run APP.py keeps it up to date; app.tick() advances it once.",
                    app=self.name,
                )
            time.sleep(backoff.next())

    def _read_by_views(self, topic: str, manifest: Manifest) -> bool:
        """Whether a topic is read by the views that ran, or by those declared here, which may wait for their first."""
        return topic in manifest.frontier or (bool(self.declared) and topic in self.prepared.topics)

    def close(self) -> None:
        """Stop everything but Spark."""
        self.stop()
        self._end_migration()
        for each in (self._engine, self._signs):
            if each is not None:
                each.close()
        self._engine = self._signs = None
        if self._serving is not None:
            self._serving.close()
            self._serving = None
