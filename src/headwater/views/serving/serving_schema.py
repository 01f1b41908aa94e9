"""The serving store's own tables: what it remembers beside the views' rows.

What it is: the statements that make them.
Invariants: their names begin with ``OWN_NAMES``, so that no view's table has one of them.
Not here: the tables of views (``serving_tables.py``).
Read next: ``serving_store.py``.
"""

from __future__ import annotations

from headwater.views.serving.serving_damage import TABLE_BROKEN

OWN_NAMES = "_headwater_"

TABLES = (
    f"""CREATE TABLE IF NOT EXISTS {OWN_NAMES}progress (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    tick INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    frontier TEXT NOT NULL,          -- JSON: topic -> partition -> offset
    committed_us INTEGER NOT NULL
)""",
    f"""CREATE TABLE IF NOT EXISTS {OWN_NAMES}tables (
    view TEXT NOT NULL,
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    columns TEXT NOT NULL,           -- JSON: [[name, Spark type], ...]
    key TEXT NOT NULL,               -- JSON: [name, ...]
    fingerprint TEXT NOT NULL,
    state TEXT NOT NULL,             -- live, next or filling
    as_of_tick INTEGER NOT NULL
)""",
    TABLE_BROKEN,
)
