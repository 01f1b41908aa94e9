"""Stored positions: how far readers of foreign sources are, kept with the rows that they append.

What it is: ``StoredPositions``, the catalog's table ``stored_positions``: a text for each reader, such as the offsets
of a Kafka topic that an inlet has read.
Invariants: a position moves in the transaction of the catalog that decides the append of what was read before it, so
both are there or neither is, over crashes. It moves only from where its reader left it: of two processes that read the
same source one is refused (``PositionMoved``), and nothing is written twice.
Not here: the commit (``transaction.py``). Read next: ``inlets/kafka/kafka_positions.py``.
"""

from __future__ import annotations

import sqlite3

from headwater.log.catalog.catalog import Catalog

TABLE_STORED_POSITIONS = """
CREATE TABLE IF NOT EXISTS stored_positions (  -- of readers of foreign sources
    reader TEXT PRIMARY KEY,
    position TEXT NOT NULL
) WITHOUT ROWID;
"""


class PositionMoved(Exception):
    """Another process has moved the position of a reader meanwhile; the argument is the reader's name."""


class StoredPositions:
    """The positions of a home."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def find(self, reader: str) -> str | None:
        """Where a reader is; None when it has not begun."""
        rows = self._catalog.read("SELECT position FROM stored_positions WHERE reader = ?", (reader,))
        return rows[0]["position"] if rows else None

    def move_in(self, db: sqlite3.Connection, reader: str, before: str | None, after: str) -> None:
        """Move a position; inside the transaction that decides the append."""
        if before is None:
            sql = "INSERT OR IGNORE INTO stored_positions (position, reader) VALUES (?, ?)"
            changed = db.execute(sql, (after, reader)).rowcount
        else:
            sql = "UPDATE stored_positions SET position = ? WHERE reader = ? AND position = ?"
            changed = db.execute(sql, (after, reader, before)).rowcount
        if not changed:
            raise PositionMoved(reader)
