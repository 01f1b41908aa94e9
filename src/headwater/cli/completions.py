"""Completions: the names of topics, aggregates, views and attached stores of a home.

What it is: functions that typer calls on the tab key.
Invariants: they import no pyarrow and open the catalog read-only, so they answer at once; an error completes nothing
silently.
Not here: the shell's script (``completion.py``).
Read next: ``completion.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import typer

from headwater.errors import HeadwaterError

CATALOG = "catalog.sqlite"
TOPICS = "SELECT name FROM topics ORDER BY name"
HISTORIES = "SELECT name FROM topics WHERE json_extract(settings, '$.events') ORDER BY name"
STORES = "SELECT name FROM attachments ORDER BY name"
VIEWS = "SELECT DISTINCT name FROM manifest_entries WHERE kind = 'view' AND last_tick IS NULL ORDER BY name"


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """The topics and tables of the home."""
    return _fitting(context, incomplete, lambda db: [row[0] for row in db.execute(TOPICS)])


def histories(context: typer.Context, incomplete: str) -> list[str]:
    """The aggregates and event stores of the home."""
    return _fitting(context, incomplete, lambda db: [row[0] for row in db.execute(HISTORIES)])


def stores(context: typer.Context, incomplete: str) -> list[str]:
    """The attached stores."""
    return _fitting(context, incomplete, lambda db: [row[0] for row in db.execute(STORES)])


def views(context: typer.Context, incomplete: str) -> list[str]:
    """The views that have run in the home."""
    return _fitting(context, incomplete, lambda db: [row[0] for row in db.execute(VIEWS)])


def _fitting(context: typer.Context, incomplete: str, read: Callable[[sqlite3.Connection], list[str]]) -> list[str]:
    from headwater.cli.command_options import home_of

    try:
        given = [each.params.get("home") for each in (context, context.find_root())]
        home = next((Path(each) for each in given if each is not None), None)
        path = (home_of(home).expanduser() / CATALOG).absolute()
        db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=0.5)
        try:
            return [name for name in read(db) if name.startswith(incomplete)]
        finally:
            db.close()
    except (sqlite3.Error, OSError, ValueError, KeyError, TypeError, HeadwaterError):
        return []
