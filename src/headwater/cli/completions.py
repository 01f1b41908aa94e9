"""Completions: the names of topics, views and attached stores of a home.

What it is: functions that typer calls on the tab key.
Invariants: they import no pyarrow and open the catalog read-only, so they answer at once; an error completes nothing
silently.
Not here: the shell's script (``completion.py``).
Read next: ``completion.py``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import typer

CATALOG = "catalog.sqlite"
TOPICS = "SELECT name FROM topics ORDER BY name"
STORES = "SELECT name FROM attachments ORDER BY name"
MANIFESTS = "SELECT t.manifest FROM apps a JOIN ticks t ON t.app = a.name AND t.tick = a.tick"


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """The topics and tables of the home."""
    return _fitting(context, incomplete, lambda db: [row[0] for row in db.execute(TOPICS)])


def stores(context: typer.Context, incomplete: str) -> list[str]:
    """The attached stores."""
    return _fitting(context, incomplete, lambda db: [row[0] for row in db.execute(STORES)])


def views(context: typer.Context, incomplete: str) -> list[str]:
    """The views that have run in the home."""

    def read(db: sqlite3.Connection) -> list[str]:
        return sorted({name for (manifest,) in db.execute(MANIFESTS) for name in json.loads(manifest)["views"]})

    return _fitting(context, incomplete, read)


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
    except (sqlite3.Error, OSError, ValueError, KeyError, TypeError):
        return []
