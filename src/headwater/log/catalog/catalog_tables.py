"""Catalog tables of the packages above the log: apps, ticks, sinks, attachments and inlets.

What it is: ``TABLES_ABOVE_LOG``, created with the catalog. ``views/state/manifest.py`` owns ``apps``, ``ticks`` and
``tick_changes``, ``views/state/manifest_entries.py`` ``manifest_entries`` and ``manifest_runs``,
``views/state/small_runs.py`` ``small_runs``, ``views/state/remote/store_manifests.py`` ``remote_states``,
``views/tick/reports.py`` ``tick_reports``,
``catalog.py`` ``home_id`` and ``mask_secret``, ``sinks/runner/sink_status.py`` the sinks,
``federation/attachments.py`` the attachments,
``inlets/counters.py`` the inlets, ``upkeep/backup/`` the restores, drills and places.
Invariants: ``apps.tick`` names the current row of ``ticks``; the six tables of manifests change in one transaction. A
home's id never changes. An attachment's address is stored as given: ``${NAME}`` stays a name. Counters of inlets are
only added to, so several processes may count for one inlet.
Not here: topics and segments (``registry.py``), groups (``log/groups``).
Read next: ``views/state/manifest.py``, ``sinks/runner/sink_status.py``.
"""

from __future__ import annotations

TABLES_ABOVE_LOG = """
CREATE TABLE IF NOT EXISTS apps (
    name TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,              -- raised by each takeover
    tick INTEGER NOT NULL                -- the last committed one
);
CREATE TABLE IF NOT EXISTS ticks (
    app TEXT NOT NULL,
    tick INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    committed_us INTEGER NOT NULL,
    manifest TEXT NOT NULL,              -- JSON: what each tick changes, see views/state/manifest.py
    PRIMARY KEY (app, tick)
);
CREATE TABLE IF NOT EXISTS tick_changes (  -- of the kept ticks: how much a reader of a view is behind
    app TEXT NOT NULL,
    tick INTEGER NOT NULL,
    view TEXT NOT NULL,
    rows INTEGER NOT NULL,               -- weighted rows of the tick's changes
    PRIMARY KEY (app, tick, view)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS manifest_entries (  -- what manifests say of views and relations, once for all their ticks
    app TEXT NOT NULL,
    kind TEXT NOT NULL,                  -- view, relation, apart, field or order
    name TEXT NOT NULL,
    first_tick INTEGER NOT NULL,         -- it holds from here
    last_tick INTEGER,                   -- to here; NULL: until now
    entry TEXT NOT NULL                  -- JSON; of a relation without its runs
);
CREATE INDEX IF NOT EXISTS manifest_entries_by_end ON manifest_entries (app, last_tick, kind, name, first_tick);
CREATE TABLE IF NOT EXISTS manifest_runs (  -- the runs of those relations, likewise
    app TEXT NOT NULL,
    folder TEXT NOT NULL,                -- the relation's, in views/APP/
    name TEXT NOT NULL,
    files INTEGER NOT NULL,              -- how many; 0: its rows are in small_runs
    first_tick INTEGER NOT NULL,         -- of the first manifest that lists it
    last_tick INTEGER,
    run TEXT NOT NULL                    -- JSON, see views/state/run.py
);
CREATE INDEX IF NOT EXISTS manifest_runs_by_end ON manifest_runs (app, last_tick, folder, name, first_tick);
CREATE INDEX IF NOT EXISTS manifest_runs_with_files ON manifest_runs (app) WHERE files > 0;
CREATE TABLE IF NOT EXISTS small_runs (  -- rows of runs that are not worth a file
    app TEXT NOT NULL,
    folder TEXT NOT NULL,                -- the relation, as its files would lie in views/APP/
    name TEXT NOT NULL,                  -- the run
    rows BLOB NOT NULL,                  -- Arrow, compressed
    PRIMARY KEY (app, name, folder)      -- names begin with a tick: a tick's runs are written side by side
);
CREATE TABLE IF NOT EXISTS remote_states (  -- of apps whose manifests are on an object store: what is here is a copy
    app TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    position TEXT NOT NULL,              -- JSON: the last commit in the copy, see views/state/remote/commit_log.py
    identity TEXT NOT NULL               -- JSON: the app, the log and the id of the state
);
CREATE TABLE IF NOT EXISTS tick_reports (  -- durations of the last ticks, for other processes
    app TEXT NOT NULL,
    tick INTEGER NOT NULL,
    report TEXT NOT NULL,                -- JSON, see views/tick/reports.py
    PRIMARY KEY (app, tick)
);
CREATE TABLE IF NOT EXISTS home_id (    -- distinguishes this home from others with apps of the same names
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS mask_secret (  -- what hashes of masked values are made with
    one INTEGER PRIMARY KEY CHECK (one = 1),
    secret BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS restores (   -- the backups that this home came from, see upkeep/backup/
    home TEXT PRIMARY KEY,               -- the id that it got
    parent TEXT NOT NULL,                -- the id of the home that was backed up
    backup TEXT NOT NULL,
    token TEXT NOT NULL,                 -- the log that was restored
    restored_us INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS backup_places (  -- see upkeep/backup/backup_places.py
    address TEXT PRIMARY KEY,
    pending TEXT                         -- why people are still to be erased from the backups there; NULL: none are
);
CREATE TABLE IF NOT EXISTS backup_drills (  -- see upkeep/backup/backup_drill.py
    began_us INTEGER PRIMARY KEY,
    ok INTEGER NOT NULL,
    report TEXT NOT NULL                 -- JSON
);
CREATE TABLE IF NOT EXISTS sinks (      -- the last known status of each sink
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
    memory TEXT NOT NULL                 -- JSON: further state of the sink
);
CREATE TABLE IF NOT EXISTS attachments (
    name TEXT PRIMARY KEY,
    url TEXT NOT NULL,
    rows_max INTEGER NOT NULL,           -- fetched from one table
    timeout_ms INTEGER NOT NULL,         -- of one statement
    attached_us INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS inlets (
    app TEXT NOT NULL,
    name TEXT NOT NULL,
    received INTEGER NOT NULL DEFAULT 0,
    appended INTEGER NOT NULL DEFAULT 0,
    repeated INTEGER NOT NULL DEFAULT 0,
    refused INTEGER NOT NULL DEFAULT 0,
    dropped INTEGER NOT NULL DEFAULT 0,
    address TEXT,                        -- where it listens, or what it is connected to
    problem TEXT,                        -- why it receives nothing; NULL without a problem
    counted_us INTEGER NOT NULL,         -- when a process last wrote here
    PRIMARY KEY (app, name)
);
CREATE TABLE IF NOT EXISTS inlet_lags (  -- of inlets that read a foreign log
    app TEXT NOT NULL,
    inlet TEXT NOT NULL,
    lag INTEGER NOT NULL,                -- offsets that were still to be read
    PRIMARY KEY (app, inlet)
) WITHOUT ROWID;
"""
