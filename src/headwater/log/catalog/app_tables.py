"""The catalog's tables of apps: who runs an app, the manifests of its ticks, and how its sinks are.

What it is: tables, made with the catalog; ``views/state/manifest.py`` reads and writes ``apps`` and ``ticks``,
``views/tick/reports.py`` its own, ``sinks/runner/sink_status.py`` the others.
Invariants: ``apps.tick`` names the current row of ``ticks``; both change in one transaction. A home's id is given
once, when it is first asked for, and never changes.
Not here: what a manifest says; how far a sink is, which the other system knows.
Read next: ``views/state/manifest.py``, ``sinks/runner/sink_status.py``.
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
    manifest TEXT NOT NULL,              -- JSON, see views/state/manifest.py
    PRIMARY KEY (app, tick)
);
CREATE TABLE IF NOT EXISTS tick_reports (  -- how long the last ticks took, for whoever looks from another process
    app TEXT NOT NULL,
    tick INTEGER NOT NULL,
    report TEXT NOT NULL,                -- JSON, see views/tick/reports.py
    PRIMARY KEY (app, tick)
);
CREATE TABLE IF NOT EXISTS home_id (     -- tells this home from another one that has apps of the same names
    one INTEGER PRIMARY KEY CHECK (one = 1),
    name TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS sinks (      -- how each sink was when it was last looked at
    identity TEXT PRIMARY KEY,           -- app/view/sink
    app TEXT NOT NULL,
    sink TEXT NOT NULL,
    status TEXT NOT NULL                 -- JSON, see sinks/runner/sink_status.py
);
CREATE TABLE IF NOT EXISTS sink_memories (  -- progress of sinks whose other system can store none
    identity TEXT PRIMARY KEY,
    tick INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    version TEXT NOT NULL,
    memory TEXT NOT NULL                 -- JSON: what else the sink has to remember
);
"""
