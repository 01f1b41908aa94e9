"""The catalog's table of inlets: what each has counted.

What it is: one table, made with the catalog; ``inlets/counters.py`` reads and writes it.
Invariants: a row is added to and never set back, so that several processes may count for one inlet.
Not here: what is counted.
Read next: ``inlets/counters.py``.
"""

from __future__ import annotations

TABLES_INLETS = """
CREATE TABLE IF NOT EXISTS inlets (
    app TEXT NOT NULL,
    name TEXT NOT NULL,
    received INTEGER NOT NULL DEFAULT 0,
    appended INTEGER NOT NULL DEFAULT 0,
    repeated INTEGER NOT NULL DEFAULT 0,
    refused INTEGER NOT NULL DEFAULT 0,
    dropped INTEGER NOT NULL DEFAULT 0,
    address TEXT,                        -- where it listens, or what it is connected to
    problem TEXT,                        -- why nothing comes at present; NULL when all is well
    counted_us INTEGER NOT NULL,         -- when a process last wrote here
    PRIMARY KEY (app, name)
);
"""
