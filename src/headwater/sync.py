"""Sync: tables of a database, copied to another system and kept in step, without an app file.

What it is: ``Sync`` captures tables into a home of its own and lets a sink follow each of them; it is what
``headwater sync`` runs.
Invariants: no Spark is started. All tables are read up to whole transactions of the source. What is killed goes on
where it was, when it is run again with the same home.
Not here: capturing (``capture/``), following (``sinks/``), showing it (``cli/connectors/sync_command.py``).
Read next: ``sinks/runner/captured_table_reader.py``, ``docs/sync.md``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headwater.app import App
from headwater.errors import InvalidDeclaration, SinkRefused
from headwater.log.event_time.capture_markers import watched
from headwater.sinks.runner.captured_table_reader import CapturedTableReader
from headwater.sinks.runner.sink_runner import SinkRunner
from headwater.sinks.runner.sink_status import SinkState, SinkStatus
from headwater.sinks.runner.sink_task import SinkTask
from headwater.sinks.sink import PROGRESS_TABLE
from headwater.views.state.manifest import Manifests

if TYPE_CHECKING:
    from headwater.capture.backfill import BackfillProgress
    from headwater.capture.database import CaptureSource
    from headwater.sinks.sink import Sink

NAME = "sync"
TARGETS = "sqlite:FILE, postgresql://…, redis://…, search:FOLDER, parquet:FOLDER, delta:FOLDER"


@dataclass(frozen=True)
class TableSync:
    """How far one table is."""

    table: str
    source: str
    backfilled: int
    estimated: int | None
    copied: int
    status: SinkStatus


class Sync:
    """Tables of one database on their way to one other system.

    ``tables`` are names as the database has them (``users``, ``sales.orders``); none: all that there are.
    """

    def __init__(self, source: str, to: str, *, tables: Sequence[str] = (), home: str | os.PathLike[str]) -> None:
        check_target(to)
        check_source(source)
        names = list(tables) or tables_of(source)
        if not names:
            raise InvalidDeclaration("the database has no tables", hint="Name those you mean with --tables.")
        self.to = to
        database = "public" if is_postgres(source) else urlsplit(source).path.strip("/")
        self.sources = {short_name(name, database): name for name in names}
        self.backfills: dict[str, BackfillProgress] = {}
        self.app = App(NAME, home=home)
        try:
            slot = f"headwater_sync_{self.app.log.identity[:12]}"  # another home is another copy
            for name, table in self.sources.items():
                self.app.table(name, source=source_of(source, table, slot))
            self.runner = self._tasks()
        except BaseException:
            self.app.close()
            raise

    def _tasks(self) -> SinkRunner:
        log = self.app.log
        home, epoch = log.identity, Manifests(log.local.catalog, NAME).take_over()
        tasks = []
        for name in self.sources:
            sink = sink_of(self.to, name, log.get_topic(name).schema)
            reader = CapturedTableReader(log, name, home_id=home, epoch=lambda: epoch, whole=not sink.by_key)
            tasks.append(SinkTask(f"{name}.{sink.kind}", name, NAME, sink, reader, log))
        return SinkRunner(tasks)

    # Running

    def start(self, *, once: bool = False, on_progress: Callable[[BackfillProgress], None] | None = None) -> None:
        """Capture and follow in the background; with ``once``, capture only what is committed by now."""

        def note(progress: BackfillProgress) -> None:
            self.backfills[progress.table] = progress
            if on_progress is not None:
                on_progress(progress)

        until = "caught up" if once else None
        self.app.captures.start(self.app.log, until=until, on_progress=note)
        self.runner.start()

    def wait(self, seconds: float) -> None:
        """Sleep until something was captured, at most so long, and wake the sinks."""
        for topic in watched(self.app.log.get_topic(name) for name in self.sources):
            topic.wait(topic.end_offsets(), timeout=seconds)
        self.runner.wake()

    def check(self) -> None:
        """Raise what ended a capture or a sink."""
        self.app.captures.check()
        for task in self.runner.tasks.values():
            if task.stopped:
                error = task.status.error or {}
                raise SinkRefused(
                    error.get("message", f"the sink of {task.view} has stopped"),
                    detail=error.get("detail"),
                    hint=error.get("hint"),
                    table=task.view,
                )

    @property
    def caught_up(self) -> bool:
        """Whether all captures have ended (``once``) and the other system has what they brought."""
        if self.app.captures.running:
            return False
        for task in self.runner.tasks.values():
            head = task.reader.head()
            if head is None or task.status.state is not SinkState.FOLLOWING or task.status.tick < head.tick:
                return False
        return True

    def tables(self) -> list[TableSync]:
        """How far each table is."""
        found = []
        for task in self.runner.tasks.values():
            progress = self.backfills.get(task.view)
            done, estimated = (0, None) if progress is None else (progress.rows_done, progress.rows_estimated)
            found.append(TableSync(task.view, self.sources[task.view], done, estimated, task.copied, task.status))
        return found

    def forget(self) -> list[str]:
        """Remove what the database keeps for this copy; the names of the slots. The copy stays as it is."""
        return self.app.captures.drop(self.app.log)

    def close(self) -> None:
        """Stop; what was begun goes on with the next run."""
        try:
            self.runner.close()
        finally:
            self.app.close()

    def __enter__(self) -> Sync:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def short_name(table: str, schema: str = "public") -> str:
    """What a table is called here: without its schema when that is the usual one.

    >>> short_name("users"), short_name("public.users"), short_name("sales.orders")
    ('users', 'users', 'sales_orders')
    """
    return table.removeprefix(f"{schema}.").replace(".", "_")


def is_postgres(source: str) -> bool:
    """Whether an address is one of PostgreSQL."""
    return source.startswith(("postgresql://", "postgres://"))


def source_of(source: str, table: str, slot: str) -> CaptureSource:
    """One table of a database, as a capture wants it.

    >>> source_of("mariadb://localhost/shop", "users", "copy")
    MySQL(table='shop.users', name='copy')
    """
    from headwater import capture

    if is_postgres(source):
        return capture.Postgres(source, table=table, slot=slot)
    return capture.MySQL(source, table=table, name=slot)


def check_source(source: str) -> None:
    """Refuse what is no database that can be captured."""
    if not is_postgres(source) and not source.startswith(("mysql://", "mariadb://")):
        raise InvalidDeclaration(
            f"{source.split('@')[-1]!r} is not a database that can be captured",
            hint="Write postgresql://user:password@host:port/database, or mysql://….",
        )


def check_target(to: str) -> None:
    """Refuse what is no system that a table can be copied to."""
    kind, _, rest = to.partition(":")
    if kind not in ("sqlite", "postgresql", "postgres", "redis", "rediss", "search", "parquet", "delta") or not rest:
        raise InvalidDeclaration(f"{to.split('@')[-1]!r} is not a place to copy to", hint=f"Write one of: {TARGETS}.")


def sink_of(to: str, table: str, schema: Any) -> Sink:
    """The sink of one table.

    >>> import pyarrow as pa
    >>> str(sink_of("sqlite:copy.db", "users", pa.schema([("id", pa.int64())])))
    'sqlite:copy.db'
    """
    from headwater import sinks

    kind, _, rest = to.partition(":")
    if kind == "sqlite":
        return sinks.SQLite(rest, table=table)
    if kind in ("postgresql", "postgres"):
        return sinks.Postgres(to, table=table)
    if kind in ("redis", "rediss"):
        return sinks.Redis(to, prefix=table)
    folder = Path(rest) / table
    if kind == "parquet":
        return sinks.Parquet(folder)
    if kind == "delta":
        return sinks.Delta(str(folder))
    texts = [field.name for field in schema if str(field.type) in ("string", "large_string")]
    return sinks.Search(folder, text=texts)


def tables_of(source: str) -> list[str]:
    """All tables of a database that are not the server's own."""
    server: Any = source_of(source, "any", NAME).server(NAME)
    try:
        return [table for table in server.tables() if not table.endswith(f".{PROGRESS_TABLE}")]
    finally:
        server.close()
