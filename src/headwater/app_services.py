"""Companions: what runs beside the ticks of an app.

What it is: ``AppServices`` holds an app's captures and inlets, which bring rows in, its sinks, which carry changes out,
and the stores that its queries may read; each is made when first asked for, and all that runs is started and stopped
together.
Invariants: an app that declares none of them imports nothing of theirs. What brings rows in stops before the ticks do,
what carries them out stops after: so what a stop finds under way still gets out. One that fails to start or to stop
does not keep the others from stopping.
Not here: what each of them does (``capture/``, ``inlets/``, ``sinks/``).
Read next: ``app_declarations.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.aggregates.tentative_deadlines import DeadlineWatch
    from headwater.app_declarations import AppDeclarations
    from headwater.app_processes import BackgroundRunner
    from headwater.capture.app_captures import Captures
    from headwater.encryption.encryption_key import KeySource
    from headwater.federation.attachments import Attachments
    from headwater.inlets.declared_inlets import DeclaredInlets
    from headwater.sinks.runner.declared_sinks import DeclaredSinks
    from headwater.upkeep.backup.backup_schedule import BackupPlan
    from headwater.upkeep.erasure.erasure_certificate import ErasureCertificate
    from headwater.upkeep.erasure.purpose_expiry import ExpiryReport

OnTick = Callable[[Any], None]


class AppServices:
    """The captures, inlets, sinks and attached stores of one app."""

    def __init__(self, app: AppDeclarations) -> None:
        self._app = app
        self._captures: Captures | None = None
        self._inlets: DeclaredInlets | None = None
        self._sinks: DeclaredSinks | None = None
        self._attachments: Attachments | None = None
        self._deadlines: DeadlineWatch | None = None
        self._runners: Sequence[BackgroundRunner] = ()  # of processes and services, and backups
        self.backups: dict[str, BackupPlan] = {}  # by address

    @property
    def captures(self) -> Captures:
        """The databases that tables of the app follow."""
        from headwater.capture.app_captures import Captures

        if self._captures is None:
            self._captures = Captures(self._app.name)
        return self._captures

    @property
    def inlets(self) -> DeclaredInlets:
        """The declared inlets."""
        from headwater.inlets.declared_inlets import DeclaredInlets

        if self._inlets is None:
            self._inlets = DeclaredInlets(self._app.name, self._app.log)
        return self._inlets

    @property
    def sinks(self) -> DeclaredSinks:
        """The declared sinks."""
        from headwater.sinks.runner.declared_sinks import DeclaredSinks

        if self._sinks is None:
            self._sinks = DeclaredSinks(self._app.name, lambda: self._app.log, lambda: self._app._runtime)
        return self._sinks

    @property
    def attachments(self) -> Attachments:
        """The stores that queries of the app may read."""
        from headwater.federation.attachments import Attachments

        if self._attachments is None:
            self._attachments = Attachments(self._app.log)
        return self._attachments

    # Running

    def start(self, on_tick: OnTick | None) -> OnTick | None:
        """Start all of them; returns the call-back for each tick."""
        try:
            if self._captures:
                self._captures.start(self._app.log)
            if self._inlets is not None:
                self._inlets.start()
            if self._app.aggregates:
                self._watch_deadlines()
            self._runners = [*self._app.runners(), *self._backups(), *self._expiries()]
            for runner in self._runners:
                runner.start()
            return on_tick if self._sinks is None else self._sinks.follow(on_tick)
        except BaseException:
            self.stop()
            raise

    def _backups(self) -> list[BackgroundRunner]:
        from headwater.upkeep.backup.backup_places import BackupPlaces

        app = self._app
        if not self.backups and (app.log.local.read_only or not BackupPlaces(app.log.local.catalog).known()):
            return []
        from headwater.upkeep.backup.backup_schedule import BackupSchedule
        from headwater.upkeep.erasure.erased_places import ErasureRetries

        schedules = [BackupSchedule(lambda: app.log.local, plan, lambda: app.file) for plan in self.backups.values()]
        keys = {place: plan.key for place, plan in self.backups.items()}
        return [*schedules, ErasureRetries(lambda: app.log.local, keys)]

    def _expiries(self) -> list[BackgroundRunner]:
        if not self._app.has_purposes:
            return []
        from headwater.upkeep.erasure.purpose_expiry import ExpirySchedule

        app = self._app
        return [ExpirySchedule(lambda: app.log.local)]

    def expire(self, *, dry_run: bool) -> ExpiryReport:
        """Blank what has ended; see ``App.expire``."""
        from headwater.log.contract import Capability, require
        from headwater.upkeep.erasure.purpose_expiry import PurposeExpiry

        require(self._app.log, Capability.NATIVE_FILES, "an expiry")
        app = self._app
        forget = lambda: None if self._sinks is None else self._sinks.forget()  # noqa: E731
        work = PurposeExpiry(app.log.local, runtime=app._runtime, forget_in_sinks=forget)
        return work.find() if dry_run else work.run()

    def erase(
        self,
        person: Mapping[str, Any],
        *,
        dry_run: bool,
        backups: Sequence[str],
        key: KeySource | None,
        markers: Sequence[str],
    ) -> ErasureCertificate:
        """Erase a person; see ``App.erase``."""
        from headwater.log.contract import Capability, require
        from headwater.upkeep.erasure.person_erasure import PersonErasure, parse_person

        require(self._app.log, Capability.NATIVE_FILES, "an erasure")
        subject, value = parse_person([f"{name}={value}" for name, value in person.items()])
        app = self._app
        keys = {place: plan.key for place, plan in self.backups.items() if plan.key is not None}
        work = PersonErasure(
            app.log.local,
            subject,
            value,
            runtime=app._runtime,
            forget_in_sinks=lambda: None if self._sinks is None else self._sinks.forget(),
            backups=list(dict.fromkeys([*self.backups, *backups])),
            keys=keys if key is None else {**dict.fromkeys(backups, key), **keys},
            markers=markers,
        )
        return work.find() if dry_run else work.run()

    def _watch_deadlines(self) -> None:
        from headwater.aggregates.tentative_deadlines import DeadlineWatch

        self._deadlines = DeadlineWatch(self._app.aggregates.values())
        self._deadlines.start()

    @contextmanager
    def running(self, on_tick: OnTick | None) -> Iterator[OnTick | None]:
        """The same, until the end of the block."""
        after_tick = self.start(on_tick)
        try:
            yield after_tick
        finally:
            self.stop()

    def stop_inflow(self) -> None:
        """Stop captures, inlets, processes and services."""
        with ExitStack() as ending:
            for runner in self._runners:
                ending.callback(runner.stop)
            if self._captures:
                ending.callback(self._captures.stop)
            if self._inlets is not None:
                ending.callback(self._inlets.stop)
            if self._deadlines is not None:
                ending.callback(self._deadlines.stop)

    def stop(self) -> None:
        """Stop all of them."""
        with ExitStack() as ending:
            if self._sinks is not None:
                ending.callback(self._sinks.stop)
            ending.callback(self.stop_inflow)  # the last one is called first

    # Events

    def ticked(self, *, sync: bool) -> None:
        """``app.tick()`` has committed a tick."""
        if self._sinks is not None:
            self._sinks.ticked(sync=sync)

    def refuse_drop(self, view: str) -> None:
        """A view that a sink carries cannot go."""
        if self._sinks is not None:
            self._sinks.refuse_drop(view)

    def views_changed(self) -> None:
        """The declared views have changed: sinks begin again with the next tick."""
        if self._sinks is not None:
            self._sinks.close()

    def close(self) -> None:
        """Stop all of them, and release their resources."""
        self.stop_inflow()
        self.views_changed()
        self._inlets = None
