"""The catalog's table of attachments: foreign stores that queries of this home may read.

What it is: one table, made with the catalog; ``federation/attachments.py`` reads and writes it.
Invariants: an address is kept as it was given, so that ``${NAME}`` stays a name and its value is in no file.
Not here: what an address means.
Read next: ``federation/attachments.py``.
"""

from __future__ import annotations

TABLES_ATTACHMENTS = """
CREATE TABLE IF NOT EXISTS attachments (
    name TEXT PRIMARY KEY,
    url TEXT NOT NULL,
    rows_max INTEGER NOT NULL,           -- more rows than these are not fetched from one table
    timeout_ms INTEGER NOT NULL,         -- so long may one statement take
    attached_us INTEGER NOT NULL
);
"""
