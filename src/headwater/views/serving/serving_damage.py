"""Damage in the serving store: one view's table that cannot take its changes.

What it is: changing one view's table in a savepoint of its own, and the list of views whose table failed.
Invariants: a table that fails is as it was before, is listed in the same transaction that remembers the tick, and is
not readable until it was refilled; so a crash in between loses nothing. What is not the table's fault (a full
disk, a lock) is no damage.
Not here: refilling (``publish.py``); a file that SQLite cannot read at all (``serving_file.py``).
Read next: ``serving_store.py``.
"""

from __future__ import annotations

import sqlite3

import pyarrow as pa

from headwater.errors import Corruption, Unavailable
from headwater.views.serving.serving_columns import quoted
from headwater.views.serving.serving_tables import ServedTable

BROKEN = "_headwater_broken"
TABLE_BROKEN = f"""CREATE TABLE IF NOT EXISTS {BROKEN} (  -- views that cannot be read until they are refilled
    view TEXT PRIMARY KEY,
    reason TEXT NOT NULL
)"""


def changed_apart(db: sqlite3.Connection, table: ServedTable, rows: pa.Table) -> Exception | None:
    """Change one table; when that fails leave it as it was, make it unreadable, and return why."""
    db.execute("SAVEPOINT before_view")
    try:
        table.change(db, rows)
    except (Corruption, sqlite3.DatabaseError) as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        db.execute("ROLLBACK TO before_view")
        db.execute(f"INSERT OR REPLACE INTO {BROKEN} VALUES (?, ?)", (table.view, str(error)))
        db.execute(f"DROP VIEW IF EXISTS {quoted(table.view)}")
        return error
    finally:
        if db.in_transaction:  # SQLite ends it by itself on a full disk
            db.execute("RELEASE before_view")
    return None


def broken_views(db: sqlite3.Connection) -> dict[str, str]:
    """The views that cannot be read until they are refilled, each with the reason."""
    made = db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (BROKEN,)).fetchone()
    return dict(db.execute(f"SELECT view, reason FROM {BROKEN}").fetchall()) if made else {}


def mended(db: sqlite3.Connection, view: str) -> None:
    """The view was refilled."""
    db.execute(f"DELETE FROM {BROKEN} WHERE view = ?", (view,))


def damaged(view: str, reason: str) -> Unavailable:
    """The error for a read of such a view."""
    return Unavailable(
        f'view "{view}" cannot be read from the serving store: its table there is damaged',
        detail=reason.splitlines()[0],
        hint="The running app refills it from the view's state; if it is paused, resume it.",
        view=view,
    )
