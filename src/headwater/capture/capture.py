"""Capture: one database's changes, followed into the log.

What it is: ``Capture`` runs the tables that share one slot: the backfill of those that need it, then the stream with
its markers.
Invariants: it resumes by itself after a crash, a lost connection or a restart of the database; a condition that
prevents this (a lost slot, a changed key) ends it with an error that names the remedy. The database may forget only
positions that a marker covers or that concern no captured table, which is noted before, and never one that a table in
backfill still needs. A second process leaves a running one undisturbed.
Not here: SQL (``capture/postgres/postgres_database.py``), conversion of transactions (``change_writer.py``), starting
(``app.py``). Read next: ``change_writer.py``, ``backfill.py``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwater.backoff import Backoff
from headwater.capture.backfill import Backfill, BackfillProgress
from headwater.capture.capture_state import BACKFILL, FOLLOWING, WAITING, CaptureState, TableState
from headwater.capture.change_writer import ChangeWriter, has_new_values
from headwater.capture.database import CapturedDatabase, Stream
from headwater.capture.outbox import Router
from headwater.capture.table_follower import TableFollower
from headwater.errors import CaptureLost, SourceRefused, SourceUnavailable, TimedOut
from headwater.log.contract import EventLog
from headwater.log.event_time.capture_markers import Marker, Markers
from headwater.log.maintenance import alerts

logger = logging.getLogger("headwater.capture")

IDLE_SECONDS = 0.25
RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.1, 10.0
CONFIRM_SECONDS = 1.0
WATCH_SECONDS = 30.0
LAG_BYTES_ALERT = 1 << 30


@dataclass(frozen=True)
class CapturedTable:
    """The progress of a captured table."""

    capture: str
    table: str
    source: str
    phase: str
    rows_done: int
    rows_estimated: int
    values_lost: int
    position: str | None
    committed_at: Any
    lag_bytes: int | None = None
    slot: str | None = None


@dataclass(frozen=True)
class Watched:
    """The amount of log that a database retains for a capture; ``message`` is set when it is too much."""

    capture: str
    lag_bytes: int | None
    active: bool
    state: str
    message: str | None


class Capture:
    """The tables of one slot. ``run`` follows them until ``stop``."""

    def __init__(
        self,
        log: EventLog,
        server: CapturedDatabase,
        tables: Mapping[str, str],
        *,
        on_progress: Callable[[BackfillProgress], None] | None = None,
        lag_bytes_alert: int = LAG_BYTES_ALERT,
        routers: Sequence[Router] = (),
    ) -> None:
        self.routers = routers
        self.log = log
        self.server = server
        self.tables = dict(tables)  # the topic's name, and the table's in its database
        self.on_progress = on_progress
        self.lag_bytes_alert = lag_bytes_alert
        self.name = server.name
        self.state = CaptureState(log.home / "captures" / f"{server.name}.sqlite")
        self.markers = Markers.declared(log, server.name)
        self.error: BaseException | None = None
        self._stopping = threading.Event()
        self._backfill_error: BaseException | None = None
        self._away_since: float | None = None
        self._released_to = 0  # the furthest position that was noted as released to the database
        self._caught_up = False

    # Running

    def run(self, *, until: str | None = None, timeout: float | None = None) -> None:
        """Follow until ``stop``, for ``timeout`` seconds, or ``until="caught up"`` with what is committed now.

        With both, ``TimedOut`` is raised if it has not caught up in that time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        target: int | None = None
        backoff = Backoff(RETRY_SECONDS_MIN, RETRY_SECONDS_MAX)
        while not self._over(deadline):
            try:
                generation = self._prepare()
                target = self.server.reach() if until is not None and target is None else target
                if self._follow(generation, target, deadline):
                    break
                backoff.reset()
            except SourceUnavailable as error:
                if target is not None and (self._confirmed_position() or 0) >= target and not self._unfilled():
                    self._caught_up = True  # by another process, which has the stream
                    break
                self._report_unavailable(error)
                pause = backoff.next()
                self._stopping.wait(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))
            finally:
                self.server.close()
        if until is not None and not self._caught_up and not self._stopping.is_set():
            raise TimedOut(
                f'capture "{self.name}" has not caught up within {timeout:g} s',
                hint="Captured changes are in the log, and the next run continues from there.",
                capture=self.name,
            )

    def stop(self) -> None:
        """End ``run`` soon, from another thread."""
        self._stopping.set()

    def stopped(self, within: float) -> bool:
        """Whether ``stop`` was called; waits up to this many seconds."""
        return self._stopping.wait(within)

    def _over(self, deadline: float | None = None) -> bool:
        return self._stopping.is_set() or (deadline is not None and time.monotonic() > deadline)

    def _report_unavailable(self, error: SourceUnavailable) -> None:
        if self._away_since is None:  # once, not with every try
            self._away_since = time.monotonic()
            logger.warning('capture "%s": %s; trying again', self.name, error)

    def _report_available(self) -> None:
        if self._away_since is not None:
            logger.warning('capture "%s": the database is back', self.name)
            self._away_since = None

    def _prepare(self) -> str:
        """Create or find the position in the database's log, and add new tables; returns the generation's name."""
        server, state = self.server, self.state
        identity = server.identity()
        generation = state.fact("generation")
        if generation is None:
            position = self._create(identity)
        elif state.fact("identity") != identity:
            raise CaptureLost(
                f'another database answers than the one that capture "{self.name}" has followed',
                detail=f"It was {state.fact('identity')}, and is {identity}: a restored copy, or another server.",
                hint="Correct the dsn; or read the tables again: headwater capture restart APP.py",
            )
        elif self._is_in_place():
            self._released_to = self._confirmed_position() or 0
            position = int(state.fact("base") or 0)
        else:
            self.restart()
            position = self._create(identity)
        server.base = position
        known = state.tables()
        for name, source in self.tables.items():
            if name not in known:
                state.add_table(name, source, hold=max(position, self._confirmed()))
            elif known[name].phase != WAITING:
                shape = server.describe(source)
                if has_new_values(server, state, name, shape) or self._has_another_door(name, source):
                    self._refill([name])
            self._pass_by_door(name, source)
        self.note_failure(None)
        generation = state.fact("generation")
        assert generation is not None
        return generation

    def _has_another_door(self, name: str, source: str) -> bool:
        door = self.server.doors.get(source)
        return (self.state.fact(f"door {name}") or "") != ("" if door is None else door.fingerprint)

    def _pass_by_door(self, name: str, source: str) -> None:
        """From here on a table's rows pass this door: what is remembered of those that passed another one goes."""
        if self._has_another_door(name, source):
            self.state.forget_large_values(name)
            door = self.server.doors.get(source)
            self.state.remember(**{f"door {name}": "" if door is None else door.fingerprint})

    def _is_in_place(self) -> bool:
        """Whether the database has the position that the log has; in a home that was restored it may not."""
        restored = self.state.fact("restored")
        try:
            if restored != "again":
                self.server.check(self._confirmed_position)
                self.state.remember(restored="")
                return True
            why = "the log was restored to a point before its newest rows"
        except CaptureLost as error:
            if not restored:
                raise
            why = error.message
        logger.warning('capture "%s" reads its tables again, since its home was restored: %s', self.name, why)
        return False

    def _refill(self, names: Iterable[str]) -> None:
        """Backfill tables again while the stream goes on. Until that is done their old state is visible."""
        for name in names:
            logger.warning(
                'capture "%s": table "%s" is backfilled again because its columns have changed', self.name, name
            )
            hold = max(int(self.state.fact("base") or 0), self._confirmed())
            self.state.change_table(name, phase=WAITING, hold=hold, reach=0)

    def _create(self, identity: str) -> int:
        # Noted before it is created: a leftover of a crash in between is ours, and is replaced.
        self.server.remove_leftovers(ours=self.state.fact("making") == identity)
        self.state.remember(making=identity)
        try:
            position = self.server.create(sorted(self.tables.values()))
        except SourceRefused:  # nothing was made
            self.state.remember(making="")
            raise
        # With the markers from before: a log may begin at the same position again.
        since = str(self.markers.topic.end_offsets()[0])
        generation = f"{self.name}@{identity}@{position}@{since}"
        self.state.remember(
            identity=identity,
            base=str(position),
            generation=generation,
            since=since,
            making="",
            confirmed=str(position),
        )
        return position

    def _confirmed(self) -> int:
        last = self.markers.last()
        base = int(self.state.fact("base") or 0)
        return base if last is None or last.offset < self._since() else max(base, last.number)

    def _confirmed_position(self) -> int | None:
        """The position that was confirmed to the database; None in a home from before it was noted."""
        confirmed = self.state.fact("confirmed")
        return None if confirmed is None else max(int(confirmed), self._confirmed())

    def _since(self) -> int:
        return int(self.state.fact("since") or 0)

    # Following

    def _follow(self, generation: str, target: int | None, deadline: float | None) -> bool:
        """Stream until the end (True), or until it must restart because tables were backfilled (False)."""
        self.server.claim()  # before anything is taken from a process that follows now
        filling = self._start_backfill(generation)
        try:
            if filling is not None and not any(table.phase == FOLLOWING for table in self._mine()):
                # Nothing streams yet: the slot keeps everything until the chunks are read.
                self._report_available()
                while filling.is_alive() and not self._over(deadline):
                    filling.join(0.1)
                filling = None if not filling.is_alive() else filling
                self._check_backfill()
            if self._over(deadline):
                return True
            return self._stream(generation, target, deadline)
        finally:
            if filling is not None:
                self._stop_backfill = True
                filling.join()

    def _mine(self) -> list[TableState]:
        return [table for name, table in self.state.tables().items() if name in self.tables]

    def _start_backfill(self, generation: str) -> threading.Thread | None:
        self._backfill_error = None
        self._stop_backfill = False
        if not any(table.phase in (WAITING, BACKFILL) for table in self._mine()):
            return None
        backfill = Backfill(
            self.server,
            self.log,
            self.state,
            generation,
            self.on_progress,
            lambda: self._stopping.is_set() or self._stop_backfill,
        )

        def fill() -> None:
            try:
                backfill.run()
            except BaseException as error:
                self._backfill_error = error

        thread = threading.Thread(target=fill, name="headwater-backfill", daemon=True)
        thread.start()
        return thread

    def _check_backfill(self) -> None:
        if self._backfill_error is not None:
            raise self._backfill_error

    def _stream(self, generation: str, target: int | None, deadline: float | None) -> bool:
        changes = ChangeWriter(self.server, self._followers(generation), self.markers, self.state, self._since())
        hold = self._hold()
        start = min(self._confirmed(), hold) if hold else self._confirmed()
        stream = self.server.stream(changes, start)
        self._report_available()
        confirmed = watched = asked = 0.0
        self._route()  # what a crash prevented
        try:
            while not self._over(deadline):
                came = stream.read(IDLE_SECONDS)
                if changes.to_refill:
                    self._refill(changes.to_refill)
                    return False
                marked = changes.mark() if changes.waiting or self._arriving(changes) else False
                now = time.monotonic()
                if marked:
                    self._route()
                if marked or now - confirmed > CONFIRM_SECONDS:
                    self._confirm(stream, changes)
                    confirmed = now
                if now - watched > WATCH_SECONDS:
                    self.watch()
                    watched = now
                self._check_backfill()
                if changes.has_idle and not self._filling():
                    return False  # restart, from where the backfilled tables need it
                if target is not None and changes.position >= target and not self._unfinished(changes):
                    self._confirm(stream, changes)
                    self._caught_up = True
                    return True
                if not came and now - asked > IDLE_SECONDS and (target is not None or self._arriving(changes)):
                    stream.ask()
                    asked = now
            return True
        finally:
            stream.close()

    def _route(self) -> None:
        for router in self.routers:
            router.route()

    def _filling(self) -> bool:
        return any(table.phase in (WAITING, BACKFILL) for table in self._mine())

    def _unfinished(self, changes: ChangeWriter) -> bool:
        # By the stored state, not by what ``changes`` began with: a concurrent backfill may just have ended.
        return changes.waiting or self._unfilled()

    def _unfilled(self) -> bool:
        return any(table.phase != FOLLOWING for table in self._mine())

    def _arriving(self, changes: ChangeWriter) -> bool:
        return changes.has_unnamed

    def _followers(self, generation: str) -> dict[str, TableFollower]:
        followers = {}
        for name, table in self.state.tables().items():
            if name not in self.tables:
                continue
            topic = self.log.get_topic(name)
            # Only at the beginning: the stream has the table's columns at each moment.
            shape = replace(self.server.describe(table.source), key=topic.settings.key)
            followers[table.source] = TableFollower(topic, shape, table, self.state, generation)
        return followers

    def _hold(self) -> int:
        holds = [table.hold for table in self._mine() if table.phase != FOLLOWING and table.hold]
        return min(holds, default=0)

    def _confirm(self, stream: Stream, changes: ChangeWriter) -> None:
        position = changes.position if not changes.waiting else changes.marked
        hold = self._hold()
        position = min(position, hold) if hold else position
        # Noted before the database forgets it: if it has forgotten more, another copy of this home has followed.
        if position > max(changes.marked, self._released_to):
            self._released_to = position
            self.state.remember(confirmed=str(position))
        stream.confirm(position)

    # Maintenance

    def watch(self) -> Watched:
        """Note an alert when the database retains much of its log. Also while the capture does not run."""
        lag = self.server.lag()
        message = None
        if (lag.bytes or 0) > self.lag_bytes_alert:
            message = f'slot "{self.name}" makes its database keep {lag.bytes:,} bytes of its log'
            if not lag.active:
                message += "; no process reads it: run the app, or release it with `headwater capture drop`"
        detail = {"slot": self.name, "lag_bytes": lag.bytes or 0, "active": lag.active}
        alerts.note_capture(self.markers.topic, "capture_lag", self.name, message, detail)
        return Watched(self.name, lag.bytes, lag.active, lag.state, message)

    def note_failure(self, error: BaseException | None) -> None:
        """Note an alert that the capture has ended with an error, until it is started again."""
        message = None if error is None else f'capture "{self.name}" ended: {error}'
        alerts.note_capture(self.markers.topic, "capture_failed", self.name, message, {})

    def restart(self) -> None:
        """Drop the position in the database's log, and backfill every table when it runs next."""
        self.server.drop()
        self.server.close()
        for name, table in self.state.tables().items():
            self.state.remove_table(name)
            if name in self.tables:
                self.state.add_table(name, table.source, hold=0)
        self.state.forget_facts()

    def drop(self) -> None:
        """Remove the capture from the database. The tables stay as they are and are ordinary tables from then on."""
        self.server.drop()
        self.server.close()
        for name in self.state.tables():
            self.state.remove_table(name)
        self.state.forget_facts()

    def describe(self, *, ask: bool = True) -> list[CapturedTable]:
        last: Marker | None = self.markers.last()
        lag = None
        if ask:
            try:
                lag = self.server.lag()
            except SourceUnavailable:
                lag = None
            finally:
                self.server.close()
        return [
            CapturedTable(
                self.name,
                table.name,
                table.source,
                table.phase,
                table.rows_done,
                table.rows_estimated,
                table.losses,
                last.position if last else None,
                last.committed_at if last else None,
                lag.bytes if lag else None,
                lag.state if lag else None,
            )
            for table in self.state.tables().values()
        ]

    def close(self) -> None:
        self.server.close()
        self.state.close()
