"""The catalog's tables of apps: who runs an app, and the manifests of its ticks.

What it is: two tables, made with the catalog; ``views/manifest.py`` reads and writes them.
Invariants: ``apps.tick`` names the current row of ``ticks``; both change in one transaction.
Not here: what a manifest says.
Read next: ``views/manifest.py``.
"""

from __future__ import annotations

TABLES_APPS = """
CREATE TABLE IF NOT EXISTS apps (
    name TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,              -- raised by whoever takes over
    tick INTEGER NOT NULL                -- the last committed one
);
CREATE TABLE IF NOT EXISTS ticks (
    app TEXT NOT NULL,
    tick INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    committed_us INTEGER NOT NULL,
    manifest TEXT NOT NULL,              -- JSON, see views/manifest.py
    PRIMARY KEY (app, tick)
);
"""
