"""App captures: the captured tables of an app and the threads that run them.

What it is: ``Captures`` declares tables with a source, groups them by slot, and runs one ``Capture`` for each.
Invariants: a table's columns and key come from its database when it is declared; if the database does not answer, a
known table keeps its stored schema. Nothing is streamed before ``run`` or ``start``. A capture that ends with a
transient error is started again with backoff, unless the caller waits for its end.
Not here: one capture (``capture.py``). Read next: ``capture.py``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from typing import Any

import pyarrow as pa

from headwater.backoff import Backoff
from headwater.capture.backfill import BackfillProgress
from headwater.capture.capture import LAG_BYTES_ALERT, Capture, CapturedTable, Watched
from headwater.capture.database import CapturedDatabase, CaptureSource, SourceTable
from headwater.capture.door import OpenDoor
from headwater.capture.outbox import Outbox, Router
from headwater.capture.table_follower import grown
from headwater.errors import (
    Conflict,
    Corruption,
    DeclarationConflict,
    HeadwaterError,
    InvalidDeclaration,
    Misuse,
    SourceUnavailable,
)
from headwater.log.contract import EventLog
from headwater.log.schema.normalization import WEIGHT
from headwater.log.table import Table, declare_table
from headwater.log.topic_settings import TableOptions

logger = logging.getLogger("headwater.capture")

AGAIN_SECONDS_MIN, AGAIN_SECONDS_MAX = 1.0, 60.0  # from the end of a capture to its next start
SOUND_SECONDS = 60.0  # a capture that ran this long starts again with the shortest pause


class Captures:
    """The captures of an app."""

    def __init__(self, app: str) -> None:
        self.app = app
        self._tables: dict[str, dict[str, CaptureSource]] = {}  # by capture, by table
        self._running: list[tuple[Capture, threading.Thread]] = []

    def __bool__(self) -> bool:
        return bool(self._tables)

    # Declaring

    def declare(
        self, log: EventLog, name: str, source: CaptureSource, key: str | Sequence[str] | None, settings: TableOptions
    ) -> Table:
        """A table that follows ``source``."""
        capture = source.capture_name(self.app)
        if settings.get("partitions", 1) != 1:
            raise InvalidDeclaration(
                f'table "{name}" is captured, so it has one partition',
                hint="Leave partitions out: commits have an order.",
            )
        for other, known in self._tables.get(capture, {}).items():
            if known.table == source.table and other != name:
                raise DeclarationConflict(
                    f'{source.table} is captured as "{other}" already',
                    hint="Give one of the two another slot (PostgreSQL) or name (MySQL).",
                )
        table = self._declared(log, name, source, key, {**settings, "captured_by": capture})
        self._tables.setdefault(capture, {})[name] = source
        return table

    def _declared(
        self, log: EventLog, name: str, source: CaptureSource, key: str | Sequence[str] | None, settings: TableOptions
    ) -> Table:
        known = log.find_topic(name)
        server = source.server(self.app, log)
        server.doors = _doors(log, [source])
        try:
            shape = server.describe(source.table)
            if (door := server.doors.get(source.table)) is not None:
                door.check(shape, () if known is None else known.schema.names)
        except SourceUnavailable:
            if known is None or known.settings.captured_by is None:
                raise
            return Table(known)
        finally:
            server.close()
        wanted = (key,) if isinstance(key, str) else tuple(key or shape.key)
        if wanted != shape.key:
            raise InvalidDeclaration(
                f'table "{name}" cannot have the key {", ".join(wanted)}: {source.table} has {", ".join(shape.key)}',
                hint="Leave key out: it is taken from the database.",
            )
        return declare_table(log, name, self._schema(shape, known), key=shape.key or None, **settings)

    def _schema(self, shape: SourceTable, known: Any) -> pa.Schema:
        if known is None:
            return shape.schema
        stored = pa.schema([field for field in known.schema if field.name != WEIGHT])
        return grown(stored, shape)

    # Running

    def made(self, log: EventLog, on_progress: Callable[[BackfillProgress], None] | None = None) -> list[Capture]:
        """Create a ``Capture`` for each slot."""
        return [
            Capture(
                log,
                self._server(log, tables),
                {name: source.table for name, source in tables.items()},
                on_progress=on_progress,
                routers=[Router(log, each, name, capture) for name, each in tables.items() if isinstance(each, Outbox)],
            )
            for capture, tables in self._tables.items()
        ]

    def _server(self, log: EventLog, tables: dict[str, CaptureSource]) -> CapturedDatabase:
        server = next(iter(tables.values())).server(self.app, log)
        server.doors = _doors(log, tables.values())
        return server

    def run(
        self,
        log: EventLog,
        *,
        until: str | None = None,
        timeout: float | None = None,
        on_progress: Callable[[BackfillProgress], None] | None = None,
    ) -> None:
        """Run all captures until interrupted, for ``timeout`` seconds, or ``until="caught up"``."""
        if until not in (None, "caught up"):
            raise InvalidDeclaration(f"until cannot be {until!r}", hint='Use until="caught up", or leave it out.')
        self.start(log, until=until, timeout=timeout, on_progress=on_progress)
        try:
            for _, thread in self._running:
                while thread.is_alive():
                    thread.join(0.2)  # so that Ctrl-C interrupts it
                    self.check()
        finally:
            self.stop()

    def start(
        self,
        log: EventLog,
        *,
        until: str | None = None,
        timeout: float | None = None,
        on_progress: Callable[[BackfillProgress], None] | None = None,
    ) -> None:
        """Run all captures in threads of this process."""
        for capture in self.made(log, on_progress):
            thread = threading.Thread(
                target=_run, args=(capture, until, timeout), name=f"headwater-capture-{capture.name}", daemon=True
            )
            self._running.append((capture, thread))
            thread.start()

    @property
    def running(self) -> bool:
        """Whether a thread of ``start`` is still running."""
        return any(thread.is_alive() for _, thread in self._running)

    def check(self) -> None:
        for capture, _ in self._running:
            if capture.error is not None:
                raise capture.error

    def stop(self) -> None:
        for capture, _ in self._running:
            capture.stop()
        running, self._running = self._running, []
        for capture, thread in running:
            thread.join()
            capture.close()
        for capture, _ in running:
            if capture.error is not None:
                raise capture.error

    # Status

    def declared(self) -> dict[str, list[str]]:
        """The tables of each capture, by its name."""
        return {capture: list(tables) for capture, tables in self._tables.items()}

    def describe(self, log: EventLog) -> list[CapturedTable]:
        found: list[CapturedTable] = []
        for capture in self.made(log):
            with closing(capture):
                found += capture.describe()
        return found

    def watch(self, log: EventLog, *, lag_bytes_alert: int = LAG_BYTES_ALERT) -> list[Watched]:
        """Check how much log each database retains for its capture, and note an alert where that is too much."""
        found = []
        for capture in self.made(log):
            capture.lag_bytes_alert = lag_bytes_alert
            with closing(capture):
                found.append(capture.watch())
        return found

    def drop(self, log: EventLog) -> list[str]:
        """Remove the captures from the databases; returns the names of the dropped slots."""
        names = []
        for capture in self.made(log):
            with closing(capture):
                capture.drop()
                names.append(capture.name)
                for name in capture.tables:
                    log.get_topic(name).change_settings(captured_by=None)
        return names

    def restart(self, log: EventLog) -> list[str]:
        """Make every table start over with a backfill when its capture runs next."""
        names = []
        for capture in self.made(log):
            with closing(capture):
                capture.restart()
                names.append(capture.name)
        return names


def _doors(log: EventLog, sources: Iterable[CaptureSource]) -> dict[str, OpenDoor]:
    return {source.table: source.door.opened(log) for source in sources if source.door is not None}


def _run(capture: Capture, until: str | None, timeout: float | None) -> None:
    """Run a capture; without ``until`` and ``timeout``, again after a transient error."""
    backoff = Backoff(AGAIN_SECONDS_MIN, AGAIN_SECONDS_MAX)
    while True:
        began = time.monotonic()
        try:
            capture.run(until=until, timeout=timeout)
            return
        except BaseException as error:
            again = until is None and timeout is None and _may_pass(error)
            capture.error = None if again else error
            logger.error('capture "%s" ended%s: %s', capture.name, ", and is started again" * again, error)
            if not isinstance(error, HeadwaterError):
                logger.debug("its trace", exc_info=error)
            with suppress(HeadwaterError):  # for example a full disk, which the log has reported already
                capture.note_failure(error)
            if time.monotonic() - began > SOUND_SECONDS:
                backoff.reset()
            if not again or capture.stopped(backoff.next()):
                return


def _may_pass(error: BaseException) -> bool:
    """Whether an error is transient: not a missing right, a lost slot or damaged data, which need a person."""
    if isinstance(error, HeadwaterError):
        return not isinstance(error, Misuse | Conflict | Corruption)
    return isinstance(error, Exception)
