"""Backup cut: the one moment that a backup is of.

What it is: ``take_cut`` closes a cut number, and copies the catalog and the captures' files as they are at that very
moment.
Invariants: the cut is causally closed, and holds whole appends and whole transactions (``log/commits/cut_numbers.py``).
The databases are locked while the number is closed, so that no row of theirs can be written in between. Hence the
catalog never knows of a row that the cut lacks (a position, a request id, a tick, a schema), and a transaction that
moved a position is in both or in neither. A topic that was deleted meanwhile is an error, and the caller begins again.
Not here: copying segments (``backup_writer.py``). Read next: ``backup_writer.py``.
"""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from headwater.log.catalog.sqlite_file import BUSY_TIMEOUT_S
from headwater.log.home import Log

CATALOG = "catalog.sqlite"
CAPTURES = "captures"


class TopicDeleted(Exception):
    """A topic was deleted while it was backed up."""


@dataclass(frozen=True)
class BackupCut:
    """A closed cut, with copies of the home's databases."""

    number: int
    taken_us: int
    ends: dict[str, dict[int, int]]  # by topic and partition
    databases: dict[str, Path]  # by the path in the home: the copy

    @property
    def catalog(self) -> Path:
        return self.databases[CATALOG]


def take_cut(log: Log, scratch: Path) -> BackupCut:
    """Close a cut; the copies of the databases are in ``scratch``."""
    for topic in log.topics():
        topic.open_partitions()  # what a process wrote whole and died before it had listed it is listed now
    names = [CATALOG, *(f"{CAPTURES}/{path.name}" for path in sorted((log.home / CAPTURES).glob("*.sqlite")))]
    with ExitStack() as stack:
        guards = [stack.enter_context(closing(_connected(log.home / name))) for name in names]
        readers = {name: stack.enter_context(closing(_connected(log.home / name))) for name in names}

        def settle_and_lock() -> None:
            log.settle_commits()
            for guard in guards:
                guard.execute("BEGIN IMMEDIATE")
            for reader in readers.values():
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM sqlite_master").fetchall()  # the snapshot is taken by reading

        taken_us = log.clock.now_us()
        with log.catalog.translated():
            try:
                number = log.cut_counter.close_cut(settle_and_lock)
            finally:
                for guard in guards:
                    guard.close()
            # Newer rows may have come by now: an end is that of the number, whatever is listed.
            ends = _ends(log, readers[CATALOG], number)
            databases = {name: _copied(reader, scratch / name) for name, reader in readers.items()}
    return BackupCut(number, taken_us, ends, databases)


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)


def _ends(log: Log, catalog: sqlite3.Connection, number: int) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for topic_id, name in catalog.execute("SELECT id, name FROM topics ORDER BY name").fetchall():
        topic = log.find_topic(name)
        if topic is None or topic.id != topic_id:
            raise TopicDeleted(name)
        topic.open_partitions()
        found[name] = {p: topic.reader(p).end_of_cut(number) for p in range(topic.settings.partitions)}
    return found


def _copied(reader: sqlite3.Connection, target: Path) -> Path:
    """A copy of the snapshot that a connection reads."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(target)) as copy:
        reader.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a -wal beside it
    return target
