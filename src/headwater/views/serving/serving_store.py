"""The serving store: every view's rows in one SQLite file, for reads in microseconds from any process.

What it is: ``ServingStore``, which the running app fills tick by tick, and which any process reads without Spark: SQL
over the views, point reads by key, waiting for a tick.
Invariants: a tick's changes of all views and the row that remembers the tick are one transaction, so readers see whole
ticks only, and a tick that is applied again is skipped. A gap between ticks, an older epoch, and a row that leaves
without being there are refused, and then nothing of the tick is kept; or, if asked, nothing of that view alone
(``serving_damage.py``). The store holds copies: it can be thrown away.
Not here: one view's table (``serving_tables.py``), the SQL of reading (``serving_queries.py``), types
(``serving_columns.py``), the file (``serving_file.py``).
Read next: ``serving_tables.py``, ``docs/serving.md``.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.clock import Clock
from headwater.errors import Fenced, HeadwaterError, InvalidDeclaration, Misuse
from headwater.hints import suggestion
from headwater.log.schema.columns import shorten
from headwater.log.schema.row_conversion import to_rows
from headwater.log.storage.files import Files
from headwater.log.storage.wake import Waker
from headwater.log.token import Token
from headwater.views.serving.serving_columns import ServedColumn, quoted
from headwater.views.serving.serving_damage import broken_views, changed_apart, damaged, mended
from headwater.views.serving.serving_file import ServingFile
from headwater.views.serving.serving_queries import SELECT_ERRORS, Bounds, in_bounds, point_read, select
from headwater.views.serving.serving_schema import OWN_NAMES, TABLES
from headwater.views.serving.serving_tables import ServedTable, ServedTableState

FILE = "serving.sqlite"
NO_TICK = -1
FIRST_TICKS = (0, 1)  # an app may count its ticks from either
LOOK_S = 1.0  # a waiter looks this often even without being woken: the writer may have died before it could
WAKE_BYTES_MAX = 4096


def store_path(home: str | os.PathLike[str], app: str) -> Path:
    """Where an app of a home has its serving store."""
    return Path(home) / "views" / app / FILE


@dataclass(frozen=True)
class ServingProgress:
    """How far the store is."""

    tick: int
    epoch: int
    frontier: Token
    committed_us: int


class ServingStore:
    """All views of an app, in one SQLite file.

    >>> import tempfile
    >>> store = ServingStore(Path(tempfile.mkdtemp()) / "serving.sqlite")
    >>> _ = store.declare("revenue", [("country", "STRING"), ("total", "DECIMAL(20,2)")], ("country",), "f1")
    >>> changes = pa.table({"country": ["DE"], "total": ["9.50"], "_weight": [1]})
    >>> store.apply(1, 1, {"orders": {0: 4}}, {"revenue": changes})
    True
    >>> store.get("revenue", "DE")
    [{'country': 'DE', 'total': Decimal('9.50')}]
    >>> store.query("SELECT country FROM revenue WHERE total > ?", [9]).to_pylist()
    [{'country': 'DE'}]
    >>> store.tick, str(store.frontier)
    (1, 'orders:0=4')
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        spill: bool = True,
    ) -> None:
        self.path = Path(path)
        self._file = ServingFile(self.path, spill=spill)
        self.vacuum = self._file.vacuum
        self._files = files or Files()
        self._clock = clock or Clock()
        self._waker: Waker | None = None
        self._known: tuple[int, dict[str, ServedTable]] | None = None
        self._declared: dict[str, list[str]] = {}
        self._made = False

    # Declaring

    def declare(
        self, view: str, columns: Iterable[tuple[str, str]], key: Sequence[str] = (), fingerprint: str = ""
    ) -> bool:
        """Make sure that there is a table for this view; True when it was just made and waits for its rows.

        A view that is there with another fingerprint, columns or key gets a second table. Changes and ``reset`` go to
        that one, readers go on reading the first, until ``swap``.
        """
        wanted = _checked(view, columns, key, fingerprint)
        with self._write() as db:
            tables = self._tables(db, view)
            for table in tables:
                if table.state is ServedTableState.FILLING:
                    self._forget(db, table)
            live, following = _of(tables, ServedTableState.LIVE), _of(tables, ServedTableState.NEXT)
            if following is not None and _same(following, wanted):
                return False
            if following is not None:
                self._forget(db, following)
            if live is not None and _same(live, wanted):
                return False
            state = ServedTableState.LIVE if live is None else ServedTableState.NEXT
            made = self._make(db, replace(wanted, state=state, as_of_tick=self._progress(db).tick))
            made.create_index(db)
            if state is ServedTableState.LIVE:
                made.show(db)
            return True

    def swap(self, view: str) -> bool:
        """Let the table that was declared last take the place of the one that is read; False when it is that one."""
        with self._write() as db:
            return self._swap(db, view)

    def _swap(self, db: sqlite3.Connection, view: str) -> bool:
        tables = self._tables(db, view)
        live, following = _of(tables, ServedTableState.LIVE), _of(tables, ServedTableState.NEXT)
        if live is None or following is None:
            return False
        self._replace(db, live, following, ServedTableState.LIVE)
        return True

    def drop(self, view: str) -> None:
        """Remove a view and its rows."""
        with self._write() as db:
            for table in self._tables(db, view):
                self._forget(db, table)
            db.execute(f"DROP VIEW IF EXISTS {quoted(view)}")

    # Filling

    def apply(
        self,
        tick: int,
        epoch: int,
        frontier: Token | Mapping[str, Mapping[int, int]],
        changes: Mapping[str, pa.Table],
        *,
        swap: Collection[str] = (),
        on_broken: Callable[[str, Exception], None] | None = None,
    ) -> bool:
        """Apply one tick's changes (columns and ``_weight``) of all views; False when they are in the store already.

        The views in ``swap`` are swapped in the same transaction, so that a new query is seen with this tick.
        ``Fenced`` when a process with a newer epoch has written; ``Misuse`` when ticks between were left out. A view
        whose table cannot take its changes fails all of it; with ``on_broken``, which is called, that view alone: it
        cannot be read until ``reset``.
        """
        failed: list[tuple[str, Exception]] = []
        with self._write() as db:
            if not _is_next(self._progress(db), tick, epoch):
                return False
            broken = broken_views(db) if on_broken is not None else {}
            for view, rows in changes.items():
                table = self._target(db, view)
                if not rows.num_rows or tick <= table.as_of_tick or view in broken:
                    continue
                if on_broken is None:
                    table.change(db, rows)
                elif (error := changed_apart(db, table, rows)) is not None:
                    failed.append((view, error))
            for view in swap:
                self._swap(db, view)
            self._store_progress(db, tick, epoch, frontier)
        self._wake()
        for view, error in failed:
            assert on_broken is not None
            on_broken(view, error)
        return True

    def broken(self) -> dict[str, str]:
        """The views that cannot be read until they are refilled, each with the reason."""
        if not self.path.exists():
            return {}
        with self._file.read() as db:
            return broken_views(db)

    def reset(self, view: str, rows: pa.RecordBatchReader, *, tick: int | None = None) -> None:
        """Replace a view's rows by these, in bulk; readers see the old ones until all are there.

        ``tick`` says which tick the rows are of, when it is not the store's: changes up to it are then passed over.
        """
        with self._write() as db:
            target = self._target(db, view)
            as_of = self._progress(db).tick if tick is None else tick
            filling = self._make(db, replace(target, state=ServedTableState.FILLING, as_of_tick=as_of))
        try:
            for batch in rows:
                # Each in a transaction of its own: one for all would keep the whole view in the write-ahead log.
                with self._write() as db:
                    filling.insert(db, batch)
            with self._write() as db:
                filling.create_index(db)
                old = self._target(db, view)
                self._replace(db, old, filling, old.state)
                mended(db, view)
        except BaseException:
            with self._write() as db:  # a process that dies here leaves it to the next declaration
                self._forget(db, filling)
            raise
        self._wake()

    def set_progress(self, tick: int, epoch: int, frontier: Token | Mapping[str, Mapping[int, int]]) -> None:
        """Say that the store stands at this tick: after ``reset`` of all views in a new store."""
        with self._write() as db:
            progress = self._progress(db)
            if progress.epoch > epoch:
                raise _fenced(progress, epoch)
            self._store_progress(db, tick, epoch, frontier)
        self._wake()

    # Reading

    @property
    def progress(self) -> ServingProgress:
        """The last tick that was applied, with its epoch, frontier and time."""
        with self._file.read() as db:
            return self._progress(db)

    @property
    def tick(self) -> int:
        """The last tick that was applied; -1 when there was none."""
        return self.progress.tick if self.path.exists() else NO_TICK

    @property
    def frontier(self) -> Token:
        """The frontier of the log that the views contain."""
        return self.progress.frontier if self.path.exists() else Token({})

    def views(self) -> dict[str, ServedTable]:
        """The views that can be read, by name."""
        with self._file.read() as db:
            return dict(self._live(db))

    def query(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> pa.Table:
        """The answer of one SELECT in SQLite's dialect over the views, at one tick. Nothing can be changed by it.

        A column of a view has its Spark type; an expression has SQLite's.
        """
        return self.asked(sql, params)[1]

    def asked(
        self, sql: str, params: Sequence[Any] | Mapping[str, Any] = (), bounds: Bounds | None = None
    ) -> tuple[int, pa.Table]:
        """As ``query``, for strangers: the tick, and an answer within bounds.

        ``TimedOut`` when it takes longer, ``AnswerTooLarge`` when it is larger; of rows there are only so many.
        """
        within = bounds or Bounds()
        with self._file.ask() as (db, gate):
            with gate.trusting():
                tick = self._progress(db).tick
                views = self._live(db)
            gate.show(views, within.hidden)
            try:
                with in_bounds(db, within), gate.refusals_named():
                    return tick, select(db, gate, views, sql, params, self._declared, within)
            except SELECT_ERRORS as error:
                raise Misuse(
                    f"the query cannot be run: {error}",
                    detail=f"The query: {shorten(sql)}",
                    hint="One SELECT in SQLite's dialect. The views: " + (", ".join(sorted(views)) or "none"),
                ) from error

    def first(self, view: str, bounds: Bounds) -> tuple[int, pa.Table]:
        """The tick, and the first rows of a view."""
        return self.asked(f"SELECT * FROM {quoted(view)} LIMIT {bounds.rows}", (), bounds)

    def get(self, view: str, *key: Any, **columns: Any) -> list[dict[str, Any]]:
        """The rows of a view with this key, or with these values in some columns.

        >>> import tempfile
        >>> store = ServingStore(Path(tempfile.mkdtemp()) / "serving.sqlite")
        >>> _ = store.declare("users", [("id", "BIGINT"), ("name", "STRING")], ("id",))
        >>> _ = store.apply(1, 1, {}, {"users": pa.table({"id": [7], "name": ["Ada"], "_weight": [1]})})
        >>> store.get("users", 7) == store.get("users", name="Ada") == [{"id": 7, "name": "Ada"}]
        True
        """
        with self._file.read() as db:
            return to_rows(point_read(db, self._served(db, view), key, columns))

    def found(self, view: str, columns: Mapping[str, Any], bounds: Bounds) -> tuple[int, pa.Table]:
        """For strangers: the tick, and rows of a view with these values in some columns."""
        with self._file.read() as db, in_bounds(db, bounds):
            batch = point_read(db, self._served(db, view), (), columns, bounds)
            return self._progress(db).tick, pa.Table.from_batches([batch])

    def _served(self, db: sqlite3.Connection, view: str) -> ServedTable:
        table = self._live(db).get(view)
        if table is None:
            raise self._unknown(db, view)
        return table

    def wait(self, until: int | Token, timeout: float | None = None) -> bool:
        """Sleep until a tick, or a frontier, is in the store; False when the time ran out first."""
        clock = self._clock
        deadline = None if timeout is None else clock.monotonic() + timeout
        if self._waker is None:
            self._waker = Waker()
        while True:
            # Watched before the look: what is committed after the look wakes.
            if self.path.parent.exists():
                self._waker.watch(self.path.parent)
            count = self._waker.count()
            if self.path.exists() and self._has(until):
                return True
            left = LOOK_S if deadline is None else min(LOOK_S, deadline - clock.monotonic())
            if left <= 0:
                return False
            self._waker.wait(count, left)

    def _has(self, until: int | Token) -> bool:
        progress = self.progress
        return progress.frontier.covers(until) if isinstance(until, Token) else progress.tick >= until

    def close(self) -> None:
        """Give all resources back."""
        if self._waker is not None:
            self._waker.close()
            self._waker = None
        self._file.close()

    def __enter__(self) -> ServingStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ServingStore({str(self.path)!r})"

    # Inside

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._file.write() as db:
            if not self._made:
                for statement in TABLES:
                    db.execute(statement)
            yield db
        self._made = True

    def _progress(self, db: sqlite3.Connection) -> ServingProgress:
        # A process that was killed as it made the store leaves a file without tables.
        made = db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (f"{OWN_NAMES}progress",)).fetchone()
        row = made and db.execute(f"SELECT tick, epoch, frontier, committed_us FROM {OWN_NAMES}progress").fetchone()
        if row is None:
            return ServingProgress(NO_TICK, 0, Token({}), 0)
        tick, epoch, frontier, committed_us = row
        topics = json.loads(frontier)
        offsets = {topic: {int(number): offset for number, offset in each.items()} for topic, each in topics.items()}
        return ServingProgress(tick, epoch, Token(offsets), committed_us)

    def _store_progress(
        self, db: sqlite3.Connection, tick: int, epoch: int, frontier: Token | Mapping[str, Mapping[int, int]]
    ) -> None:
        offsets = frontier.frontier if isinstance(frontier, Token) else frontier
        text = json.dumps({topic: dict(each) for topic, each in offsets.items()})
        row = (tick, epoch, text, self._clock.now_us())
        db.execute(f"INSERT OR REPLACE INTO {OWN_NAMES}progress VALUES (1, ?, ?, ?, ?)", row)

    def _tables(self, db: sqlite3.Connection, view: str) -> list[ServedTable]:
        # Spark and SQLite both take names for equal that differ only in case.
        rows = db.execute(f"SELECT * FROM {OWN_NAMES}tables WHERE lower(view) = lower(?)", (view,))
        return [ServedTable.of_row(row) for row in rows.fetchall()]

    def _target(self, db: sqlite3.Connection, view: str) -> ServedTable:
        """Where changes of the view go: to the table that was declared last."""
        tables = self._tables(db, view)
        found = _of(tables, ServedTableState.NEXT) or _of(tables, ServedTableState.LIVE)
        if found is None:
            raise self._unknown(db, view)
        return found

    def _live(self, db: sqlite3.Connection) -> dict[str, ServedTable]:
        """The tables that are read; looked up again when one was made or dropped."""
        (version,) = db.execute("PRAGMA schema_version").fetchone()
        if self._known is None or self._known[0] != version:
            # A process that is just making the store, or died making it, has a file without tables.
            made = db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (f"{OWN_NAMES}tables",)).fetchone()
            wanted = f"SELECT * FROM {OWN_NAMES}tables WHERE state = ?"
            rows = db.execute(wanted, (ServedTableState.LIVE,)).fetchall() if made else []
            self._declared = {}
            broken = broken_views(db)
            found = {table.view: table for table in map(ServedTable.of_row, rows) if table.view not in broken}
            self._known = (version, found)
        return self._known[1]

    def _make(self, db: sqlite3.Connection, table: ServedTable) -> ServedTable:
        view, _, *rest = table.to_row()
        number = db.execute(f"INSERT INTO {OWN_NAMES}tables VALUES (?, NULL, ?, ?, ?, ?, ?)", (view, *rest)).lastrowid
        assert number is not None
        made = replace(table, number=number)
        made.create(db)
        return made

    def _forget(self, db: sqlite3.Connection, table: ServedTable) -> None:
        if table.state is ServedTableState.LIVE:
            db.execute(f"DROP VIEW IF EXISTS {quoted(table.view)}")
        table.drop(db)
        db.execute(f"DELETE FROM {OWN_NAMES}tables WHERE number = ?", (table.number,))

    def _replace(self, db: sqlite3.Connection, old: ServedTable, new: ServedTable, state: ServedTableState) -> None:
        """Let ``new`` be what ``old`` was."""
        self._forget(db, old)
        db.execute(f"UPDATE {OWN_NAMES}tables SET state = ? WHERE number = ?", (state, new.number))
        if state is ServedTableState.LIVE:
            new.show(db)

    def _unknown(self, db: sqlite3.Connection, view: str) -> HeadwaterError:
        reason = broken_views(db).get(view)
        if reason is not None:
            return damaged(view, reason)
        return InvalidDeclaration(
            f'the serving store has no view "{view}"', hint=suggestion(view, list(self._live(db))), view=view
        )

    def _wake(self) -> None:
        """Change a small file beside the store, to wake waiters (``log/storage/wake.py`` watches files of this
        ending)."""
        fd = self._files.create(self.path.with_suffix(".index"), label="serving.wake")
        try:
            if os.fstat(fd).st_size >= WAKE_BYTES_MAX:
                self._files.truncate(fd, 0, label="serving.wake")
            self._files.write(fd, [b"."], label="serving.wake")
        finally:
            os.close(fd)


def _checked(view: str, columns: Iterable[tuple[str, str]], key: Sequence[str], fingerprint: str) -> ServedTable:
    """The declaration, or why it makes no sense."""
    if view.lower().startswith(("sqlite_", OWN_NAMES)) or "@" in view:
        raise InvalidDeclaration(
            f'a view cannot be served under the name "{view}"', hint="Names with sqlite_ in front, or an @, are taken."
        )
    made = tuple(ServedColumn.of(name, type) for name, type in columns)
    names = [column.name for column in made]
    for name in key:
        if name not in names:
            raise InvalidDeclaration(f'key "{name}" is not a column of view "{view}"', hint=suggestion(name, names))
    return ServedTable(view, 0, made, tuple(key), fingerprint, ServedTableState.LIVE, NO_TICK)


def _of(tables: Sequence[ServedTable], state: ServedTableState) -> ServedTable | None:
    return next((table for table in tables if table.state is state), None)


def _same(one: ServedTable, other: ServedTable) -> bool:
    return (one.view, one.columns, one.key, one.fingerprint) == (
        other.view,
        other.columns,
        other.key,
        other.fingerprint,
    )


def _is_next(progress: ServingProgress, tick: int, epoch: int) -> bool:
    """Whether the tick is to be applied; an error when it must not be."""
    if epoch < progress.epoch:
        raise _fenced(progress, epoch)
    if tick <= progress.tick:
        return False
    if tick == progress.tick + 1 or (progress.tick == NO_TICK and tick in FIRST_TICKS):
        return True
    raise Misuse(
        f"tick {tick} cannot follow tick {progress.tick} in the serving store",
        detail="The changes of the ticks between would be missing." if progress.tick != NO_TICK else "It is empty.",
        hint="Apply the ticks in order, or refill every view (reset) and say where it stands (set_progress).",
        tick=tick,
        expected=progress.tick + 1,
    )


def _fenced(progress: ServingProgress, epoch: int) -> Fenced:
    return Fenced(
        f"a newer process runs this app: it has epoch {progress.epoch}, this one {epoch}",
        detail="Nothing of this tick was applied.",
        hint="Stop this process, or start it again to take over.",
        epoch=progress.epoch,
    )
